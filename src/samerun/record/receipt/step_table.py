"""The digests of every optimizer step of a process: one row for each step, their Merkle tree, and the file of both.

Short tables are part of the receipt. Those of long runs are in a .steps file beside it: eight bytes of magic; then, in
the order of the processes' names, for `evidence` and `values`: the rows, and the levels of their Merkle tree from the
lowest up. The layout follows from the columns and counts in the receipt; the root digests there prove that the file
belongs to it.

Merkle trees over rows of equal size compare two tables, and find the first difference, without reading all rows. A leaf
is BLAKE2b-256 of `FAN_OUT` rows, any other node of `FAN_OUT` nodes of the level below. The root digest also covers the
number and the size of the rows, so tables of different shapes have different roots.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from samerun.base.errors import SamerunError
from samerun.base.files import open_regular_file
from samerun.record.comparison.streams import SOFT_LEAVES
from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace

FAN_OUT = 1024
NODE_BYTES = 32


def build_merkle_levels(rows: memoryview | bytes, row_bytes: int) -> list[bytes]:
    """The levels from the lowest up; the last has one node, or none if there are no rows."""
    levels = [_digest_blocks(rows, row_bytes * FAN_OUT)]
    while len(levels[-1]) > NODE_BYTES:
        levels.append(_digest_blocks(levels[-1], NODE_BYTES * FAN_OUT))
    return levels


def merkle_root_digest(levels: list[bytes], row_count: int, row_bytes: int) -> str:
    """64 hex digits."""
    return blake2b(f"{row_count} {row_bytes} ".encode() + levels[-1], digest_size=32).hexdigest()


def merkle_level_byte_sizes(row_count: int) -> list[int]:
    """Size in bytes of each level of a table with `row_count` rows."""
    sizes = [-(-row_count // FAN_OUT) * NODE_BYTES]
    while sizes[-1] > NODE_BYTES:
        sizes.append(-(-sizes[-1] // (NODE_BYTES * FAN_OUT)) * NODE_BYTES)
    return sizes


def are_merkle_levels_consistent(levels: list[bytes]) -> bool:
    """Whether each level holds the digests of the level below."""
    return all(_digest_blocks(low, NODE_BYTES * FAN_OUT) == high for low, high in pairwise(levels))


def find_first_differing_leaf(levels_a: list[bytes], levels_b: list[bytes]) -> int | None:
    """Number of the first leaf that differs, found from the top down; None if there is none.

    Trees of different heights cannot be walked together: their leaves are compared directly.
    """
    if len(levels_a) != len(levels_b):
        return _find_first_differing_node(levels_a[0], levels_b[0], 0, max(len(levels_a[0]), len(levels_b[0])))
    begin, end = 0, max(len(levels_a[-1]), len(levels_b[-1]))
    for high, low in zip(reversed(levels_a), reversed(levels_b), strict=True):
        at = _find_first_differing_node(high, low, begin, end)
        if at is None:
            return None
        begin, end = at * FAN_OUT * NODE_BYTES, (at + 1) * FAN_OUT * NODE_BYTES
    return at


def _find_first_differing_node(a: bytes, b: bytes, begin_byte: int, end_byte: int) -> int | None:
    for at in range(begin_byte, min(end_byte, max(len(a), len(b))), NODE_BYTES):
        if a[at : at + NODE_BYTES] != b[at : at + NODE_BYTES]:
            return at // NODE_BYTES
    return None


def _digest_blocks(data: memoryview | bytes, block_bytes: int) -> bytes:
    return b"".join(blake2b(part, digest_size=NODE_BYTES).digest() for part in _split_into_slices(data, block_bytes))


def _split_into_slices(data: memoryview | bytes, slice_bytes: int) -> Iterator[memoryview]:
    view = memoryview(data)
    for at in range(0, len(view), slice_bytes):
        yield view[at : at + slice_bytes]


Array = np.ndarray[Any, Any]
DIGEST_BYTES = 16
VALUES = ("params", "grads", "buffers", "optimizer", "loss")
"""Columns with computed values, in the order of a step."""
EVIDENCE = ("batch", "rng", "rng.numpy", "rng.python")
"""Columns that may differ as long as no value does: a generator's state matters once something is drawn from it."""
assert set(EVIDENCE) == SOFT_LEAVES


@dataclass
class StepTable:
    """`count` rows of `len(columns)` digests of 16 bytes, and the levels of the Merkle tree over them."""

    columns: tuple[str, ...]
    count: int
    rows: Any
    """Bytes, or a memory-mapped file."""
    levels: list[bytes] = field(default_factory=list)

    @property
    def row_bytes(self) -> int:
        return DIGEST_BYTES * len(self.columns)

    @property
    def root(self) -> str:
        return merkle_root_digest(self.levels, self.count, self.row_bytes)

    def digests_of_row(self, row_index: int) -> dict[str, bytes]:
        """The digests of one step, counted from 0."""
        raw = bytes(self.rows[row_index * self.row_bytes : (row_index + 1) * self.row_bytes])
        return {name: raw[i * DIGEST_BYTES : (i + 1) * DIGEST_BYTES] for i, name in enumerate(self.columns)}


def build_step_table(columns: tuple[str, ...], rows: bytes) -> StepTable:
    """A table with its Merkle tree. `rows`: the digests, row by row."""
    size = DIGEST_BYTES * len(columns) or 1
    return StepTable(columns, len(rows) // size, rows, build_merkle_levels(rows, size))


class StepTables(NamedTuple):
    """What each step computed, and the states that may differ as long as no value does."""

    values: StepTable
    evidence: StepTable


def build_step_tables(trace: Trace, first_event: int = 0, end_event: int | None = None) -> StepTables:
    """The tables of the steps in a trace, from event `first_event` up to (not including) event `end_event`."""
    ends, leaves = _collect_step_ends_and_leaves(trace, first_event, end_event)
    rows = _assign_rows_to_steps(ends)
    count = sum(len(part) for part in rows.values())
    values, evidence = (_arrange_leaves_in_table(names, leaves, rows, count) for names in (VALUES, EVIDENCE))
    return StepTables(values, evidence)


Leaves = dict[str, list[tuple[int, Array, Array]]]


def _collect_step_ends_and_leaves(
    trace: Trace, first_event: int, end_event: int | None
) -> tuple[dict[int, list[Array]], Leaves]:
    """For each thread the indices of its STEP events; for each leaf (thread, step numbers in the thread, digests)."""
    at, done = 0, {}  # type: int, dict[int, int]
    ends_of: dict[int, list[Array]] = {}
    leaves: Leaves = {}
    for chunk in trace.iter_event_chunks():
        begin, end = (
            max(first_event - at, 0),
            len(chunk) if end_event is None else min(max(end_event - at, 0), len(chunk)),
        )
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
                leaves.setdefault(trace.string_or_empty(name), []).append((thread, number[of_name], cells))
    return ends_of, leaves


def _assign_rows_to_steps(step_ends_by_thread: dict[int, list[Array]]) -> dict[int, Array]:
    """Thread -> the row of each of its steps. Rows are in the order in which the steps ended."""
    positions = {thread: np.concatenate(parts) for thread, parts in step_ends_by_thread.items()}
    if not positions:
        return {}
    all_ends = np.sort(np.concatenate(list(positions.values())))
    return {thread: np.searchsorted(all_ends, part) for thread, part in positions.items()}


def _arrange_leaves_in_table(
    names: tuple[str, ...], leaves: Leaves, rows_by_thread: dict[int, Array], row_count: int
) -> StepTable:
    columns = tuple(name for name in names if name in leaves)
    rows = np.zeros((row_count, len(columns), 2), dtype="<u8")
    for column, name in enumerate(columns):
        for thread, numbers, cells in leaves[name]:
            own = rows_by_thread.get(thread, np.empty(0, np.int64))
            known = numbers < len(own)  # an interrupted step has leaves but no STEP event
            rows[own[numbers[known]], column] = cells[known]
    return build_step_table(columns, rows.tobytes())


class DifferingStep(NamedTuple):
    """A step after which two tables differ: its row, from 0, and the columns that differ."""

    row: int
    columns: tuple[str, ...]


def find_first_differing_step(a: StepTable, b: StepTable) -> DifferingStep | None:
    """The first step that differs; None if all common rows are equal.

    Columns that only one table has are not compared. Raises SamerunError if a tree does not match its rows.
    """
    shared = tuple(name for name in a.columns if name in b.columns)
    if not shared or not min(a.count, b.count):
        return None
    if a.columns == b.columns:
        if a.count == b.count and a.root == b.root:
            return None
        node = find_first_differing_leaf(a.levels, b.levels)
        if node is None:
            return None
        found = _find_first_differing_row(a, b, shared, node * FAN_OUT, node * FAN_OUT + FAN_OUT)
        if found is None and a.count == b.count:
            raise SamerunError("The steps are not those of their tree.", hint="A .steps file was changed.")
        return found
    return _find_first_differing_row(a, b, shared, 0, min(a.count, b.count))


def _find_first_differing_row(
    a: StepTable, b: StepTable, shared_columns: tuple[str, ...], begin_row: int, end_row: int
) -> DifferingStep | None:
    """Compare the rows from `begin_row` to `end_row` themselves, in chunks."""
    end_row = min(end_row, a.count, b.count)
    for at in range(begin_row, end_row, 1 << 16):
        size = min(end_row - at, 1 << 16)
        wrong = np.stack(
            [(_read_column(a, n, at, size) != _read_column(b, n, at, size)).any(axis=1) for n in shared_columns], axis=1
        )
        hits = np.flatnonzero(wrong.any(axis=1))
        if len(hits):
            row = int(hits[0])
            names = tuple(name for name, bad in zip(shared_columns, wrong[row].tolist(), strict=True) if bad)
            return DifferingStep(at + row, names)
    return None


def _read_column(table: StepTable, column: str, first_row: int, row_count: int) -> Array:
    raw = table.rows[first_row * table.row_bytes : (first_row + row_count) * table.row_bytes]
    cells: Array = np.frombuffer(raw, dtype="<u8").reshape(row_count, len(table.columns), 2)
    return cells[:, table.columns.index(column)]


MAGIC = b"SRSTEPS\x01"
MAX_INLINE_ROWS = 2000
"""Up to this many rows in all processes together are stored in the receipt itself."""


def steps_file_path(receipt_path: Path, digest: str) -> Path:
    """The .steps file of a receipt. Its name holds the digest: a new receipt never touches the steps of the old one."""
    return receipt_path.with_name(f"{receipt_path.name}.{digest[:16]}.steps")


def encode_steps_file(tables: Iterator[StepTable]) -> bytes:
    """The content of a .steps file."""
    parts = [MAGIC]
    for table in tables:
        parts.extend([bytes(table.rows), *table.levels])
    return b"".join(parts)


TablePart = Literal["values", "evidence"]
StepTablesOfReceipt = dict[tuple[str, TablePart], StepTable]
"""By the role of the process."""


class TableRecord(NamedTuple):
    """What a receipt says of one step table."""

    role: str
    part: TablePart
    record: dict[str, Any]


def iter_table_records_in_file_order(processes: dict[str, Any]) -> Iterator[TableRecord]:
    """Yield a receipt's records of its tables in the order of the .steps file."""
    for role in sorted(processes):
        steps = processes[role]["steps"]
        yield TableRecord(role, "evidence", steps["evidence"])
        yield TableRecord(role, "values", steps["values"])


def encode_inline_rows(table: StepTable) -> list[str]:
    """One string for each step: its digests in hex, separated by spaces."""
    return [" ".join(cell.hex() for cell in table.digests_of_row(number).values()) for number in range(table.count)]


def read_step_tables(receipt_path: Path, receipt: dict[str, Any]) -> StepTablesOfReceipt:
    """The step tables of a receipt. Raises SamerunError if they are missing, or do not belong to it."""
    processes = receipt["processes"]
    if receipt["steps_in"] == "receipt":
        tables = {
            (role, part): _decode_inline_table(told) for role, part, told in iter_table_records_in_file_order(processes)
        }
    else:
        tables = _read_steps_file(steps_file_path(receipt_path, receipt["digest"]), processes)
    for role, part, told in iter_table_records_in_file_order(processes):
        table = tables[role, part]
        if table.root != told["root"] or not are_merkle_levels_consistent(table.levels):
            raise SamerunError(
                f"{receipt_path}: the steps of {role} are not those of the receipt.",
                hint="The receipt, or the .steps file beside it, was changed.",
            )
    return tables


def _decode_inline_table(table_record: dict[str, Any]) -> StepTable:
    columns, width = tuple(table_record["columns"]), DIGEST_BYTES * len(table_record["columns"])
    rows = [bytes.fromhex(text) for text in table_record["rows"]]
    if len(rows) != (table_record["count"] if columns else 0) or any(len(row) != width for row in rows):
        raise SamerunError("The receipt has other steps than it says itself.", hint="It was changed by hand.")
    return build_step_table(columns, b"".join(rows))


def _read_steps_file(path: Path, processes: dict[str, Any]) -> StepTablesOfReceipt:
    wanted = len(MAGIC)
    for _, _, told in iter_table_records_in_file_order(processes):
        count = told["count"] if told["columns"] else 0
        wanted += told["count"] * DIGEST_BYTES * len(told["columns"]) + sum(merkle_level_byte_sizes(count))
    try:
        with open_regular_file(path) as file:
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
    for role, part, told in iter_table_records_in_file_order(processes):
        columns, count = tuple(told["columns"]), told["count"]
        size = count * DIGEST_BYTES * len(columns)
        rows, at = data[at : at + size], at + size
        levels = []
        for length in merkle_level_byte_sizes(count if columns else 0):
            levels.append(bytes(data[at : at + length]))
            at += length
        tables[role, part] = StepTable(columns, count, rows, levels)
    return tables


def require_rows_match_trees(tables: StepTablesOfReceipt) -> None:
    """Read every row. Raises SamerunError if the rows do not match their Merkle tree."""
    for (role, part), table in tables.items():
        if build_merkle_levels(table.rows, table.row_bytes or 1)[0] != table.levels[0]:
            raise SamerunError(
                f"The rows of {role}, {part}, are not those of the receipt.",
                hint="The .steps file beside it was changed.",
            )
