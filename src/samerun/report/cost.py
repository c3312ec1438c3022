"""What `samerun cost` shows, in the terminal or as one HTML file: the whole program, then the costliest operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from samerun.base.records import MEASURED, CostReport, MedianAndRange, OperatorCost
from samerun.report.html import render_page

QUANTITIES: tuple[tuple[str, str, Literal["s", "B"]], ...] = (
    ("a step", "step", "s"),
    ("a step, processor", "step_cpu", "s"),
    ("the program", "wall", "s"),
    ("its processor time", "cpu", "s"),
    ("peak memory", "peak", "B"),
    ("peak on the device", "device_peak", "B"),
)
"""The rows of the table: a name, the field of `Setting`, the unit."""


def show_cost(report: CostReport, console: Console, max_operators: int) -> None:
    """Print the tables; they read well in 80 columns."""
    console.print(Text.assemble(("COST", "bold"), f"  {' '.join(report.command)}"))
    steps = next((one.steps for one in report.settings if one.outcome == MEASURED), 0)
    turns = f"medians of {report.repeat} runs each, in turns" if report.repeat > 1 else "one run each"
    console.print(Text(f"      {turns}; {steps} optimizer steps", style="dim"))
    console.print()
    console.print(Padding(make_quantity_table(report), (0, 0, 0, 2), expand=False))
    for one in report.settings:
        if one.outcome != MEASURED:
            console.print()
            console.print(Text(f"{one.name}: the program {one.detail}", style="yellow"))
    if report.operators:
        console.print()
        console.print(Padding(make_operator_table(report, max_operators), (0, 0, 0, 2), expand=False))
        console.print(
            Padding(
                Text(describe_operator_table_footnote(report, max_operators), style="dim"), (0, 0, 0, 2), expand=False
            )
        )


def make_quantity_table(report: CostReport) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row("", *(Text(one.name, style="bold") for one in report.settings))
    for row in make_row_per_quantity_with_cell_per_setting(report):
        table.add_row(Text(row[0], style="dim"), *row[1:])
    return table


def make_row_per_quantity_with_cell_per_setting(report: CostReport) -> list[list[str]]:
    """A row for each quantity that at least one setting has a number for."""
    baseline = report.settings[0]
    rows = []
    for name, field, unit in QUANTITIES:
        amounts: list[MedianAndRange | None] = [getattr(one, field) for one in report.settings]
        if any(amounts):
            rows.append([name, *(format_amount_with_ratio(one, getattr(baseline, field), unit) for one in amounts)])
    return rows


def format_amount_with_ratio(
    amount: MedianAndRange | None, baseline: MedianAndRange | None, unit: Literal["s", "B"]
) -> str:
    if amount is None:
        return "-"
    text = format_quantity(amount.median, unit)
    if baseline is None or amount is baseline or not baseline.median:
        return text
    return f"{text} ({format_ratio(amount.median, baseline.median)})"


def make_operator_table(report: CostReport, max_operators: int) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row(Text("operator", style="bold"), *(Text(one.name, style="bold") for one in report.settings))
    for name, costs in report.operators[:max_operators]:
        table.add_row(name.removeprefix("aten."), *(format_operator_seconds_with_ratio(one, costs[0]) for one in costs))
    return table


def format_operator_seconds_with_ratio(cost: OperatorCost | None, baseline: OperatorCost | None) -> str:
    if cost is None:
        return "-"
    text = format_quantity(cost.seconds, "s")
    if baseline is None or cost is baseline or not baseline.seconds:
        return text
    return f"{text} ({format_ratio(cost.seconds, baseline.seconds)})"


def describe_operator_table_footnote(report: CostReport, max_operators: int) -> str:
    """How much of the operators' time the table does not show, and what the times are."""
    text = "Seconds in all calls of a run"
    rest = len(report.operators) - max_operators
    return text + (f"; {rest} more operators: --top, --json." if rest > 0 else ".")


def format_quantity(value: float, unit: Literal["s", "B"]) -> str:
    """Three digits and a unit."""
    if unit == "B":
        return f"{value / 2**20:.4g} MiB"
    if value >= 1:
        return f"{value:.3g} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} us"


def format_ratio(value: float, baseline: float) -> str:
    return f"{value / baseline:.2f}x"


# --- the page ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class CostBar:
    """One operator under one setting; `width`: of the longest bar, from 0 to 100."""

    setting: str
    width: float
    text: str


@dataclass(frozen=True)
class CostRow:
    """One operator: how often it is called as the program is, its bars, and what it adds to the peak of memory."""

    operator: str
    calls: str
    bars: tuple[CostBar, ...]
    memory: tuple[str, ...]


def cost_to_html(report: CostReport, version: str, machine: dict[str, Any], max_operators: int) -> str:
    """The whole page. Whatever comes from the user's program is escaped."""
    return render_page(
        "cost.html.jinja",
        report=report,
        version=version,
        machine=machine,
        command=" ".join(report.command),
        whole=make_row_per_quantity_with_cell_per_setting(report),
        rows=make_cost_rows(report, max_operators),
        told=describe_operator_table_footnote(report, max_operators),
    )


def make_cost_rows(report: CostReport, max_operators: int) -> list[CostRow]:
    shown = report.operators[:max_operators]
    longest = max((cost.seconds for _, costs in shown for cost in costs if cost is not None), default=0.0)
    found = []
    for name, costs in shown:
        bars = tuple(
            CostBar(
                setting.name,
                round(100 * cost.seconds / longest, 2) if longest else 0.0,
                format_operator_seconds_with_ratio(cost, costs[0]),
            )
            for setting, cost in zip(report.settings, costs, strict=True)
            if cost is not None
        )
        memory = tuple(format_quantity(cost.peak_bytes, "B") if cost is not None else "-" for cost in costs)
        calls = " / ".join(str(cost.calls) if cost is not None else "-" for cost in costs)
        found.append(CostRow(name, calls, bars, memory))
    return found
