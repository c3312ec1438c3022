"""What `samerun log` shows: a line for each receipt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from samerun.base.text import printable_line

HEAD = f"{'began':19}  {'steps':>8}  {'ended':11}  {'torch':12}  {'digest':12}  receipt: command"


def format_receipt_log(entries: list[dict[str, Any]]) -> Iterator[str]:
    """The header and a line for each receipt, the newest last."""
    if not entries:
        yield "No receipts."
        return
    yield HEAD
    for one in entries:
        yield _format_log_line(one)


def _format_log_line(one: dict[str, Any]) -> str:
    file = printable_line(one["file"], 80)
    if one["problem"]:
        return f"{'':19}  {'':8}  {'!':11}  {'':12}  {'':12}  {file}: {printable_line(one['problem'], 120)}"
    ended = one["ended"] + ("" if one["complete"] else " ...")
    began, torch = printable_line(one["began"][:19], 19), printable_line(one["torch"], 12)
    digest, command = printable_line(one["digest"][:12], 12), printable_line(one["command"], 120)
    return f"{began:19}  {one['steps']:>8}  {printable_line(ended, 14):11}  {torch:12}  {digest:12}  {file}: {command}"
