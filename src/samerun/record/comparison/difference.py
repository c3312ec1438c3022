"""The first difference between two runs, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from samerun.record.trace import format as f
from samerun.record.trace.run import Event

DifferenceKind = Literal[
    "outputs",  # same operator, same inputs
    "inputs",
    "scalars",
    "operator",  # another operator, or operators that only one run has
    "draw",  # a torch generator in another state
    "leaf",  # parameters, gradients, ... after an optimizer step
    "final",  # a model at the end of the program
    "mark",  # a point that the program named with samerun.mark
    "rows",  # what is computed for single samples
    "process",  # only one run has this process
]


@dataclass(frozen=True)
class Difference:
    """The first event at which two runs diverge, in one thread of one process.

    `a`, `b`: the event in each run, None where that run has none. `step`: number of the optimizer step, from 1.
    """

    what: DifferenceKind
    role: str
    thread: str
    a: Event | None
    b: Event | None
    step: int
    ordinal: int
    """Number of the operator among those of its thread in run A, from 1; 0 if the event is not an operator."""
    extra_in: str = ""
    """With "operator": the run ("a" or "b") that has the extra events, else ""."""
    extra: tuple[Event, ...] = ()
    ordinal_b: int = 0

    @property
    def event(self) -> Event | None:
        """The event of run A, or that of run B where only it has one."""
        return self.a or self.b


def classify_difference(a: Event, b: Event) -> DifferenceKind:
    """What differs between two events of the same kind, name and source location."""
    if a.kind == f.DRAW:
        return "draw"
    if a.kind == f.LEAF:
        return "leaf"
    if a.kind == f.FINAL:
        return "final"
    if a.kind == f.MARK:
        return "mark"
    if a.aux != b.aux:
        return "scalars"
    return "inputs" if a.inputs != b.inputs else "outputs"
