"""The number of ranks decides."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect
from samerun.record.trace import format as f
from samerun.record.trace.run import select_events


def find(situation: Situation) -> list[Suspect]:
    difference = situation.difference
    trace = situation.a.traces.traces.get(difference.role)
    if situation.variation != "world_size" or trace is None or difference.a is None:
        return []
    before = [e for e in select_events(trace, (f.OPERATOR,), difference.a.index) if e.line]
    file, line = (before[-1].file, before[-1].line) if before else ("", 0)
    why = f"step {difference.step} leaves other values in rank 0's model"
    return [Suspect("world-size", file, line, (why,), 0.0, certain=True)]


CAUSE = Cause(
    "world-size",
    find,
    "make the data of a step depend on the step alone, and sum gradients in a fixed order",
    "With another number of ranks each rank gets other samples, draws other numbers and averages gradients in"
    " another grouping. Unless a program is written for it, its model depends on the world size.",
)
