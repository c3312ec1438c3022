"""Memory is read that nothing wrote."""

from __future__ import annotations

import ast

from samerun.check.causes.cause import Cause
from samerun.check.situation import Situation, Suspect
from samerun.check.source import Edit, Source, span
from samerun.record import format as f
from samerun.record import pins


def find(situation: Situation) -> list[Suspect]:
    event = situation.difference.a
    if event is None:
        return []
    flagged = event.kind == f.OPERATOR and bool(event.flags & f.UNINITIALISED)
    varied = situation.variation == "memory"
    held = () if varied else (pins.MEMORY,)
    if not flagged and not varied:
        return []
    if situation.difference.what == "outputs" and not flagged:
        why = f"{event.name} at line {event.line} got the same inputs: the operator itself reads what nothing wrote"
        return [Suspect("uninitialised-memory", event.file, event.line, (why,), 0.5, held, varied)]
    fresh = [e for e in situation.host_events if e.kind == f.FRESH and e.line]
    if not fresh:
        return []
    made = fresh[-1]
    evidence = [f"memory made at line {made.line} is read before all of it was written"]
    if made.name != "numpy.empty":
        evidence.append(f"the first to read it is {made.name} at line {event.line}")
    return [Suspect("uninitialised-memory", made.file, made.line, tuple(evidence), 0.5, held, varied)]


WRITTEN = {"empty": "zeros", "empty_like": "zeros_like", "new_empty": "new_zeros"}


def patch(source: Source) -> list[Edit]:
    """`empty` becomes `zeros`."""
    edits = []
    for call in source.calls(*WRITTEN):
        if isinstance(call.func, ast.Attribute):
            (line, column), name = span(call.func)[1], call.func.attr
            edits.append(Edit((line, column - len(name)), (line, column), WRITTEN[name]))
    return edits


CAUSE = Cause(
    "uninitialised-memory",
    find,
    "use torch.zeros (or full, or write every element) instead of torch.empty",
    "torch.empty, new_empty and numpy.empty return whatever the memory held before. Elements that are read"
    " without having been written differ from run to run and from machine to machine.",
    patch,
)
