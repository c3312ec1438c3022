"""The variation `resume`: interrupt a program, resume it, and compare it with an uninterrupted run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from samerun.base.errors import SamerunError
from samerun.base.records import DIFFERENT, SAME, VariationOutcome
from samerun.check.evidence.resumption import (
    ResumeDifference,
    count_steps_before_checkpoint_or_all,
    find_resume_difference,
    list_process_roles_with_steps,
)
from samerun.check.evidence.situation import Situation
from samerun.check.execution.interruption import SIGNALS, Interruption
from samerun.check.execution.runner import Run, RunFailed, Runner
from samerun.check.plan import RunPlan
from samerun.check.search.run_status import require_trace_to_compare
from samerun.record.trace import format as f
from samerun.record.trace.run import count_events


class ResumeRunner(Protocol):
    """The part of `Search` that interruptions use."""

    runner: Runner
    notes: list[str]

    def run_and_record(self, plan: RunPlan, name: str, labels: tuple[str, ...] = ()) -> Run: ...


@dataclass(frozen=True)
class ResumedProgram:
    """A program that was interrupted after some step, and the run that resumed it."""

    uninterrupted: Run
    stopped: Run
    run: Run
    interruption: Interruption
    step: int

    @property
    def is_limited_by_max_steps(self) -> bool:
        """Whether each process ends after `--max-steps`, so that the resumed run gets further."""
        most = self.uninterrupted.plan.watch.max_steps
        return most is not None and self.uninterrupted.steps >= most

    @property
    def has_started_over(self) -> bool:
        """Whether it resumed nothing and made all steps again."""
        if not self.is_limited_by_max_steps:
            return self.run.steps >= self.uninterrupted.steps
        return not any(count_events(trace, f.LOAD) for trace in self.run.traces.traces.values())

    @property
    def steps_before_resume(self) -> int:
        """How many steps of the uninterrupted run come before the first one of the resumed run."""
        if not self.is_limited_by_max_steps:
            return self.uninterrupted.steps - self.run.steps
        roles = [*list_process_roles_with_steps(self.run.traces), "main"]
        return count_steps_before_checkpoint_or_all(self.stopped.traces, self.run.traces, roles[0])

    def find_first_difference(self) -> ResumeDifference | None:
        return find_resume_difference(
            self.uninterrupted.traces, self.stopped.traces, self.run.traces, self.is_limited_by_max_steps
        )

    def describe(self) -> str:
        text = self.interruption.describe(self.step, self.stopped.steps, self.uninterrupted.steps)
        lost = 0 if self.is_limited_by_max_steps else self.uninterrupted.steps - self.stopped.steps - self.run.steps
        if lost > 0:
            text += f"; {lost} steps were never made"
        return text + (
            "; then it began anew"
            if self.has_started_over
            else f"; taken up again behind step {self.steps_before_resume}"
        )


NOT_RESUMED = (
    "the restarted program loaded no checkpoint and started over; it must save to and load from the folder in"
    " SAMERUN_CHECKPOINTS"
)


@dataclass(frozen=True)
class InterruptionResult:
    """The outcome of all interruptions. `situation`: the first difference that one of them makes."""

    outcome: VariationOutcome
    detail: str
    situation: Situation | None = None
    resumed: ResumedProgram | None = None


def try_interruptions_until_difference(
    search: ResumeRunner, uninterrupted: Run, interruptions: Sequence[Interruption]
) -> InterruptionResult:
    """Interrupt in every way that was asked for, up to the first that makes a difference.

    Raises SamerunError if the program cannot be interrupted and resumed as asked.
    """
    if not uninterrupted.steps:
        if any(one.first.is_nonempty for one in interruptions):
            raise SamerunError(
                "--resume: the program makes no optimizer step that samerun sees, so there is nothing to compare.",
                hint="Only programs that train with torch.optim can be compared when they are resumed.",
            )
        return skip_and_note(search, "the program makes no optimizer step")
    details, taken_up = [], False
    for interruption in interruptions:
        resumed = interrupt_and_resume(search, uninterrupted, interruption, uninterrupted.plan, uninterrupted.plan)
        found = resumed.find_first_difference()
        if found is not None:
            situation = Situation("resume", uninterrupted, resumed.run, found.difference, resumed.stopped, found)
            return InterruptionResult(DIFFERENT, resumed.describe(), situation, resumed)
        details.append(resumed.describe())
        taken_up = taken_up or not resumed.has_started_over
    if not taken_up:
        return skip_and_note(search, NOT_RESUMED)
    return InterruptionResult(SAME, "; ".join(details))


def skip_and_note(search: ResumeRunner, reason: str) -> InterruptionResult:
    """Also a note of the report: the verdict may be "same", and says nothing about resuming."""
    search.notes.append(f"Resuming was NOT tested: {reason}.")
    return InterruptionResult("skipped", reason)


def interrupt_and_resume(
    search: ResumeRunner,
    uninterrupted: Run,
    interruption: Interruption,
    first_plan: RunPlan,
    second_plan: RunPlan,
    experiment_label: str = "",
) -> ResumedProgram:
    """Interrupt one plan and resume it with the other; they share an empty folder for checkpoints.

    experiment_label: name of an experiment, part of the names of the runs.
    """
    step = interruption.step or max(1, uninterrupted.steps // 2)
    tail = "".join(f"-{part}" for part in (interruption.signal, experiment_label) if part)
    folder = search.runner.folder / f"checkpoints{tail}"
    folder.mkdir(parents=True, exist_ok=True)
    cut = interruption.first.apply_to(first_plan, str(folder))
    if interruption.signal is not None:
        cut = cut.with_watch(kill_after=(step, int(SIGNALS[interruption.signal])))
    kind = (f"pin:{experiment_label}",) if experiment_label else ("resume",)
    stopped = search.run_and_record(cut, f"interrupted{tail}", kind)
    require_trace_to_compare(stopped)
    require_interrupted(stopped, uninterrupted, interruption, step)
    run = search.run_and_record(interruption.second.apply_to(second_plan, str(folder)), f"resumed{tail}", kind)
    require_trace_to_compare(run)
    resumed = ResumedProgram(uninterrupted, stopped, run, interruption, step)
    require_resumed_succeeded_and_stepped(resumed)
    return resumed


def require_interrupted(stopped: Run, uninterrupted: Run, interruption: Interruption, kill_step: int) -> None:
    """Raises SamerunError if the program was not interrupted as asked."""
    if stopped.timed_out:
        raise RunFailed("The run that was to be interrupted did not end in time.", stopped, hint="Raise --time-limit.")
    if interruption.signal is not None and stopped.steps < kill_step:
        hint = f"Name a step from 1 to {uninterrupted.steps} with --kill."
        if kill_step <= uninterrupted.steps:
            hint = "Did it find a checkpoint of an earlier run? It must look in the folder in SAMERUN_CHECKPOINTS only."
        raise RunFailed(
            f"The program was to be ended at step {kill_step}, and made {stopped.steps} steps (in one go:"
            f" {uninterrupted.steps}).",
            stopped, hint=hint,
        )  # fmt: skip
    if interruption.signal is None and stopped.exit_code and not stopped.steps:
        raise RunFailed(
            f"With the settings of --interrupt the program ended with exit code {stopped.exit_code}.", stopped,
            hint="It must stop by itself in the middle, behind a checkpoint; or let samerun end it with --kill STEP.",
        )  # fmt: skip
    if interruption.signal is None and stopped.steps >= uninterrupted.steps:
        raise SamerunError(
            f"--interrupt: the program was not interrupted: it made {stopped.steps} optimizer steps of"
            f" {uninterrupted.steps}.",
            hint=f"Does it read these settings? {interruption.first}",
        )


def require_resumed_succeeded_and_stepped(resumed: ResumedProgram) -> None:
    """Raises RunFailed if the resumed program did not run to its end."""
    run, stopped, uninterrupted = resumed.run, resumed.stopped, resumed.uninterrupted
    if run.is_failed:
        how = "did not end in time" if run.timed_out else f"ended with exit code {run.exit_code}"
        cut = resumed.interruption.describe(resumed.step, stopped.steps, uninterrupted.steps)
        raise RunFailed(
            f"Taken up again ({cut}), the program {how}.", run,
            hint="It must run to its end from the checkpoint of an interrupted run.",
        )  # fmt: skip
    if not run.steps and stopped.steps < uninterrupted.steps:
        raise RunFailed(
            f"Taken up again after {stopped.steps} of {uninterrupted.steps} steps, the program makes none.", run,
            hint="Does it stop where it was told to stop before? Give other settings with --resume.",
        )  # fmt: skip


__all__ = ["InterruptionResult", "ResumedProgram", "interrupt_and_resume", "try_interruptions_until_difference"]
