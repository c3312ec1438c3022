"""The program took another path, and nothing that was watched says why."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect


def find(situation: Situation) -> list[Suspect]:
    difference = situation.difference
    if difference.what not in ("operator", "process"):
        return []
    event = difference.a or difference.b
    if event is None:
        return [Suspect("control-flow", "", 0, (f"only one run has the process {difference.role}",), 8.0)]
    one = f"{difference.a.name} at line {difference.a.line}" if difference.a else "the end"
    other = f"{difference.b.name} at line {difference.b.line}" if difference.b else "the end"
    why = f"one run goes on with {one}, the other with {other}"
    return [Suspect("control-flow", event.file, event.line, (why,), 8.0)]


CAUSE = Cause(
    "control-flow",
    find,
    "look at the condition before this line: it depends on something that differs between the runs",
    "An if, a loop or an exception went another way. What it depends on was not among the things watched.",
)
