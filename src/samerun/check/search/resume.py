"""The variation `resume`: interrupt a program, take it up again, and see whether it ends as it does in one go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from samerun.base.errors import SamerunError
from samerun.base.records import DIFFERENT, SAME
from samerun.check.evidence.resumption import Parting, parting, stepping_roles, taken_up_after
from samerun.check.evidence.situation import Situation
from samerun.check.execution.interruption import SIGNALS, Interruption
from samerun.check.execution.runner import Run, RunFailed, Runner
from samerun.check.plan import Plan
from samerun.record.trace import format as f
from samerun.record.trace.run import count_events


class Runs(Protocol):
    """What is needed of a search."""

    runner: Runner

    def run(self, plan: Plan, name: str, vary: tuple[str, ...] = ()) -> Run: ...
    def look_at(self, run: Run) -> None: ...


@dataclass(frozen=True)
class Resumed:
    """A program that was interrupted after some step, and what took it up."""

    whole: Run
    stopped: Run
    run: Run
    interruption: Interruption
    step: int

    @property
    def cut(self) -> bool:
        """Each process ends after `--max-steps`: the resumed run gets further than the whole one."""
        most = self.whole.plan.watch.max_steps
        return most is not None and self.whole.steps >= most

    @property
    def anew(self) -> bool:
        """It took up nothing: it made all steps."""
        if not self.cut:
            return self.run.steps >= self.whole.steps
        return not any(count_events(trace, f.LOAD) for trace in self.run.traces.traces.values())

    @property
    def behind(self) -> int:
        """How many steps of the whole run lie before the first one of the resumed run."""
        if not self.cut:
            return self.whole.steps - self.run.steps
        roles = [*stepping_roles(self.run.traces), "main"]
        return taken_up_after(self.stopped.traces, self.run.traces, roles[0])

    def parting(self) -> Parting | None:
        return parting(self.whole.traces, self.stopped.traces, self.run.traces, self.cut)

    def shown(self) -> str:
        text = self.interruption.shown(self.step, self.stopped.steps, self.whole.steps)
        lost = 0 if self.cut else self.whole.steps - self.stopped.steps - self.run.steps
        if lost > 0:
            text += f"; {lost} steps were never made"
        return text + ("; then it began anew" if self.anew else f"; taken up again behind step {self.behind}")


@dataclass(frozen=True)
class Searched:
    """What became of the interruptions. situation: where the first one that makes a difference parts."""

    outcome: str
    detail: str
    situation: Situation | None = None
    resumed: Resumed | None = None


def search(runs: Runs, whole: Run, asked: Sequence[Interruption]) -> Searched:
    """Interrupt in every way that is asked for, up to the first that makes a difference.

    Raises SamerunError where the program cannot be interrupted and taken up as it was asked for.
    """
    if not whole.steps:
        if any(one.first.given for one in asked):
            raise SamerunError(
                "--resume: the program makes no optimizer step that samerun sees, so there is nothing to compare.",
                hint="Only programs that train with torch.optim can be compared when they are resumed.",
            )
        return Searched("skipped", "the program makes no optimizer step")
    details, taken_up = [], False
    for interruption in asked:
        resumed = interrupted(runs, whole, interruption, whole.plan, whole.plan)
        found = resumed.parting()
        if found is not None:
            situation = Situation("resume", whole, resumed.run, found.difference, resumed.stopped, found)
            return Searched(DIFFERENT, resumed.shown(), situation, resumed)
        details.append(resumed.shown())
        taken_up = taken_up or not resumed.anew
    if not taken_up:
        return Searched("skipped", "the program took up nothing: it began anew")
    return Searched(SAME, "; ".join(details))


def interrupted(
    runs: Runs, whole: Run, interruption: Interruption, first: Plan, second: Plan, label: str = ""
) -> Resumed:
    """Cut one plan short and take it up with the other; they share an empty folder for checkpoints.

    label: of an experiment: part of the names of the runs.
    """
    step = interruption.step or max(1, whole.steps // 2)
    tail = "".join(f"-{part}" for part in (interruption.signal, label) if part)
    folder = runs.runner.folder / f"checkpoints{tail}"
    folder.mkdir(parents=True, exist_ok=True)
    cut = interruption.first.put_on(first, str(folder))
    if interruption.signal is not None:
        cut = cut.with_watch(kill_after=(step, int(SIGNALS[interruption.signal])))
    kind = (f"pin:{label}",) if label else ("resume",)
    stopped = runs.run(cut, f"interrupted{tail}", kind)
    runs.look_at(stopped)
    check_stopped(stopped, whole, interruption, step)
    run = runs.run(interruption.second.put_on(second, str(folder)), f"resumed{tail}", kind)
    runs.look_at(run)
    resumed = Resumed(whole, stopped, run, interruption, step)
    check_resumed(resumed)
    return resumed


def check_stopped(stopped: Run, whole: Run, interruption: Interruption, step: int) -> None:
    """Raises SamerunError where there was no interruption as it was asked for."""
    if stopped.timed_out:
        raise RunFailed("The run that was to be interrupted did not end in time.", stopped, hint="Raise --time-limit.")
    if interruption.signal is not None and stopped.steps < step:
        hint = f"Name a step from 1 to {whole.steps} with --kill."
        if step <= whole.steps:
            hint = "Did it find a checkpoint of an earlier run? It must look in the folder in SAMERUN_CHECKPOINTS only."
        raise RunFailed(
            f"The program was to be ended at step {step}, and made {stopped.steps} steps (in one go: {whole.steps}).",
            stopped, hint=hint,
        )  # fmt: skip
    if interruption.signal is None and stopped.exit_code and not stopped.steps:
        raise RunFailed(
            f"With the settings of --interrupt the program ended with exit code {stopped.exit_code}.", stopped,
            hint="It must stop by itself in the middle, behind a checkpoint; or let samerun end it with --kill STEP.",
        )  # fmt: skip
    if interruption.signal is None and stopped.steps >= whole.steps:
        raise SamerunError(
            f"--interrupt: the program was not interrupted: it made {stopped.steps} optimizer steps of {whole.steps}.",
            hint=f"Does it read these settings? {interruption.first}",
        )


def check_resumed(resumed: Resumed) -> None:
    """Raises RunFailed where the program did not go on to its end."""
    run, stopped, whole = resumed.run, resumed.stopped, resumed.whole
    if run.failed:
        how = "did not end in time" if run.timed_out else f"ended with exit code {run.exit_code}"
        cut = resumed.interruption.shown(resumed.step, stopped.steps, whole.steps)
        raise RunFailed(
            f"Taken up again ({cut}), the program {how}.", run,
            hint="It must run to its end from the checkpoint of an interrupted run.",
        )  # fmt: skip
    if not run.steps and stopped.steps < whole.steps:
        raise RunFailed(
            f"Taken up again after {stopped.steps} of {whole.steps} steps, the program makes none.", run,
            hint="Does it stop where it was told to stop before? Give other settings with --resume.",
        )  # fmt: skip


__all__ = ["Resumed", "Searched", "interrupted", "search"]
