"""A difference between two runs with the evidence around it, and the suspects that evidence points to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from xxhash import xxh3_128_digest

from samerun.check.evidence.resumption import ResumeDifference
from samerun.check.execution.runner import Run
from samerun.record.comparison.compare import (
    Difference,
    HostEventDifference,
    find_differing_host_events,
    select_host_events,
)
from samerun.record.trace import format as f
from samerun.record.trace.run import Event, select_events

NO_FILE = xxh3_128_digest(b"None")
"""The recorded answer of `os.stat` about a file that is not there."""


@dataclass(frozen=True)
class Suspect:
    """A possible cause: where the hazard stands, why it is suspected, and what would confirm it.

    `rank`: smaller is tried first. `pins`: sources to hold still; when the difference then goes (or
    comes later), the suspect is the cause. `certain`: confirmed by an experiment.
    """

    kind: str
    file: str
    line: int
    evidence: tuple[str, ...]
    rank: float
    pins: tuple[str, ...] = ()
    certain: bool = False
    without: tuple[str, ...] = ()
    """With the pin `folder`: files that the copied working directory lacks."""
    parts: tuple[str, ...] = ()
    """Of a resumed run: what is put back after the checkpoint was loaded; see record.watching.training_states."""
    tick: float = 0.0
    """With the pin `clock`: seconds from one reading at this line to the next; 0 where that is not known."""
    tick_everywhere: float = 0.0
    """The same for all lines."""
    inside_operator: bool = False
    """Of uninitialised memory: the operator's own, which is malloc's and cannot be varied for one line alone."""
    replay: tuple[str, int, str] | bool = False
    """Of a resumed run: the data it is given from the run in one go. True: a DataLoader's batches."""


@dataclass(frozen=True)
class Situation:
    """A difference between a control run and another run, under one variation."""

    variation: str
    a: Run
    b: Run
    difference: Difference
    interrupted: Run | None = None
    """With the variation `resume`: the run that `b` goes on from."""
    resume_difference: ResumeDifference | None = None
    """With the variation `resume`: the steps in which the two part."""

    @property
    def has_same_inputs_but_other_outputs(self) -> bool:
        """Whether an operator gave other outputs for the same inputs, so that the cause lies in how it computes.

        An operator without tensor inputs wrote to a tensor of another shape, and the environment may be why.
        """
        event = self.difference.a
        undefined = f.NO_INPUTS | f.UNINITIALISED | f.INEXACT  # not all inputs are compared
        if self.difference.what != "outputs" or event is None or event.flags & undefined:
            return False
        return event.kind == f.OPERATOR

    def find_save_or_load_line_or_empty(self) -> tuple[str, int]:
        """Where the checkpoint was last saved, else where it is loaded; ("", 0) if torch does neither."""
        role = self.difference.role
        stopped = self.interrupted.traces.traces.get(role) if self.interrupted is not None else None
        resumed = self.b.traces.traces.get(role)
        saves = select_events(stopped, (f.SAVE,)) if stopped is not None else []
        loads = select_events(resumed, (f.LOAD,)) if resumed is not None else []
        return next(((e.file, e.line) for e in (*saves[-1:], *loads[:1]) if e.line), ("", 0))

    # cached_property writes to the instance's dictionary, which a frozen dataclass allows
    @cached_property
    def clues(self) -> list[HostEventDifference]:
        """Host events that differ, up to the first difference in its process, anywhere in the others."""
        before, before_b = (e.index if e is not None else None for e in (self.difference.a, self.difference.b))
        return find_differing_host_events(self.a.traces, self.b.traces, self.difference.role, before, before_b)

    @cached_property
    def host_events_until_difference(self) -> list[Event]:
        """All host events of the differing process up to the first difference."""
        event = self.difference.a
        return select_host_events(self.a.traces, self.difference.role, event.index if event else None)

    def select_clues(self, *event_kinds: int) -> list[HostEventDifference]:
        return [clue for clue in self.clues if clue.kind in event_kinds]

    def has_explicit_seed_before(self, generator: str, role: str, before_event_index: int) -> bool:
        """Whether a generator was seeded with an explicit value before an event of a process."""
        return any(
            e.kind == f.SEED and e.name == generator and not e.is_seeded_by_system
            for e in select_host_events(self.a.traces, role, before_event_index)
        )

    def find_seeding_by_other_rank(self, generator: str, role: str) -> tuple[str, Event] | None:
        """The first other rank that seeds a generator before it draws, on a line where `role` never seeds it.

        Such a seed stands behind a condition on the rank, and that line is what to mend.
        """
        ranks = self.a.traces.list_rank_roles()
        if role not in ranks:
            return None
        own = {(e.file, e.line) for e in self._select_seeds_and_draws(generator, role) if e.kind == f.SEED}
        for other in ranks:
            first = next(iter(self._select_seeds_and_draws(generator, other)), None)
            seeds = first is not None and first.kind == f.SEED and not first.is_seeded_by_system
            if first is not None and seeds and first.line and first.direct and (first.file, first.line) not in own:
                return other, first
        return None

    def _select_seeds_and_draws(self, generator: str, role: str) -> list[Event]:
        events = select_host_events(self.a.traces, role)
        return [e for e in events if e.name == generator and e.kind in (f.SEED, f.DRAW)]


def relative_event_distance(
    situation: Situation, clue: HostEventDifference, last_event_index: int | None = None
) -> float:
    """0 for a clue right before the difference, towards 1 for one far before it, 0.5 for one in another process.

    last_event_index: of the last event in the differing process that is the clue's again.
    """
    event = situation.difference.a
    if event is None or (last_event_index is None and clue.role != situation.difference.role):
        return 0.5
    index = clue.a.index if last_event_index is None else last_event_index
    return min(0.99, max(0.0, (event.index - index) / (event.index + 1.0)))


def does_only_one_run_have_file(clue: HostEventDifference) -> bool:
    """Whether `os.stat` failed in one of the runs: the file, not its time, is what differs."""
    return clue.b is not None and NO_FILE in (clue.a.outputs, clue.b.outputs)


def find_seed_source_clue(
    situation: Situation, seed_clue: HostEventDifference, event_kinds: tuple[int, ...]
) -> HostEventDifference | None:
    """The differing host event that a seed's value was made of: on its line, or the nearest before it."""
    before = [
        c for c in situation.clues
        if c.kind in event_kinds and c.role == seed_clue.role and c.a.index < seed_clue.a.index and c is not seed_clue
    ]  # fmt: skip
    here = [c for c in before if c.source_location == seed_clue.source_location]
    if here:
        return here[-1]
    direct = [c for c in before if c.a.direct]
    return direct[-1] if direct else None
