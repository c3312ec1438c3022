"""What `samerun doctor` shows: findings, switches and the machine; with --numerics, whether the bits are right."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

MARKS = {"ok": ("=", "green"), "differs": ("x", "red"), "too late": ("x", "red"), "not applicable": ("-", "dim")}
FINDINGS = ("differs", "too late")

WITHOUT_LIBRARIES = "These C libraries were not built. Python does their work, with the same results and slower."
HOW_TO_GET_LIBRARIES = (
    "To have them: install the wheel of this system, where there is one, or reinstall samerun where there is gcc or "
    "clang (pip install --force-reinstall --no-binary samerun --no-deps samerun)."
)


def show_switches(record: dict[str, Any], console: Console, show_all_switches: bool) -> None:
    """Print the record of a doctor; reads well in 80 columns."""
    switches = record["switches"]
    findings = [one for one in switches if one["verdict"] in FINDINGS]
    shown = [one for one in switches if show_all_switches or one["wanted"] is not None or one in findings]
    console.print(_make_verdict_text(record, len(findings)))
    console.print()
    console.print(Padding(_make_switch_table(shown), (0, 0, 0, 2), expand=False))
    if len(shown) < len(switches):
        rest = f"{len(switches) - len(shown)} more are only recorded, or do not apply here: --all shows them."
        console.print(Padding(Text(rest, style="dim"), (0, 0, 0, 2)))
    for way_out, names in _group_switches_by_advice_or_reason(findings).items():
        console.print()
        console.print(Padding(Text(", ".join(names), style="bold"), (0, 0, 0, 2)))
        console.print(Padding(Text(way_out), (0, 0, 0, 4)))
    console.print()
    console.print(Padding(_make_machine_table(record["machine"]), (0, 0, 0, 2), expand=False))
    if record["missing_libraries"]:
        console.print()
        console.print(
            Padding(Text(f"Not installed: {', '.join(record['missing_libraries'])}", style="bold"), (0, 0, 0, 2))
        )
        console.print(Padding(Text(f"{WITHOUT_LIBRARIES} {HOW_TO_GET_LIBRARIES}"), (0, 0, 0, 4)))


def _make_verdict_text(record: dict[str, Any], findings: int) -> Text:
    text = Text("CLEAN", style="bold green") if not findings else Text(f"{findings} FINDINGS", style="bold red")
    if findings == 1:
        text = Text("1 FINDING", style="bold red")
    what = " ".join(record["program"]) if record["program"] else "Python in this shell"
    text.append(f"  {what}", style="default not bold")
    text.append(f"  (read at: {record['read_at']})", style="dim not bold")
    return text


def _make_switch_table(switches: list[dict[str, Any]]) -> Table:
    table = Table.grid(padding=(0, 2))
    for _ in range(6):
        table.add_column(no_wrap=True)
    heads = ("switch", "wanted", "in force", "set by", "set it before")
    table.add_row("", *(Text(head, style="dim") for head in heads))
    for one in switches:
        mark, style = MARKS[one["verdict"]]
        name = Text(one["name"], style="" if one["verdict"] in FINDINGS else "dim")
        good = one["verdict"] == "ok" and isinstance(one["in_force"], dict)
        found = "as wanted" if good else format_setting_value_for_column(one["in_force"])
        when = one["when"].removeprefix("before ")
        table.add_row(
            Text(mark, style=style),
            name,
            format_setting_value_for_column(one["wanted"]),
            Text(found, style=style),
            one["set_by"],
            when,
        )
    return table


def _group_switches_by_advice_or_reason(findings: list[dict[str, Any]]) -> dict[str, list[str]]:
    """What to do, and which findings it mends; in the order of the switches."""
    ways: dict[str, list[str]] = {}
    for one in findings:
        ways.setdefault(one["way_out"] or one["why"], []).append(one["name"])
    return ways


def _make_machine_table(machine: dict[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row(Text("machine", style="dim"), f"{machine['processor']}, {machine['cores_allowed']} cores")
    table.add_row(Text("system", style="dim"), f"{machine['system']}, Python {machine['python']}")
    torch = machine.get("torch")
    if torch:
        table.add_row(
            Text("torch", style="dim"),
            f"{torch['version']}, {torch['cpu_capability']}, {torch['threads']} threads, CUDA {torch['cuda'] or 'no'}"
            + (f", cuDNN {torch['cudnn']}" if torch["cudnn"] else ""),
        )
        for device in torch["devices"]:
            text = f"{device['name']} (capability {device['capability']}), driver {torch.get('driver') or '?'}"
            table.add_row(Text("GPU", style="dim"), text)
    return table


def format_setting_value_for_column(value: Any) -> str:
    """A value for a narrow column."""
    if value is None:
        return "-"
    if value is True or value is False:
        return "on" if value else "off"
    if isinstance(value, dict):
        kinds = {format_setting_value_for_column(one) for one in value.values()}
        return kinds.pop() if len(kinds) == 1 else "several" if kinds else "-"
    if isinstance(value, list):
        return "/".join(format_setting_value_for_column(one) for one in value)
    return str(value)


# --- doctor --numerics ------------------------------------------------------------------------------------------
MAX_SHOWN_VECTORS = 20
"""Rows with other bits that are shown; the record has them all."""

HOW_TO_BUILD = (
    "The C library was not built, or does not run here. portable() gives the same bits without it, by the slow "
    f"reference in NumPy. {HOW_TO_GET_LIBRARIES}"
)
WHAT_TO_DO = (
    "These kernels must not be relied on here: portable() would not give the specified bits. Please report the "
    "rows with the machine and the compiler; until then SAMERUN_NUMERICS_LEVEL=reference computes without them."
)


def show_numerics(record: dict[str, Any], console: Console) -> None:
    """Print the record; reads well in 80 columns."""
    seen = record["numerics"]
    wrong = seen["different"]
    every = len(wrong) + sum(len(device["different"]) for device in seen["cuda"])
    text = Text(f"{every} ROWS DIFFER", style="bold red") if every else Text("CLEAN", style="bold green")
    text.append(f"  {seen['rows'] - len(wrong)} of {seen['rows']} conformance vectors", style="default not bold")
    text.append(f"  (specification {seen['specification']})", style="dim not bold")
    console.print(text)
    console.print()
    console.print(f"  computed by  {_describe_library(seen)}")
    console.print(f"  levels here  {', '.join(seen['levels'])}")
    _show_wrong_vectors(wrong, console)
    for device in seen["cuda"]:
        found = f"{device['rows'] - len(device['different'])} of {device['rows']} conformance vectors"
        console.print(f"  {device['device']:<11}  {device['trouble'] or found}  ({device['name']})")
        _show_wrong_vectors(device["different"], console)
    anywhere = wrong or any(device["different"] for device in seen["cuda"])
    for advice in ([WHAT_TO_DO] if anywhere else []) + ([] if seen["library"] else [HOW_TO_BUILD]):
        console.print()
        console.print(advice)


def _show_wrong_vectors(wrong: list[dict[str, Any]], console: Console) -> None:
    for row in wrong[:MAX_SHOWN_VECTORS]:
        console.print(f"  x {row['operator']} {row['type']} {row['n']}: {row['got'][:16]}, not {row['wanted'][:16]}")
    if len(wrong) > MAX_SHOWN_VECTORS:
        console.print(f"  ... and {len(wrong) - MAX_SHOWN_VECTORS} more (--json FILE has them all)")


def _describe_library(numerics_record: dict[str, Any]) -> str:
    if numerics_record["level"] == "reference":
        return "the reference (no C library)" if not numerics_record["library"] else "the reference, as was asked for"
    threads = "1 thread" if numerics_record["threads"] == 1 else f"{numerics_record['threads']} threads"
    return f"the C library, {numerics_record['level']}, {threads}"
