"""What `samerun verify` shows: what cannot be met here, then what a rerun came to."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from samerun.base.text import shown
from samerun.report import diff


def show(record: dict[str, Any], console: Console) -> None:
    """Print the record of a verification. Text from the receipt is made fit for a terminal."""
    console.print(Text.assemble(("command  ", "dim"), shown(record["command"], 1000)))
    signed = record["signed_by"]
    console.print(Text.assemble(("signed   ", "dim"), f"by {signed}" if signed else "no"))
    if record["unmet"]:
        console.print()
        console.print(Text("Cannot be met here (recorded | here)", style="bold"))
        table = Table.grid(padding=(0, 2))
        for one in record["unmet"][:12]:
            table.add_row(Text(shown(one["path"])), Text(f"{shown(one['a'], 60)} | {shown(one['b'], 60)}", style="dim"))
        if len(record["unmet"]) > 12:
            table.add_row("", Text(f"and {len(record['unmet']) - 12} more: --json has them all", style="dim"))
        console.print(Padding(table, (0, 0, 0, 2), expand=False))
    console.print()
    if not record["ran"]:
        for note in record["notes"]:
            console.print(Text(shown(note), style="yellow"))
        return
    diff.show({**record, "a": record["receipt"], "b": "this run"}, console)
    tier = record["tier"]
    console.print()
    console.print(Text.assemble(("tested   ", "dim"), f"{tier['name']}, {tier['what']}"))
