"""What `samerun log` shows: a line for each receipt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from samerun.base.text import shown

HEAD = f"{'began':19}  {'steps':>8}  {'ended':11}  {'torch':12}  {'digest':12}  receipt: command"


def format_log(entries: list[dict[str, Any]]) -> Iterator[str]:
    """The header and a line for each receipt, the newest last."""
    if not entries:
        yield "No receipts."
        return
    yield HEAD
    for one in entries:
        yield _format_entry(one)


def _format_entry(one: dict[str, Any]) -> str:
    if one["problem"]:
        return f"{'':19}  {'':8}  {'!':11}  {'':12}  {'':12}  {shown(one['file'], 80)}: {shown(one['problem'], 120)}"
    ended = one["ended"] + ("" if one["complete"] else " ...")
    return (
        f"{shown(one['began'][:19], 19):19}  {one['steps']:>8}  {shown(ended, 14):11}  {shown(one['torch'], 12):12}  "
        f"{shown(one['digest'][:12], 12):12}  {shown(one['file'], 80)}: {shown(one['command'], 120)}"
    )
