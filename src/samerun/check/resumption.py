"""Compare a run that was taken up again with the same steps of a run in one go."""

from __future__ import annotations

from dataclasses import dataclass

from samerun.record import format as f
from samerun.record.compare import Difference
from samerun.record.reader import Trace
from samerun.record.run import Event, RunTraces, events_of
from samerun.record.streams import SOFT_LEAVES

RNG_LEAVES = ("rng", "rng.numpy", "rng.python")
"""They count only where the whole run draws behind the interruption: else their states may be any."""


@dataclass(frozen=True)
class Step:
    """One optimizer step: what was held after it, and which random draws came before it."""

    leaves: dict[str, Event]
    draws: tuple[Event, ...]


@dataclass(frozen=True)
class Parting:
    """Where the two go apart. step: of the whole run. Its `whole` and `resumed` are the same step in each.

    lost: generators that stand elsewhere after the first step behind the interruption. lost_own: a draw, in
    the whole run's first step there, from a generator of the program's own that stands elsewhere in the other.
    """

    role: str
    step: int
    whole: Step
    resumed: Step
    first: bool
    """Whether it is the very first step behind the interruption."""
    lost: tuple[str, ...]
    lost_own: Event | None

    def differing(self) -> list[str]:
        """What differs there, values before evidence."""
        return _differing(self.whole, self.resumed)

    def equal(self) -> list[str]:
        return [name for name, event in self.whole.leaves.items() if _same(event, self.resumed.leaves.get(name))]


def steps_of(trace: Trace) -> list[Step]:
    """The optimizer steps of a process, in order."""
    steps: list[Step] = []
    leaves: dict[str, Event] = {}
    draws: list[Event] = []
    for event in events_of(trace, (f.LEAF, f.STEP, f.DRAW)):
        if event.kind == f.LEAF:
            leaves[event.name] = event
        elif event.kind == f.DRAW:
            draws.append(event)
        else:
            steps.append(Step(leaves, tuple(draws)))
            leaves, draws = {}, []
    return steps


def stepping_roles(traces: RunTraces) -> list[str]:
    """The processes that make optimizer steps, the main one first."""
    roles = [role for role, trace in traces.traces.items() if steps_of(trace)]
    return sorted(roles, key=lambda role: (role != "main", role))


def parting(whole: RunTraces, resumed: RunTraces) -> Parting | None:
    """The first step that differs, of the steps that both have; they are counted from the end."""
    for role in stepping_roles(whole):
        if role not in resumed.traces:
            continue
        one, other = steps_of(whole.traces[role]), steps_of(resumed.traces[role])
        shift = len(one) - len(other)
        begin = max(0, -shift)
        for at in range(begin, len(other)):
            whole_step, step = one[shift + at], other[at]
            if set(_differing(whole_step, step)) - SOFT_LEAVES:
                head, tail = one[shift + begin], one[shift + begin :]
                lost = [name for name in _differing(head, other[begin]) if name in RNG_LEAVES and _moves(name, tail)]
                own = _own_generator_lost(head, other[begin])
                return Parting(role, shift + at + 1, whole_step, step, at == begin, tuple(lost), own)
    return None


def first_difference(whole: RunTraces, resumed: RunTraces) -> Difference | None:
    """The first difference of the steps, else of what the models held when the program ended."""
    found = parting(whole, resumed)
    if found is not None:
        name = found.differing()[0]
        one, other = found.whole.leaves[name], found.resumed.leaves.get(name)
        return Difference("leaf", found.role, "main", one, other, found.step, 0)
    for role in stepping_roles(whole):
        ends = [events_of(traces.traces[role], (f.FINAL,)) for traces in (whole, resumed) if role in traces.traces]
        for one, other in zip(*ends, strict=False) if len(ends) == 2 else ():
            if one.name == other.name and one.outputs != other.outputs:
                return Difference("final", role, "main", one, other, 0, 0)
    return None


def _own_generator_lost(whole: Step, resumed: Step) -> Event | None:
    for draw in whole.draws:
        for other in resumed.draws:
            alike = (draw.name, draw.file, draw.line, draw.inputs) == (other.name, other.file, other.line, other.inputs)
            if alike and draw.outputs != other.outputs:
                return draw
    return None


def _differing(whole: Step, resumed: Step) -> list[str]:
    names = [name for name, event in whole.leaves.items() if not _same(event, resumed.leaves.get(name))]
    return sorted(names, key=lambda name: name in SOFT_LEAVES)


def _moves(name: str, steps: list[Step]) -> bool:
    return len({step.leaves[name].outputs for step in steps if name in step.leaves}) > 1


def _same(one: Event, other: Event | None) -> bool:
    return other is not None and one.outputs == other.outputs
