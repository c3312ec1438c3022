"""The traces of one run: one a process, found by role."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace, TraceError


@dataclass(frozen=True)
class Event:
    """One event with its numbers resolved."""

    index: int
    kind: int
    name: str
    phase: str
    flags: int
    thread: int
    file: str
    line: int
    module: str
    aux: int
    text: str
    """The string behind aux, for host events."""
    inputs: int
    outputs: bytes

    @property
    def direct(self) -> bool:
        return bool(self.flags & f.DIRECT)

    @property
    def unseeded(self) -> bool:
        return bool(self.flags & f.UNSEEDED)


class RunTraces:
    """All traces in one folder.

    Raises TraceError for a damaged trace. Traces of processes that were killed are read as far as they
    go.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.traces: dict[str, Trace] = {}
        self.failures: list[str] = []
        for path in sorted(folder.glob("*.trace")):
            if path.is_file() and path.stat().st_size < f.HEADER_BYTES:
                self.failures.append(f"{path.name} has no header: the disk may be full")
                continue
            trace = Trace(path)
            self.traces[trace.role] = trace
            if trace.failure:
                self.failures.append(f"{trace.role}: {trace.failure}")

    @property
    def main(self) -> Trace | None:
        return self.traces.get("main") or next(iter(self.traces.values()), None)

    def events(self) -> int:
        return sum(trace.count for trace in self.traces.values())

    def steps(self) -> int:
        """Optimizer steps of the process that made most."""
        return max((count_of(trace, f.STEP) for trace in self.traces.values()), default=0)

    def operators(self) -> int:
        return sum(count_of(trace, f.OPERATOR) for trace in self.traces.values())


def count_of(trace: Trace, kind: int) -> int:
    return sum(int((chunk["kind"] == kind).sum()) for chunk in trace.chunks())


def resolve(trace: Trace, index: int, raw: Any) -> Event:
    """One record as an `Event`."""
    file, line, module = trace.place(int(raw["place"]))
    kind, flags = int(raw["kind"]), int(raw["flags"])
    phase = flags & f.PHASE_MASK
    return Event(
        index=index,
        kind=kind,
        name=trace.string(int(raw["name"])),
        phase=f.PHASES[phase] if phase < len(f.PHASES) else "host",
        flags=flags,
        thread=int(raw["thread"]),
        file=file,
        line=line,
        module=module,
        aux=int(raw["aux"]),
        text="" if kind == f.OPERATOR else trace.string(int(raw["aux"])),
        inputs=int(raw["inputs"]),
        outputs=int(raw["out0"]).to_bytes(8, "little") + int(raw["out1"]).to_bytes(8, "little"),
    )


def events_of(trace: Trace, kinds: tuple[int, ...], before: int | None = None, since: int = 0) -> list[Event]:
    """Resolved events of some kinds, in order, from an index up to another."""
    found: list[Event] = []
    at = 0
    for chunk in trace.chunks():
        if before is not None and at >= before:
            break
        first = max(0, since - at)
        where = first + np.flatnonzero(np.isin(chunk["kind"][first:], kinds))
        for i in where:
            if before is not None and at + int(i) >= before:
                break
            found.append(resolve(trace, at + int(i), chunk[i]))
        at += len(chunk)
    return found


__all__ = ["Event", "RunTraces", "TraceError", "count_of", "events_of", "resolve"]
