"""What one process did, as a receipt tells it."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from samerun.base.user_code import relative_path
from samerun.record.receipt.redact import key_digest
from samerun.record.receipt.step_table import Table, tables_of
from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace
from samerun.record.trace.run import Event, select_events

MOST = 1000
"""So many entries of each list are told; the receipt says how many there were."""
KINDS = (f.SEED, f.CREATE, f.FILE, f.LOAD, f.SAVE, f.ENVIRONMENT, f.FINAL, f.MARK, f.OUTPUT)


@dataclass(frozen=True)
class Section:
    """`told`: plain values. The tables are kept apart: they can be large."""

    role: str
    pid: int
    whole: bool
    failure: str
    told: dict[str, Any]
    values: Table
    evidence: Table

    @property
    def has_results(self) -> bool:
        return bool(self.values.count or any(self.told[key] for key in ("final", "marks", "saved", "outputs")))

    @property
    def is_principal(self) -> bool:
        """The program itself, or a rank of it; not a worker or a child."""
        return self.role == "main" or (self.role.startswith("rank") and "/" not in self.role)


def section_of(trace: Trace, first: int = 0, last: int | None = None) -> Section:
    """From event `first` to before event `last`."""
    events = [event for event in select_events(trace, KINDS, last) if event.index >= first]
    before = len(select_events(trace, (f.STEP,), first)) if first else 0
    by_kind = {kind: [event for event in events if event.kind == kind] for kind in KINDS}
    told: dict[str, Any] = {
        "seeds": _cut(_seeds([*by_kind[f.SEED], *by_kind[f.CREATE]])),
        "files": _cut(_files(by_kind[f.FILE])),
        "loaded": _cut({"name": e.text, "digest": _hex(e)} for e in by_kind[f.LOAD]),
        "environment": {e.name: key_digest(e.outputs) for e in by_kind[f.ENVIRONMENT][:MOST]},
        "saved": _cut({"name": e.text, "digest": _hex(e)} for e in by_kind[f.SAVE]),
        "outputs": _cut(_files(by_kind[f.OUTPUT][::-1])),
        "final": _cut({"model": e.name, "tensors": e.inputs, "digest": _hex(e)} for e in by_kind[f.FINAL]),
        "marks": _cut({"name": e.name, "step": e.inputs - before, "digest": _hex(e)} for e in by_kind[f.MARK]),
    }
    values, evidence = tables_of(trace, first, last)
    return Section(trace.role, trace.pid, trace.complete, trace.failure, told, values, evidence)


def _cut(items: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list(items)[:MOST]


def _hex(event: Event) -> str:
    return event.outputs.hex()


def _seeds(events: list[Event]) -> Iterator[dict[str, Any]]:
    """Each seeding once for each place and seed; torch's seeds as numbers, the others by a digest."""
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event in events:
        plain = event.kind == f.SEED and event.name.startswith("torch")
        number = _signed(event.inputs) if plain else None
        key = (event.kind, event.name, event.file, event.line, event.inputs, event.unseeded)
        entry = seen.setdefault(key, {
            "generator": event.name,
            "made": event.kind == f.CREATE,
            "seed": number,
            "digest": None if plain or event.unseeded else f"{event.inputs:016x}",
            "unseeded": event.unseeded,
            "at": f"{relative(event.file)}:{event.line}" if event.file else None,
            "times": 0,
        })  # fmt: skip
        entry["times"] += 1
    return iter(seen.values())


def _signed(value: int) -> int:
    return struct.unpack("<q", struct.pack("<Q", value))[0] if value >> 63 else value


def _files(events: list[Event]) -> Iterator[dict[str, Any]]:
    """Each file once: the first of its events counts."""
    seen: dict[str, dict[str, Any]] = {}
    for event in events:
        path = relative(event.text)
        seen.setdefault(path, {"path": path, "bytes": event.inputs, "digest": _hex(event)})
    return iter(sorted(seen.values(), key=lambda one: str(one["path"])))


def relative(path: str) -> str:
    """Relative to the working directory where the path lies in it."""
    inside = relative_path(path)
    shown = path if inside.startswith(os.pardir) else inside
    return shown.encode("utf-8", "backslashreplace").decode()
