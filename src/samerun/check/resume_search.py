"""Interrupt a program, take it up again, and see whether it ends as it does in one go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from samerun.base.records import DIFFERENT, SAME
from samerun.check import resumption
from samerun.check.interruption import SIGNALS, Interruption
from samerun.check.plan import Plan
from samerun.check.runner import Run, RunFailed, Runner
from samerun.check.situation import Situation


class Runs(Protocol):
    """What is needed of a search."""

    runner: Runner

    def run(self, plan: Plan, name: str, vary: tuple[str, ...] = ()) -> Run: ...
    def look_at(self, run: Run) -> None: ...


def search(runs: Runs, whole: Run, asked: Sequence[Interruption]) -> tuple[str, str, Situation | None]:
    """(outcome, detail, where they part) of the first interruption that makes a difference, else of all."""
    if not whole.steps:
        return "skipped", "the program makes no optimizer step", None
    details, resumed_any = [], False
    for interruption in asked:
        step = interruption.step or max(1, whole.steps // 2)
        first, second = interrupted(runs, whole, interruption, step)
        shown = interruption.shown(step)
        if not second.steps and first.steps < whole.steps:
            raise RunFailed(
                f"Taken up again after {first.steps} of {whole.steps} steps, the program makes none.", second,
                hint="Does it stop where it was told to stop before? Give other settings with --resume.",
            )  # fmt: skip
        if first.steps + second.steps < whole.steps:
            lost = whole.steps - first.steps - second.steps
            shown += f"; {lost} steps were never made"
        difference = resumption.first_difference(whole.traces, second.traces)
        over = second.steps >= whole.steps
        shown += "; then it began anew" if over else f"; taken up again behind step {whole.steps - second.steps}"
        details.append(shown)
        resumed_any = resumed_any or not over
        if difference is not None or first.steps + second.steps < whole.steps:
            found = None
            if difference is not None:
                found = Situation("resume", whole, second, difference, interrupted=first)
            return DIFFERENT, shown, found
    if not resumed_any:
        return "skipped", "the program took up nothing: it began anew", None
    return SAME, "; ".join(details), None


def interrupted(runs: Runs, whole: Run, interruption: Interruption, step: int) -> tuple[Run, Run]:
    """The run that was cut short and the one that took it up."""
    name = f"interrupted-{interruption.signal or 'self'}"
    folder = runs.runner.folder / f"{name}-checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    first_plan = interruption.first.put_on(whole.plan, str(folder))
    if interruption.signal is not None:
        first_plan = first_plan.with_watch(end_at=(step, int(SIGNALS[interruption.signal])))
    first = runs.run(first_plan, name, ("resume",))
    check_first(first, whole, interruption, step)
    second = runs.run(interruption.second.put_on(whole.plan, str(folder)), f"{name}-resumed", ("resume",))
    runs.look_at(second)
    if second.failed:
        how = "did not end in time" if second.timed_out else f"ended with exit code {second.exit_code}"
        raise RunFailed(
            f"Taken up again ({interruption.shown(step)}), the program {how}.", second,
            hint="It must run to its end from the checkpoint of an interrupted run.",
        )  # fmt: skip
    return first, second


def check_first(first: Run, whole: Run, interruption: Interruption, step: int) -> None:
    """Raises RunFailed where there was no interruption as it was asked for."""
    if first.timed_out:
        raise RunFailed("The run that was to be interrupted did not end in time.", first, hint="Raise --time-limit.")
    if interruption.signal is not None and first.steps < step:
        raise RunFailed(
            f"The program was to be ended at step {step}, and made {first.steps} steps (in one go: {whole.steps}).",
            first, hint=f"Name a step from 1 to {whole.steps} with --kill.",
        )  # fmt: skip
    if interruption.signal is None and first.exit_code:
        raise RunFailed(
            f"With the settings of --interrupt the program ended with exit code {first.exit_code}.", first,
            hint="It must stop by itself in the middle, with exit code 0; or let samerun end it with --kill STEP.",
        )  # fmt: skip
