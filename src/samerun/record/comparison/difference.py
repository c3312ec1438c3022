"""Where two runs part."""

from __future__ import annotations

from dataclasses import dataclass

from samerun.record.trace import format as f
from samerun.record.trace.run import Event


@dataclass(frozen=True)
class Difference:
    """The first place where two runs part, in one thread of one process.

    `what`: "outputs" (same operator, same inputs), "inputs", "scalars", "operator" (another one, or one
    run has more), "draw" (a torch generator in another state), "leaf" (a step's parameters, ...),
    "final", "mark" (a point the program named), "rows" (what is computed of samples), "process" (only one run has it).
    """

    what: str
    role: str
    thread: str
    a: Event | None
    b: Event | None
    step: int
    ordinal: int
    """Number of the operator among those of its thread in run A, from 1; 0 where it is no operator."""
    extra_in: str = ""
    """With "operator": the run ("a" or "b") that has events the other lacks."""
    extra: tuple[Event, ...] = ()
    ordinal_b: int = 0

    @property
    def event(self) -> Event | None:
        return self.a or self.b


def kind_of_difference(one: Event, other: Event) -> str:
    """What differs between two events of the same kind, name and place."""
    if one.kind == f.DRAW:
        return "draw"
    if one.kind == f.LEAF:
        return "leaf"
    if one.kind == f.FINAL:
        return "final"
    if one.kind == f.MARK:
        return "mark"
    if one.aux != other.aux:
        return "scalars"
    return "inputs" if one.inputs != other.inputs else "outputs"
