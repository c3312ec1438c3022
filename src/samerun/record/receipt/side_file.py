"""The steps of a long run, in a file beside the receipt.

Eight bytes of magic; then, in the order of the processes' names, for `evidence` and `values`: the rows, and the
levels of the tree from the lowest up. What stands where follows from the columns and counts in the receipt;
the roots there say whether the file is the one that belongs to it.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError
from samerun.base.regular_file import open_regular
from samerun.record.receipt import merkle
from samerun.record.receipt.step_table import CELL, Table, make_table

MAGIC = b"SRSTEPS\x01"
INLINE_ROWS = 2000
"""With so many steps in all processes together, they stand in the receipt itself."""


def path_of(receipt: Path, digest: str) -> Path:
    """Named after the receipt's content: a new receipt never touches the steps of the one before it."""
    return receipt.with_name(f"{receipt.name}.{digest[:16]}.steps")


def content(tables: Iterator[Table]) -> bytes:
    parts = [MAGIC]
    for table in tables:
        parts.extend([bytes(table.rows), *table.levels])
    return b"".join(parts)


def in_order(processes: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(process, part, what the receipt says of the table)."""
    for role in sorted(processes):
        for part in ("evidence", "values"):
            yield role, part, processes[role]["steps"][part]


def inline_rows(table: Table) -> list[str]:
    """One text a step: its digests, in hex, with spaces between."""
    return [" ".join(cell.hex() for cell in table.row(number).values()) for number in range(table.count)]


def read_tables(path: Path, receipt: dict[str, Any]) -> dict[tuple[str, str], Table]:
    """The tables of a receipt. Raises SamerunError where the steps are not there, or are not those it speaks of."""
    processes = receipt["processes"]
    if receipt["steps_in"] == "receipt":
        tables = {(role, part): _inline(told) for role, part, told in in_order(processes)}
    else:
        tables = _from_file(path_of(path, receipt["digest"]), processes)
    for role, part, told in in_order(processes):
        table = tables[role, part]
        if table.root != told["root"] or not merkle.hangs_together(table.levels):
            raise SamerunError(
                f"{path}: the steps of {role} are not those that the receipt speaks of.",
                hint="The receipt, or the .steps file beside it, was changed.",
            )
    return tables


def _inline(told: dict[str, Any]) -> Table:
    columns, width = tuple(told["columns"]), CELL * len(told["columns"])
    rows = [bytes.fromhex(text) for text in told["rows"]]
    if len(rows) != (told["count"] if columns else 0) or any(len(row) != width for row in rows):
        raise SamerunError("The receipt has other steps than it says itself.", hint="It was changed by hand.")
    return make_table(columns, b"".join(rows))


def _from_file(path: Path, processes: dict[str, Any]) -> dict[tuple[str, str], Table]:
    wanted = len(MAGIC)
    for _, _, told in in_order(processes):
        count = told["count"] if told["columns"] else 0
        wanted += told["count"] * CELL * len(told["columns"]) + sum(merkle.sizes_of(count))
    try:
        with open_regular(path) as file:
            data: Any = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        why = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
        raise SamerunError(
            f"{path} {why}; it holds the steps of the receipt.", hint="Keep it beside the receipt."
        ) from error
    if len(data) != wanted or bytes(data[: len(MAGIC)]) != MAGIC:
        raise SamerunError(
            f"{path} has {len(data)} bytes, {wanted} are due.", hint="It was cut off, or belongs to another receipt."
        )
    at, tables = len(MAGIC), {}
    for role, part, told in in_order(processes):
        columns, count = tuple(told["columns"]), told["count"]
        size = count * CELL * len(columns)
        rows, at = data[at : at + size], at + size
        levels = []
        for length in merkle.sizes_of(count if columns else 0):
            levels.append(bytes(data[at : at + length]))
            at += length
        tables[role, part] = Table(columns, count, rows, levels)
    return tables


def check_rows(tables: dict[tuple[str, str], Table]) -> None:
    """Read every row. Raises SamerunError where the rows are not those of their tree."""
    for (role, part), table in tables.items():
        if merkle.levels_of(table.rows, table.row_bytes or 1)[0] != table.levels[0]:
            raise SamerunError(
                f"The rows of {role}, {part}, are not those that the receipt speaks of.",
                hint="The .steps file beside it was changed.",
            )
