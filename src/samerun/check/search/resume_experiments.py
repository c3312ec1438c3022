"""What does a checkpoint lack? Suspects, and the experiments that settle it.

Each suspect names what would be lost: it is put back in new runs, and if the difference then goes, it is the cause.
Where no single part will do, all are put back; if that helps, those are left out that are not needed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from samerun.base.errors import SamerunError
from samerun.check.attribution.attribution import Found, found
from samerun.check.causes.table import suspects
from samerun.check.evidence.resumption import Parting
from samerun.check.evidence.situation import Situation, Suspect
from samerun.check.search.resume import Resumed, Runs, interrupted
from samerun.record.config import DataReplay, KeptStates
from samerun.record.trace import format as f
from samerun.record.trace.run import Event, count_events, select_events
from samerun.record.trace.steps import Step
from samerun.record.watching import training_states as states
from samerun.record.watching.interceptors.checkpoints import PUT_BACK

SHOWN = {
    states.TORCH: "torch's generator", states.NUMPY: "NumPy's generator", states.PYTHON: "Python's generator",
    states.OWN: "the program's own generators", states.OPTIMIZER: "the optimizer", states.SCHEDULER: "the scheduler",
    states.SCALER: "the gradient scaler",
}  # fmt: skip
RUNNING = (states.OPTIMIZER, states.SCHEDULER, states.SCALER)
RNG = (states.TORCH, states.NUMPY, states.PYTHON, states.OWN)
ALL_STATES = 1.5
"""Suspects of a higher rank come after the experiment that puts all states back."""


@dataclass(frozen=True)
class Tried:
    """How an experiment went. made: whether it says anything. gone: no difference is left, or none but that the
    resumed run makes so many steps `more`. later: the first difference comes later.
    """

    made: bool
    gone: bool = False
    later: bool = False
    more: int = 0
    taken: tuple[str, ...] = ()
    """The parts that there was something to put back into."""


class Experiments:
    """The runs that are made to find the cause of one difference."""

    def __init__(self, runs: Runs, situation: Situation, resumed: Resumed) -> None:
        assert situation.parting is not None
        self.runs, self.situation, self.resumed = runs, situation, resumed
        self.parting: Parting = situation.parting
        self.tried: dict[tuple[str, ...], Tried] = {}
        self.folders = 0

    def cause(self) -> Found:
        """The cause of the difference, certain if an experiment confirmed it."""
        listed = [s for s in suspects(self.situation) if s.kind.startswith("resume-")]
        stays: list[str] = []
        seen = self.saves_and_loads()
        for suspect in (s for s in listed if seen and s.rank < ALL_STATES and s.parts):
            tried = self.put_back(suspect.parts)
            if tried.gone or (tried.later and set(suspect.parts) <= set(RNG)):
                return found(confirmed(suspect, suspect.parts, tried), None)
            stays += [part for part in suspect.parts if tried.made and part not in stays]
        needed = self.needed() if seen else ()
        if needed:
            return found(self.of_parts(needed, listed), None)
        stays = list(states.PARTS) if seen and self.put_back(states.PARTS).made else stays
        for suspect in (s for s in listed if s.replay):
            for streams in (False, True):
                replayed = self.replayed(suspect, streams)
                if replayed.gone:
                    why = "given the data of the run in one go" + ", and its random generators with them" * streams
                    why += ", the resumed run goes on with the same bits"
                    why += f"; it then makes {replayed.more} steps more" if replayed.more else ""
                    other = (f"with {named(stays)} put back the difference stays",) if stays else ()
                    doubt = self.doubt(listed)
                    evidence = (*suspect.evidence, *other, why, *doubt)
                    return found(replace(suspect, evidence=evidence, certain=not doubt), None)
        # Those that an experiment speaks against come last.
        best = min(listed, key=lambda s: (bool(s.parts) and set(s.parts) <= set(stays), s.rank))
        return found(unconfirmed(best, stays, seen), None)

    def doubt(self, listed: Sequence[Suspect]) -> tuple[str, ...]:
        """Could a generator of the program's own be behind other data? Its state at the save is not what a program
        needs that passes over batches again, so putting that back settles nothing.
        """
        trace = self.resumed.whole.traces.main
        # What a library makes for itself, samerun's own data loader too, is not meant.
        made = [e for e in select_events(trace, (f.CREATE, f.SEED)) if e.direct] if trace is not None else []
        places = {(e.file, e.line) for e in made}
        lines = [s.line for s in listed if states.OWN in s.parts and (s.file, s.line) in places]
        # The draws of Python's are not seen.
        lines += [e.line for e in made if e.kind == f.CREATE and e.name == "python.Random"]
        return (f"or the generator made at line {lines[0]} begins again",) if lines else ()

    def saves_and_loads(self) -> bool:
        """Does the program save and load with torch? Else there is no moment at which something could be put back."""
        both = ((self.resumed.stopped, f.SAVE), (self.resumed.run, f.LOAD))
        return all(any(count_events(trace, kind) for trace in run.traces.traces.values()) for run, kind in both)

    # --- states put back -----------------------------------------------------------------------------
    def put_back(self, parts: Sequence[str]) -> Tried:
        """Interrupt and resume with these parts of the training's state kept and put back."""
        parts = tuple(part for part in states.PARTS if part in parts)
        if parts not in self.tried:
            with self.folder() as folder:
                self.tried[parts] = self._put_back(parts, folder)
        return self.tried[parts]

    def _put_back(self, parts: tuple[str, ...], folder: Path) -> Tried:
        plan = self.resumed.whole.plan
        keeping = plan.with_watch(kept_states=KeptStates(str(folder), ()))
        giving = plan.with_watch(kept_states=KeptStates(str(folder), parts))
        try:
            again = interrupted(
                self.runs, self.resumed.whole, self.resumed.interruption, keeping, giving, f"put-back-{folder.name}"
            )
        except SamerunError:  # it does not run with them: that says nothing
            return Tried(made=False)
        taken = folder / PUT_BACK
        took = set(taken.read_text(encoding="utf-8").split()) if taken.exists() else set()
        if not took & set(parts):
            return Tried(made=False)
        return replace(self.compared(again), taken=tuple(part for part in parts if part in took))

    def needed(self) -> tuple[str, ...]:
        """The parts without which the difference comes back, where all together make it go; else none."""
        together = self.put_back(states.PARTS)
        left = together.taken if together.gone else ()
        for without in (RNG, RUNNING, *((part,) for part in states.PARTS)):
            fewer = tuple(part for part in left if part not in without)
            if fewer and fewer != left and self.put_back(fewer).gone:
                left = fewer
        return left

    def of_parts(self, parts: tuple[str, ...], listed: Sequence[Suspect]) -> Suspect:
        kind = "resume-rng" if set(parts) <= set(RNG) else "resume-position"
        own = [s for s in listed if s.kind == kind and s.parts and set(s.parts) <= set(parts)]
        file, line = self.situation.checkpoint_line()
        evidence = next(s.evidence for s in listed if s.kind == kind or s is listed[-1])
        best = own[0] if own else Suspect(kind, file, line, evidence, 0.0)
        return confirmed(best, parts, Tried(made=True, gone=True))

    # --- data given again ----------------------------------------------------------------------------
    def replayed(self, suspect: Suspect, streams: bool) -> Tried:
        """The data that the run in one go takes in behind the interruption, given to the resumed run."""
        with self.folder() as folder:
            return self._replayed(suspect, streams, folder)

    def _replayed(self, suspect: Suspect, streams: bool, folder: Path) -> Tried:
        whole = self.resumed.whole
        place = None if suspect.replay is True else suspect.replay or None
        keep = DataReplay(str(folder), keep=True, shift=self.parting.shift, source=place)
        label = f"replay-{folder.name}"
        kept = self.runs.run(whole.plan.with_watch(replay=keep), f"whole-{label}", (f"pin:{label}",))
        if kept.failed or (folder / "too-large").exists() or self.parting.head is None:
            return Tried(made=False)
        skip = max(0, passing(self.parting.head[1], place) - passing(self.parting.head[0], place))
        give = replace(keep, keep=False, shift=0, skip=skip, streams=streams)
        try:
            again = interrupted(
                self.runs, whole, self.resumed.interruption, whole.plan, whole.plan.with_watch(replay=give), label
            )
        except SamerunError:
            return Tried(made=False)
        if not (folder / "given").exists():
            return Tried(made=False)
        tried = self.compared(again)
        return replace(tried, gone=tried.gone or bool(tried.more))

    # --- both ----------------------------------------------------------------------------------------
    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A new folder for what is kept: states and data can be large, and are of no use afterwards."""
        self.folders += 1
        folder = self.runs.runner.folder / "kept" / str(self.folders)
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def compared(self, again: Resumed) -> Tried:
        now, before, whole = again.parting(), self.parting, self.resumed.whole
        if now is None:
            return Tried(made=True, gone=True)
        if now.step is None and now.difference.extra_in == "b":
            return Tried(made=True, more=again.run.steps - (whole.steps - now.shift))
        one, other = now.difference.a, before.difference.a
        later = one is not None and other is not None and one.index > other.index
        return Tried(made=True, later=later and now.difference.role == before.difference.role)


def passing(step: Step, place: tuple[str, int, str] | None) -> int:
    """How often data pass by in a step."""

    def is_there(event: Event) -> bool:
        return event.thread == 0 and (place is None or (event.file, event.line, event.name) == place)

    return sum(is_there(event) for event in step.events(f.BATCH if place is None else f.OPERATOR))


def confirmed(suspect: Suspect, parts: Sequence[str], tried: Tried) -> Suspect:
    names = named(parts)
    was = "were" if len(parts) > 1 or names.endswith("s") else "was"
    went = "the difference goes" if tried.gone else "the difference comes only later"
    why = f"with {names} put back as in the interrupted run, {went}: {names} {was} not saved, or not put back"
    return replace(suspect, evidence=(*suspect.evidence, why), certain=True)


def unconfirmed(suspect: Suspect, stays: Sequence[str], seen: bool) -> Suspect:
    if not seen:
        why = "nothing could be put back by way of experiment: the program does not save and load with torch"
        return replace(suspect, evidence=(*suspect.evidence, why))
    if not stays:
        return suspect
    return replace(suspect, evidence=(*suspect.evidence, f"with {named(stays)} put back the difference stays"))


def named(parts: Sequence[str]) -> str:
    if tuple(parts) == states.PARTS:
        return "all random generators, optimizers, schedulers and scalers"
    names = [SHOWN[part] for part in parts]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


__all__ = ["Experiments"]
