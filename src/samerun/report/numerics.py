"""What `samerun doctor --numerics` shows: whether the bits are right, and by what they were computed."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

MOST = 20
"""Rows with other bits that are shown; the record has them all."""

HOW_TO_BUILD = (
    "The C library was not built, or does not run here. portable() gives the same bits without it, by the slow "
    "reference in NumPy. To have it: reinstall samerun where there is gcc or clang "
    "(pip install --force-reinstall --no-binary samerun samerun)."
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
    console.print(f"  computed by  {_what(seen)}")
    console.print(f"  levels here  {', '.join(seen['levels'])}")
    _show_rows(wrong, console)
    for device in seen["cuda"]:
        found = f"{device['rows'] - len(device['different'])} of {device['rows']} conformance vectors"
        console.print(f"  {device['device']:<11}  {device['trouble'] or found}  ({device['name']})")
        _show_rows(device["different"], console)
    anywhere = wrong or any(device["different"] for device in seen["cuda"])
    for advice in ([WHAT_TO_DO] if anywhere else []) + ([] if seen["library"] else [HOW_TO_BUILD]):
        console.print()
        console.print(advice)


def _show_rows(wrong: list[dict[str, Any]], console: Console) -> None:
    for row in wrong[:MOST]:
        console.print(f"  x {row['operator']} {row['type']} {row['n']}: {row['got'][:16]}, not {row['wanted'][:16]}")
    if len(wrong) > MOST:
        console.print(f"  ... and {len(wrong) - MOST} more (--json FILE has them all)")


def _what(seen: dict[str, Any]) -> str:
    if seen["level"] == "reference":
        return "the reference (no C library)" if not seen["library"] else "the reference, as was asked for"
    threads = "1 thread" if seen["threads"] == 1 else f"{seen['threads']} threads"
    return f"the C library, {seen['level']}, {threads}"
