"""What `samerun cost` shows: the whole program first, then the operators that take most."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from samerun.base.cost_records import MEASURED, Amount, CostReport, OperatorCost

WHOLE = (
    ("a step", "step", "s"),
    ("a step, processor", "step_cpu", "s"),
    ("the program", "wall", "s"),
    ("its processor time", "cpu", "s"),
    ("peak memory", "peak", "B"),
    ("peak on the device", "device_peak", "B"),
)
"""What is told of each setting: a name, the field, the unit."""


def show(report: CostReport, console: Console, top: int) -> None:
    """Print the tables; they read well in 80 columns."""
    console.print(Text.assemble(("COST", "bold"), f"  {' '.join(report.command)}"))
    steps = next((one.steps for one in report.settings if one.outcome == MEASURED), 0)
    turns = f"medians of {report.repeat} runs each, in turns" if report.repeat > 1 else "one run each"
    console.print(Text(f"      {turns}; {steps} optimizer steps", style="dim"))
    console.print()
    console.print(Padding(whole(report), (0, 0, 0, 2), expand=False))
    for one in report.settings:
        if one.outcome != MEASURED:
            console.print()
            console.print(Text(f"{one.name}: the program {one.detail}", style="yellow"))
    if report.operators:
        console.print()
        console.print(Padding(operators(report, top), (0, 0, 0, 2), expand=False))
        console.print(Padding(Text(told(report, top), style="dim"), (0, 0, 0, 2), expand=False))


def whole(report: CostReport) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row("", *(Text(one.name, style="bold") for one in report.settings))
    for row in whole_rows(report):
        table.add_row(Text(row[0], style="dim"), *row[1:])
    return table


def whole_rows(report: CostReport) -> list[list[str]]:
    """One row for everything that at least one setting has a number for."""
    plain = report.settings[0]
    rows = []
    for name, field, unit in WHOLE:
        amounts: list[Amount | None] = [getattr(one, field) for one in report.settings]
        if any(amounts):
            rows.append([name, *(cell(one, getattr(plain, field), unit) for one in amounts)])
    return rows


def cell(one: Amount | None, plain: Amount | None, unit: str) -> str:
    if one is None:
        return "-"
    text = quantity(one.median, unit)
    return text if plain is None or one is plain or not plain.median else f"{text} ({times(one.median, plain.median)})"


def operators(report: CostReport, top: int) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row(Text("operator", style="bold"), *(Text(one.name, style="bold") for one in report.settings))
    for name, costs in report.operators[:top]:
        table.add_row(name.removeprefix("aten."), *(operator_cell(one, costs[0]) for one in costs))
    return table


def operator_cell(one: OperatorCost | None, plain: OperatorCost | None) -> str:
    if one is None:
        return "-"
    text = quantity(one.seconds, "s")
    if plain is None or one is plain or not plain.seconds:
        return text
    return f"{text} ({times(one.seconds, plain.seconds)})"


def told(report: CostReport, top: int) -> str:
    """How much of the operators' time the table does not show, and what the times are."""
    text = "Seconds in all calls of a run"
    rest = len(report.operators) - top
    return text + (f"; {rest} more operators: --top, --json." if rest > 0 else ".")


def quantity(value: float, unit: str) -> str:
    """Three digits and a unit."""
    if unit == "B":
        return f"{value / 2**20:.4g} MiB"
    if value >= 1:
        return f"{value:.3g} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} us"


def times(value: float, plain: float) -> str:
    return f"{value / plain:.2f}x"
