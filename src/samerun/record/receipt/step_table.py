"""What the optimizer steps of one process left behind: a row of digests a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from samerun.base.errors import SamerunError
from samerun.record.comparison.streams import SOFT_LEAVES
from samerun.record.receipt import merkle
from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace

Array = np.ndarray[Any, Any]
CELL = 16
VALUES = ("params", "grads", "buffers", "optimizer", "loss")
"""Columns that are what the run computed, in the order in which a step has them."""
EVIDENCE = ("batch", "rng", "rng.numpy", "rng.python")
"""Columns that may differ as long as no value does: where a generator stands matters when it is drawn from."""
assert set(EVIDENCE) == SOFT_LEAVES


@dataclass
class Table:
    """`count` rows of `len(columns)` digests of 16 bytes, and the tree over them."""

    columns: tuple[str, ...]
    count: int
    rows: Any
    """Bytes, or what can be sliced like them (a mapped file)."""
    levels: list[bytes] = field(default_factory=list)

    @property
    def row_bytes(self) -> int:
        return CELL * len(self.columns)

    @property
    def root(self) -> str:
        return merkle.root_of(self.levels, self.count, self.row_bytes)

    def row(self, number: int) -> dict[str, bytes]:
        """The digests of one step, counted from 0."""
        raw = bytes(self.rows[number * self.row_bytes : (number + 1) * self.row_bytes])
        return {name: raw[i * CELL : (i + 1) * CELL] for i, name in enumerate(self.columns)}


def make_table(columns: tuple[str, ...], rows: bytes) -> Table:
    """A table with its tree. `rows`: the digests row by row."""
    size = CELL * len(columns) or 1
    return Table(columns, len(rows) // size, rows, merkle.levels_of(rows, size))


def tables_of(trace: Trace, first: int = 0, last: int | None = None) -> tuple[Table, Table]:
    """(values, evidence) of the steps whose events stand in `trace` from event `first` to before `last`."""
    ends, leaves = _gathered(trace, first, last)
    rows = _rows(ends)
    count = sum(len(part) for part in rows.values())
    return _table(VALUES, leaves, rows, count), _table(EVIDENCE, leaves, rows, count)


Leaves = dict[str, list[tuple[int, Array, Array]]]


def _gathered(trace: Trace, first: int, last: int | None) -> tuple[dict[int, list[Array]], Leaves]:
    """Where each thread's steps end, and each leaf's digests with the number of the step in its thread."""
    at, done = 0, {}  # type: int, dict[int, int]
    ends_of: dict[int, list[Array]] = {}
    leaves: Leaves = {}
    for chunk in trace.chunks():
        begin, end = max(first - at, 0), len(chunk) if last is None else min(max(last - at, 0), len(chunk))
        part = chunk[begin:end]
        where = np.flatnonzero((part["kind"] == f.LEAF) | (part["kind"] == f.STEP))
        part, positions = part[where], where + at + begin
        at += len(chunk)
        for thread in np.unique(part["thread"]).tolist():
            mine = part["thread"] == thread
            own = part[mine]
            ends = own["kind"] == f.STEP
            number = done.get(thread, 0) + np.cumsum(ends) - ends
            done[thread] = done.get(thread, 0) + int(ends.sum())
            ends_of.setdefault(thread, []).append(positions[mine][ends])
            for name in np.unique(own["name"][~ends]).tolist():
                of_name = ~ends & (own["name"] == name)
                cells = np.stack([own["out0"][of_name], own["out1"][of_name]], axis=1)
                leaves.setdefault(trace.string(name), []).append((thread, number[of_name], cells))
    return ends_of, leaves


def _rows(ends_of: dict[int, list[Array]]) -> dict[int, Array]:
    """Thread -> the row of each of its steps: rows stand in the order in which steps ended."""
    positions = {thread: np.concatenate(parts) for thread, parts in ends_of.items()}
    if not positions:
        return {}
    everything = np.sort(np.concatenate(list(positions.values())))
    return {thread: np.searchsorted(everything, part) for thread, part in positions.items()}


def _table(names: tuple[str, ...], leaves: Leaves, rows_of: dict[int, Array], count: int) -> Table:
    columns = tuple(name for name in names if name in leaves)
    rows = np.zeros((count, len(columns), 2), dtype="<u8")
    for column, name in enumerate(columns):
        for thread, numbers, cells in leaves[name]:
            own = rows_of.get(thread, np.empty(0, np.int64))
            known = numbers < len(own)  # a step that was cut off has leaves and no end
            rows[own[numbers[known]], column] = cells[known]
    return make_table(columns, rows.tobytes())


def first_unequal(a: Table, b: Table) -> tuple[int, tuple[str, ...]] | None:
    """(row from 0, columns that differ there) of the first step that differs; None: as far as both go, none does.

    Columns that only one table has are not compared. Raises SamerunError where a tree is not that of its rows.
    """
    shared = tuple(name for name in a.columns if name in b.columns)
    if not shared or not min(a.count, b.count):
        return None
    if a.columns == b.columns:
        if a.count == b.count and a.root == b.root:
            return None
        node = merkle.first_unequal(a.levels, b.levels)
        if node is None:
            return None
        found = _search(a, b, shared, node * merkle.FAN, node * merkle.FAN + merkle.FAN)
        if found is None and a.count == b.count:
            raise SamerunError("The steps are not those of their tree.", hint="A .steps file was changed.")
        return found
    return _search(a, b, shared, 0, min(a.count, b.count))


def _search(a: Table, b: Table, shared: tuple[str, ...], begin: int, end: int) -> tuple[int, tuple[str, ...]] | None:
    """Look at the rows themselves, a part at a time."""
    end = min(end, a.count, b.count)
    for at in range(begin, end, 1 << 16):
        size = min(end - at, 1 << 16)
        wrong = np.stack([(_column(a, n, at, size) != _column(b, n, at, size)).any(axis=1) for n in shared], axis=1)
        hits = np.flatnonzero(wrong.any(axis=1))
        if len(hits):
            row = int(hits[0])
            return at + row, tuple(name for name, bad in zip(shared, wrong[row].tolist(), strict=True) if bad)
    return None


def _column(table: Table, name: str, at: int, size: int) -> Array:
    raw = table.rows[at * table.row_bytes : (at + size) * table.row_bytes]
    cells: Array = np.frombuffer(raw, dtype="<u8").reshape(size, len(table.columns), 2)
    return cells[:, table.columns.index(name)]
