"""The record of one process in a receipt, and whether the ranks of a distributed run agree."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from samerun.base.user_code import relative_to_working_folder
from samerun.record.receipt.redact import keyed_digest
from samerun.record.receipt.step_table import StepTable, build_table, build_tables, find_first_differing_step
from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace
from samerun.record.trace.run import Event, select_events

MAX_ENTRIES = 1000
"""Limit on the entries of each list in a receipt."""
RECORDED_KINDS = (f.SEED, f.CREATE, f.FILE, f.LOAD, f.SAVE, f.ENVIRONMENT, f.FINAL, f.MARK, f.OUTPUT)


@dataclass(frozen=True)
class ProcessSection:
    """What one process did. `record`: plain values, as they go into the receipt.

    The step tables are separate because they can be large. `complete`: the trace has its end mark. `failure`: why
    recording stopped, or "".
    """

    role: str
    pid: int
    complete: bool
    failure: str
    record: dict[str, Any]
    values: StepTable
    evidence: StepTable

    @property
    def has_results(self) -> bool:
        return bool(self.values.count or any(self.record[key] for key in ("final", "marks", "saved", "outputs")))

    @property
    def is_principal(self) -> bool:
        """Whether it is the program itself, or a rank of it; not a worker or a child."""
        return self.role == "main" or (self.role.startswith("rank") and "/" not in self.role)


def build_section(trace: Trace, first: int = 0, last: int | None = None) -> ProcessSection:
    """The section of a process, from event `first` up to (not including) event `last`."""
    events = [event for event in select_events(trace, RECORDED_KINDS, last) if event.index >= first]
    before = len(select_events(trace, (f.STEP,), first)) if first else 0
    by_kind = {kind: [event for event in events if event.kind == kind] for kind in RECORDED_KINDS}
    record: dict[str, Any] = {
        "seeds": _limit_entries(_seed_entries([*by_kind[f.SEED], *by_kind[f.CREATE]])),
        "files": _limit_entries(_file_entries(by_kind[f.FILE])),
        "loaded": _limit_entries({"name": e.text, "digest": _hex_digest(e)} for e in by_kind[f.LOAD]),
        "environment": {e.name: keyed_digest(e.outputs) for e in by_kind[f.ENVIRONMENT][:MAX_ENTRIES]},
        "saved": _limit_entries({"name": e.text, "digest": _hex_digest(e)} for e in by_kind[f.SAVE]),
        "outputs": _limit_entries(_file_entries(by_kind[f.OUTPUT][::-1])),
        "final": _limit_entries(
            {"model": e.name, "tensors": e.inputs, "digest": _hex_digest(e)} for e in by_kind[f.FINAL]
        ),
        "marks": _limit_entries(
            {"name": e.name, "step": e.inputs - before, "digest": _hex_digest(e)} for e in by_kind[f.MARK]
        ),
    }
    values, evidence = build_tables(trace, first, last)
    return ProcessSection(trace.role, trace.pid, trace.complete, trace.failure, record, values, evidence)


def _limit_entries(items: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list(items)[:MAX_ENTRIES]


def _hex_digest(event: Event) -> str:
    return event.outputs.hex()


def _seed_entries(events: list[Event]) -> Iterator[dict[str, Any]]:
    """One entry for each line and seed; torch's seeds as numbers, those of other generators by their digest."""
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event in events:
        plain = event.kind == f.SEED and event.name.startswith("torch")
        number = _to_signed_64(event.inputs) if plain else None
        key = (event.kind, event.name, event.file, event.line, event.inputs, event.unseeded)
        entry = seen.setdefault(key, {
            "generator": event.name,
            "made": event.kind == f.CREATE,
            "seed": number,
            "digest": None if plain or event.unseeded else f"{event.inputs:016x}",
            "unseeded": event.unseeded,
            "at": f"{shown_path(event.file)}:{event.line}" if event.file else None,
            "times": 0,
        })  # fmt: skip
        entry["times"] += 1
    return iter(seen.values())


def _to_signed_64(value: int) -> int:
    return struct.unpack("<q", struct.pack("<Q", value))[0] if value >> 63 else value


def _file_entries(events: list[Event]) -> Iterator[dict[str, Any]]:
    """One entry for each file, from its first event."""
    seen: dict[str, dict[str, Any]] = {}
    for event in events:
        path = shown_path(event.text)
        seen.setdefault(path, {"path": path, "bytes": event.inputs, "digest": _hex_digest(event)})
    return iter(sorted(seen.values(), key=lambda one: str(one["path"])))


def shown_path(path: str) -> str:
    """A path for people: relative to the working directory if it lies inside, without lone surrogates."""
    inside = relative_to_working_folder(path)
    shown = path if inside.startswith(os.pardir) else inside
    return shown.encode("utf-8", "backslashreplace").decode()


def compare_ranks(sections: list[ProcessSection]) -> dict[str, Any] | None:
    """Compare the parameters of all ranks after every step; None for a program of one process.

    `drift`: None if all ranks agree after every step. Otherwise the first step (from 1) after which they do not, and
    the groups of ranks that agree there. `from_the_start`: they never agreed, so each rank holds a shard of the
    model, or they started from different models.
    """
    ranks = [one for one in sections if one.is_principal and one.role != "main"]
    if len(ranks) < 2:
        return None
    tables = {
        one.role: _params_column_table(one.values) for one in sorted(ranks, key=lambda one: _rank_number(one.role))
    }
    reference = next(iter(tables.values()))
    found = [find_first_differing_step(reference, table) for table in tables.values()]
    steps = [at[0] for at in found if at is not None]
    record: dict[str, Any] = {"count": len(ranks), "steps": {role: table.count for role, table in tables.items()}}
    if not steps:
        return {**record, "drift": None}
    first = min(steps)
    groups: dict[bytes, list[str]] = {}
    for role, table in tables.items():
        if table.count > first:
            groups.setdefault(table.row(first)["params"], []).append(role)
    return {**record, "drift": {"step": first + 1, "groups": list(groups.values()), "from_the_start": first == 0}}


def _params_column_table(table: StepTable) -> StepTable:
    if "params" not in table.columns:
        return build_table((), b"")
    at, size = table.columns.index("params") * 16, table.row_bytes
    rows = b"".join(bytes(table.rows[i * size + at : i * size + at + 16]) for i in range(table.count))
    return build_table(("params",), rows)


def _rank_number(role: str) -> int:
    digits = "".join(c for c in role if c.isdigit())
    return int(digits) if digits else 0
