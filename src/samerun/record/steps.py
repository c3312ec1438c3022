"""A trace cut at its optimizer steps."""

from __future__ import annotations

from dataclasses import dataclass

from samerun.record import format as f
from samerun.record.reader import Trace
from samerun.record.run import Event, events_of
from samerun.record.streams import SOFT_LEAVES


@dataclass(frozen=True)
class Step:
    """What happened from the step before to the end of this one."""

    role: str
    number: int
    events: tuple[Event, ...]
    """Operators, and draws from torch's generators."""
    leaves: tuple[tuple[str, bytes], ...]
    end: Event


def steps_of(trace: Trace) -> list[Step]:
    """The steps of a process, in order."""
    found: list[Step] = []
    events: list[Event] = []
    leaves: list[tuple[str, bytes]] = []
    for event in events_of(trace, (f.OPERATOR, f.DRAW, f.LEAF, f.STEP)):
        if event.kind == f.STEP:
            found.append(Step(trace.role, len(found) + 1, tuple(events), tuple(leaves), event))
            events, leaves = [], []
        elif event.kind == f.LEAF:
            if event.name not in SOFT_LEAVES:
                leaves.append((event.name, event.outputs))
        elif event.kind == f.OPERATOR or event.name.startswith("torch"):
            events.append(event)
    return found


def final_digests(trace: Trace) -> list[tuple[str, bytes]]:
    """What the models held when the program ended."""
    return sorted((e.name, e.outputs) for e in events_of(trace, (f.FINAL,)))
