"""Find what a checkpoint lacks, by restoring parts of the training's state in new runs (decision 25).

Each suspect names a part that may be lost. It is restored in new runs; if the difference then disappears, it is the
cause. If no single part suffices, all are restored; if that helps, those that are not needed are left out again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from samerun.base.errors import SamerunError
from samerun.check.attribution.attribution import AttributedCause, make_attributed_cause
from samerun.check.causes.table import list_suspects_likeliest_first
from samerun.check.evidence.resumption import ResumeDifference
from samerun.check.evidence.situation import Situation, Suspect
from samerun.check.search.resume import ResumedProgram, ResumeRunner, interrupt_and_resume
from samerun.record.config import DataReplay, KeptStates
from samerun.record.trace import format as f
from samerun.record.trace.run import Event, Step, count_events, select_events
from samerun.record.watching import training_states as states
from samerun.record.watching.interceptors.checkpoints import PUT_BACK

PART_NAMES = {
    states.TORCH: "torch's generator", states.NUMPY: "NumPy's generator", states.PYTHON: "Python's generator",
    states.OWN: "the program's own generators", states.OPTIMIZER: "the optimizer", states.SCHEDULER: "the scheduler",
    states.SCALER: "the gradient scaler",
}  # fmt: skip
OPTIMIZER_PARTS = (states.OPTIMIZER, states.SCHEDULER, states.SCALER)
RNG_PARTS = (states.TORCH, states.NUMPY, states.PYTHON, states.OWN)
RANK_AFTER_ALL_STATES = 1.5
"""Suspects of a higher rank come after the experiment that restores all states."""


@dataclass(frozen=True)
class ExperimentResult:
    """The outcome of an experiment. `disappeared`: no difference is left, except perhaps that the resumed run makes
    `extra_steps`. `came_later`: the first difference comes later.
    """

    conclusive: bool
    disappeared: bool = False
    came_later: bool = False
    extra_steps: int = 0
    restored: tuple[str, ...] = ()
    """The parts that were in fact restored."""


class ResumeExperiments:
    """The runs that find the cause of one difference after a resume."""

    def __init__(self, search: ResumeRunner, situation: Situation, resumed: ResumedProgram) -> None:
        assert situation.resume_difference is not None
        self.search, self.situation, self.resumed = search, situation, resumed
        self.resume_difference: ResumeDifference = situation.resume_difference
        self.tried: dict[tuple[str, ...], ExperimentResult] = {}
        self.folders = 0

    def run_experiments_and_find_cause(self) -> AttributedCause:
        """The cause of the difference, certain if an experiment confirmed it."""
        suspects = [s for s in list_suspects_likeliest_first(self.situation) if s.kind.startswith("resume-")]
        stays: list[str] = []
        can_restore = self.saves_and_loads_with_torch()
        for suspect in (s for s in suspects if can_restore and s.rank < RANK_AFTER_ALL_STATES and s.parts):
            tried = self.try_restoring_state_parts(suspect.parts)
            if tried.disappeared or (tried.came_later and set(suspect.parts) <= set(RNG_PARTS)):
                return make_attributed_cause(mark_suspect_confirmed_by_restoring(suspect, suspect.parts, tried), None)
            stays += [part for part in suspect.parts if tried.conclusive and part not in stays]
        needed = self.rerun_to_find_needed_state_parts() if can_restore else ()
        if needed:
            return make_attributed_cause(self.make_suspect_of_lost_state_parts(needed, suspects), None)
        stays = list(states.PARTS) if can_restore and self.try_restoring_state_parts(states.PARTS).conclusive else stays
        for suspect in (s for s in suspects if s.replay):
            for streams in (False, True):
                replayed = self.try_replaying_data(suspect, streams)
                if replayed.disappeared:
                    why = "given the data of the run in one go" + ", and its random generators with them" * streams
                    why += ", the resumed run goes on with the same bits"
                    why += f"; it then makes {replayed.extra_steps} steps more" if replayed.extra_steps else ""
                    other = (f"with {describe_state_parts(stays)} put back the difference stays",) if stays else ()
                    doubt = self.list_private_generator_evidence_from_trace(suspects)
                    evidence = (*suspect.evidence, *other, why, *doubt)
                    return make_attributed_cause(replace(suspect, evidence=evidence, certain=not doubt), None)
        # Suspects that an experiment refutes come last.
        best = min(suspects, key=lambda s: (bool(s.parts) and set(s.parts) <= set(stays), s.rank))
        return make_attributed_cause(add_failed_experiments_to_evidence(best, stays, can_restore), None)

    def list_private_generator_evidence_from_trace(self, suspects: Sequence[Suspect]) -> tuple[str, ...]:
        """Evidence that a generator of the program's own may be the reason for other data.

        A program that skips batches again after a resume does not need the state that the generator had at the save, so
        restoring that state is no test.
        """
        trace = self.resumed.uninterrupted.traces.main
        # Only generators that the program makes itself: not those of libraries, samerun's data loader included.
        made = [e for e in select_events(trace, (f.CREATE, f.SEED)) if e.direct] if trace is not None else []
        places = {(e.file, e.line) for e in made}
        lines = [s.line for s in suspects if states.OWN in s.parts and (s.file, s.line) in places]
        # Draws from Python's generators are not recorded.
        lines += [e.line for e in made if e.kind == f.CREATE and e.name == "python.Random"]
        return (f"or the generator made at line {lines[0]} begins again",) if lines else ()

    def saves_and_loads_with_torch(self) -> bool:
        """Whether the program saves and loads with torch; if not, there is no moment at which to restore anything."""
        both = ((self.resumed.stopped, f.SAVE), (self.resumed.run, f.LOAD))
        return all(any(count_events(trace, kind) for trace in run.traces.traces.values()) for run, kind in both)

    # --- states restored -----------------------------------------------------------------------------
    def try_restoring_state_parts(self, state_parts: Sequence[str]) -> ExperimentResult:
        """Interrupt and resume with these parts of the training's state kept and restored."""
        state_parts = tuple(part for part in states.PARTS if part in state_parts)
        if state_parts not in self.tried:
            with self.temporary_scratch_folder() as folder:
                self.tried[state_parts] = self._try_restoring_state_parts_in(state_parts, folder)
        return self.tried[state_parts]

    def _try_restoring_state_parts_in(self, state_parts: tuple[str, ...], folder: Path) -> ExperimentResult:
        plan = self.resumed.uninterrupted.plan
        keeping = plan.with_watch(kept_states=KeptStates(str(folder), ()))
        giving = plan.with_watch(kept_states=KeptStates(str(folder), state_parts))
        try:
            again = interrupt_and_resume(
                self.search, self.resumed.uninterrupted, self.resumed.interruption, keeping, giving,
                f"put-back-{folder.name}",
            )  # fmt: skip
        except SamerunError:  # it does not run with them: inconclusive
            return ExperimentResult(conclusive=False)
        taken = folder / PUT_BACK
        took = set(taken.read_text(encoding="utf-8").split()) if taken.exists() else set()
        if not took & set(state_parts):
            return ExperimentResult(conclusive=False)
        return replace(
            self.compare_with_uninterrupted(again), restored=tuple(part for part in state_parts if part in took)
        )

    def rerun_to_find_needed_state_parts(self) -> tuple[str, ...]:
        """The parts without which the difference comes back, if restoring all of them removes it; else none."""
        all_restored = self.try_restoring_state_parts(states.PARTS)
        left = all_restored.restored if all_restored.disappeared else ()
        for without in (RNG_PARTS, OPTIMIZER_PARTS, *((part,) for part in states.PARTS)):
            fewer = tuple(part for part in left if part not in without)
            if fewer and fewer != left and self.try_restoring_state_parts(fewer).disappeared:
                left = fewer
        return left

    def make_suspect_of_lost_state_parts(self, state_parts: tuple[str, ...], suspects: Sequence[Suspect]) -> Suspect:
        kind = "resume-rng" if set(state_parts) <= set(RNG_PARTS) else "resume-position"
        own = [s for s in suspects if s.kind == kind and s.parts and set(s.parts) <= set(state_parts)]
        file, line = self.situation.find_save_or_load_line_or_empty()
        evidence = next(s.evidence for s in suspects if s.kind == kind or s is suspects[-1])
        best = own[0] if own else Suspect(kind, file, line, evidence, 0.0)
        return mark_suspect_confirmed_by_restoring(
            best, state_parts, ExperimentResult(conclusive=True, disappeared=True)
        )

    # --- data replayed ----------------------------------------------------------------------------
    def try_replaying_data(self, suspect: Suspect, replay_generators: bool) -> ExperimentResult:
        """Give the resumed run the data that the uninterrupted run gets after the interruption."""
        with self.temporary_scratch_folder() as folder:
            return self._record_data_and_try_replay(suspect, replay_generators, folder)

    def _record_data_and_try_replay(
        self, suspect: Suspect, replay_generators: bool, data_folder: Path
    ) -> ExperimentResult:
        """Run the uninterrupted program once more to save its data, then a resumed run that gets them."""
        uninterrupted = self.resumed.uninterrupted
        data_source = None if suspect.replay is True else suspect.replay or None
        keep = DataReplay(str(data_folder), keep=True, shift=self.resume_difference.shift, source=data_source)
        label = f"replay-{data_folder.name}"
        kept = self.search.run_and_record(
            uninterrupted.plan.with_watch(replay=keep), f"whole-{label}", (f"pin:{label}",)
        )
        if kept.is_failed or (data_folder / "too-large").exists() or self.resume_difference.first_steps is None:
            return ExperimentResult(conclusive=False)
        skip = max(
            0,
            count_data_uses(self.resume_difference.first_steps[1], data_source)
            - count_data_uses(self.resume_difference.first_steps[0], data_source),
        )
        give = replace(keep, keep=False, shift=0, skip=skip, streams=replay_generators)
        try:
            again = interrupt_and_resume(
                self.search, uninterrupted, self.resumed.interruption, uninterrupted.plan,
                uninterrupted.plan.with_watch(replay=give), label,
            )  # fmt: skip
        except SamerunError:
            return ExperimentResult(conclusive=False)
        if not (data_folder / "given").exists():
            return ExperimentResult(conclusive=False)
        tried = self.compare_with_uninterrupted(again)
        return replace(tried, disappeared=tried.disappeared or bool(tried.extra_steps))

    # --- both ----------------------------------------------------------------------------------------
    @contextmanager
    def temporary_scratch_folder(self) -> Iterator[Path]:
        """A new folder for states and data, deleted afterwards: they can be large."""
        self.folders += 1
        folder = self.search.runner.folder / "kept" / str(self.folders)
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def compare_with_uninterrupted(self, resumed_again: ResumedProgram) -> ExperimentResult:
        now, before, uninterrupted = (
            resumed_again.find_first_difference(),
            self.resume_difference,
            self.resumed.uninterrupted,
        )
        if now is None:
            return ExperimentResult(conclusive=True, disappeared=True)
        if now.step is None and now.difference.extra_in == "b":
            return ExperimentResult(
                conclusive=True, extra_steps=resumed_again.run.steps - (uninterrupted.steps - now.shift)
            )
        one, other = now.difference.a, before.difference.a
        later = one is not None and other is not None and one.index > other.index
        return ExperimentResult(conclusive=True, came_later=later and now.difference.role == before.difference.role)


def count_data_uses(step: Step, operator_or_none_for_batches: tuple[str, int, str] | None) -> int:
    """How often a step takes data."""

    def is_there(event: Event) -> bool:
        return event.thread == 0 and (
            operator_or_none_for_batches is None or (event.file, event.line, event.name) == operator_or_none_for_batches
        )

    return sum(
        is_there(event) for event in step.select_events(f.BATCH if operator_or_none_for_batches is None else f.OPERATOR)
    )


def mark_suspect_confirmed_by_restoring(
    suspect: Suspect, state_parts: Sequence[str], experiment: ExperimentResult
) -> Suspect:
    names = describe_state_parts(state_parts)
    was = "were" if len(state_parts) > 1 or names.endswith("s") else "was"
    went = "the difference goes" if experiment.disappeared else "the difference comes only later"
    why = f"with {names} put back as in the interrupted run, {went}: {names} {was} not saved, or not put back"
    return replace(suspect, evidence=(*suspect.evidence, why), certain=True)


def add_failed_experiments_to_evidence(
    suspect: Suspect, parts_restored_in_vain: Sequence[str], can_restore: bool
) -> Suspect:
    if not can_restore:
        why = "nothing could be put back by way of experiment: the program does not save and load with torch"
        return replace(suspect, evidence=(*suspect.evidence, why))
    if not parts_restored_in_vain:
        return suspect
    return replace(
        suspect,
        evidence=(
            *suspect.evidence,
            f"with {describe_state_parts(parts_restored_in_vain)} put back the difference stays",
        ),
    )


def describe_state_parts(state_parts: Sequence[str]) -> str:
    if tuple(state_parts) == states.PARTS:
        return "all random generators, optimizers, schedulers and scalers"
    names = [PART_NAMES[part] for part in state_parts]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


__all__ = ["ResumeExperiments"]
