"""How a run of the user's program ended, in words."""

from __future__ import annotations

import re
from copy import copy

from samerun.base.target import ask_to_run_alone
from samerun.check.execution.runner import Run, RunFailed, Runner
from samerun.record.comparison.compare import Difference
from samerun.record.watching.sites import RECORD_FOLDER

PATIENCE, PATIENCE_BY_LINES, PATIENCE_SECONDS = 10, 50, 60.0
"""An experiment may take so many times as long as the program itself, and so many seconds more."""


def must_end_well(run: Run) -> None:
    """Raises RunFailed for a run that failed or took too long though nothing was varied in it."""
    must_end_in_time(run)
    if run.exit_code != 0:
        how = f"ended with exit code {run.exit_code}" if run.exit_code > 0 else f"was ended by signal {-run.exit_code}"
        raise RunFailed(f"The program {how}, before anything was varied.", run, hint=hint_of_failure(run))


def hint_of_failure(run: Run) -> str:
    """What to do about a run that failed: another thing where the error that ended it was raised in our recorder."""
    alone = ask_to_run_alone(run.plan.command, run.plan.shown)
    said = run.output("stderr")
    raised_in = re.findall(r'^ *File "(.+?)", line \d+', said, re.MULTILINE)
    # A traceback that ends where a call is handed on to the program's own has no frame of ours: see tracebacks.
    ours = [said.rstrip().splitlines()[-1]] if raised_in and raised_in[-1].startswith(RECORD_FOLDER) else []
    ours += run.traces.failures
    return f"{alone}\n  This may be samerun's own error: {ours[0]}" if ours else alone


def must_end_in_time(run: Run) -> None:
    """Raises RunFailed for a run that took too long: what it would have computed is not known."""
    if run.timed_out:
        raise RunFailed(
            f"The program was still running after {run.seconds:.0f} s and was ended ({run.name}).", run,
            hint="Give it more time (--time-limit), or fewer steps (--max-steps N).",
        )  # fmt: skip


def cut_short(run: Run, difference: Difference | None) -> bool:
    """Whether a run was ended by the time limit before anything in it differed: only its end is missing."""
    return run.timed_out and (difference is None or difference.a is None or difference.b is None)


def failure_of(run: Run, lead: str = "") -> str:
    """How a varied run failed, if it did."""
    if run.timed_out:
        return f"{lead}this run did not end in time"
    return f"{lead}this run ended with exit code {run.exit_code}" if run.exit_code else ""


def with_patience(runner: Runner, seconds: float, vary: tuple[str, ...]) -> Runner:
    """The runner for a run: an experiment on a program that took so many seconds gets a limit.

    A source that is held still may keep a program from ever ending (a loop that waits for another random number):
    the experiment then confirms nothing.
    """
    if not any(label.startswith("pin:") or label == "lines" for label in vary):
        return runner
    most = (PATIENCE_BY_LINES if "lines" in vary else PATIENCE) * seconds + PATIENCE_SECONDS
    limit = most if runner.time_limit is None else min(most, runner.time_limit)
    patient = copy(runner)
    patient.time_limit = limit
    return patient
