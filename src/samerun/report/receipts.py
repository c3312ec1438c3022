"""What `samerun diff`, `samerun verify` and `samerun log` show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from samerun.base.text import escape_as_one_line

STYLES = {"same": "bold green", "different": "bold red", "trouble": "bold yellow"}
LIKELY_RANK = 45
"""Differences of at least this rank are shown with what they can change."""
MAX_PROCESSES = 8
MAX_LIKELY, MAX_MINOR = 24, 6
"""How many of each kind are shown: a hostile receipt may differ in tens of thousands of places."""


def show_diff(record: dict[str, Any], console: Console) -> None:
    """Print the record of a diff; reads well in 80 columns. Text from receipts is escaped for the terminal."""
    text = Text(record["verdict"].upper(), style=STYLES[record["verdict"]])
    text.append(f"  {escape_as_one_line(record['a'])}  {escape_as_one_line(record['b'])}", style="default not bold")
    if record["verdict"] == "same":
        text.append(f"\n      {record['steps']} optimizer steps, and every result", style="dim not bold")
    console.print(text)
    first = record["first_difference"]
    if first is not None:
        console.print()
        console.print(Text("First difference", style="bold"))
        for line in _describe_first_difference(record, first):
            console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))
    _show_environment_differences(record, console)
    for note in record["notes"]:
        console.print()
        console.print(Text(escape_as_one_line(note, 1000), style="yellow"))


def _describe_first_difference(record: dict[str, Any], first: dict[str, Any]) -> list[str]:
    names = ", ".join(escape_as_one_line(name) for name in first["names"])
    at = f"step {first['step']}" + (
        f" of {_name_first_differing_processes(first)}" if first["process"] != "main" else ""
    )
    lines = {
        "steps": [f"{at}: {names}"],
        "count": [f"{at}: the runs made {names}"],
        "mark": [f"mark {names}, after {first['step']} steps"],
        "saved": [f"what was saved: {names}"],
        "final": [f"the model at the end: {names}"],
        "output": [f"the file written: {names}"],
        "ended": [f"the end: {names}"],
        "process": [f"process {escape_as_one_line(first['process'])}: {names}"],
    }.get(first["what"], [f"{at}: {first['what']} {names}"])
    operator = first.get("operator")
    if operator is not None:
        module = f" in {escape_as_one_line(operator['module'])}" if operator["module"] else ""
        when = f"{operator['phase']}, step {operator['step']}"
        when += f" of {_name_first_differing_processes(operator)}" if operator["process"] != "main" else ""
        lines.append(f"{escape_as_one_line(operator['name'])}{module} ({when}): {operator['what']}")
        if operator["file"]:
            lines.append(f"{escape_as_one_line(operator['file'])}:{operator['line']}")
    earlier = record["generators_differ_earlier"]
    if earlier is not None:
        lines.append(f"already at step {earlier['step']}, not counted by itself: {', '.join(earlier['what'])}")
    if record["others"]:
        others = [
            f"{each['what']} {', '.join(escape_as_one_line(n) for n in each['names'])}" for each in record["others"][:5]
        ]
        lines.append("also: " + "; ".join(others))
    return lines


def _name_first_differing_processes(difference: dict[str, Any]) -> str:
    """The process that differs first, and those that differ as early."""
    also = [escape_as_one_line(role) for role in difference["also_in"]]
    named = ", ".join([escape_as_one_line(difference["process"]), *also[:MAX_PROCESSES]])
    return named + (f" and {len(also) - MAX_PROCESSES} more" if len(also) > MAX_PROCESSES else "")


def _show_environment_differences(record: dict[str, Any], console: Console) -> None:
    everything = record["surroundings"]
    if not everything:
        if record["verdict"] == "different":
            console.print()
            console.print(Text("Nothing that a receipt holds of the surroundings differs.", style="bold"))
            console.print(Padding(Text("samerun check finds what the program depends on."), (0, 0, 0, 2)))
        return
    likely = [one for one in everything if one["rank"] >= LIKELY_RANK]
    minor = [one for one in everything if one["rank"] < LIKELY_RANK]
    head = "What differs around them, the likeliest reason first"
    console.print()
    console.print(Text(head if record["verdict"] == "different" else "What differs around them", style="bold"))
    table = Table.grid(padding=(0, 2))
    for one in likely[:MAX_LIKELY]:
        table.add_row(
            Text(escape_as_one_line(one["path"]), style="red"),
            Text(f"{escape_as_one_line(one['a'], 60)} | {escape_as_one_line(one['b'], 60)}"),
        )
        table.add_row("", Text(f"can change {one['changes']}", style="dim"))
    if len(likely) > MAX_LIKELY:
        table.add_row("", Text(f"and {len(likely) - MAX_LIKELY} more of these: --json has them all", style="dim"))
    for one in minor[:MAX_MINOR]:
        row = f"{escape_as_one_line(one['a'], 60)} | {escape_as_one_line(one['b'], 60)}"
        table.add_row(Text(escape_as_one_line(one["path"]), style="dim"), Text(row, style="dim"))
    if len(minor) > MAX_MINOR:
        table.add_row("", Text(f"and {len(minor) - MAX_MINOR} more: --json has them all", style="dim"))
    console.print(Padding(table, (0, 0, 0, 2), expand=False))


def show_step_verification(record: dict[str, Any], console: Console) -> None:
    """Print whether a step that was computed elsewhere is the same, and where it first differs."""
    where = escape_as_one_line(record["on"], 200)
    if record["verdict"] == "same":
        console.print(Text(f"Step {record['step']} is the same on {where}: {record['operators']} operators."))
        return
    name = record["operator"] or (record["at_end"] or ["the exception"])[0]
    place = f" ({escape_as_one_line(record['location'], 200)})" if record["location"] else ""
    console.print(Text(f"Step {record['step']} differs on {where}, first at {escape_as_one_line(name, 200)}{place}."))
    if record["is_other_program"]:
        console.print(Text("Other operators ran there: another program, another version of torch, or a fault."))


def show_verification(record: dict[str, Any], console: Console) -> None:
    """Print the record of a verification. Text from the receipt is escaped for the terminal."""
    console.print(Text.assemble(("command  ", "dim"), escape_as_one_line(record["command"], 1000)))
    signed = record["signed_by"]
    console.print(Text.assemble(("signed   ", "dim"), f"by {signed}" if signed else "no"))
    if record["unmet"]:
        console.print()
        console.print(Text("Cannot be met here (recorded | here)", style="bold"))
        table = Table.grid(padding=(0, 2))
        for one in record["unmet"][:12]:
            table.add_row(
                Text(escape_as_one_line(one["path"])),
                Text(f"{escape_as_one_line(one['a'], 60)} | {escape_as_one_line(one['b'], 60)}", style="dim"),
            )
        if len(record["unmet"]) > 12:
            table.add_row("", Text(f"and {len(record['unmet']) - 12} more: --json has them all", style="dim"))
        console.print(Padding(table, (0, 0, 0, 2), expand=False))
    console.print()
    if not record["ran"]:
        for note in record["notes"]:
            console.print(Text(escape_as_one_line(note), style="yellow"))
        return
    show_diff({**record, "a": record["receipt"], "b": "this run"}, console)
    tier = record["tier"]
    console.print()
    console.print(Text.assemble(("tested   ", "dim"), f"{tier['name']}, {tier['what']}"))


# --- `samerun log`: a line for each receipt
HEAD = f"{'began':19}  {'steps':>8}  {'ended':11}  {'torch':12}  {'digest':12}  receipt: command"


def format_receipt_log(entries: list[dict[str, Any]]) -> Iterator[str]:
    """The header and a line for each receipt, the newest last."""
    if not entries:
        yield "No receipts."
        return
    yield HEAD
    for one in entries:
        yield _format_log_line(one)


def _format_log_line(entry: dict[str, Any]) -> str:
    file = escape_as_one_line(entry["file"], 80)
    if entry["problem"]:
        return f"{'':19}  {'':8}  {'!':11}  {'':12}  {'':12}  {file}: {escape_as_one_line(entry['problem'], 120)}"
    ended = entry["ended"] + ("" if entry["complete"] else " ...")
    began, torch = escape_as_one_line(entry["began"][:19], 19), escape_as_one_line(entry["torch"], 12)
    digest, command = escape_as_one_line(entry["digest"][:12], 12), escape_as_one_line(entry["command"], 120)
    ended = escape_as_one_line(ended, 14)
    return f"{began:19}  {entry['steps']:>8}  {ended:11}  {torch:12}  {digest:12}  {file}: {command}"
