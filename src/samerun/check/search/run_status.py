"""How a run of the user's program ended: whether it can be compared, and what to say if not."""

from __future__ import annotations

import errno
import os
import re
import shutil

from samerun.base.target import suggest_running_without_samerun
from samerun.check.evidence.results import find_first_unmatched_printed_lines
from samerun.check.execution.runner import (
    Run,
    RunFailed,
    describe_folder_if_disk_failure,
    make_recording_failure_hint,
)
from samerun.record.comparison.alignment import is_from_unwritten_memory
from samerun.record.comparison.compare import Difference, find_first_difference
from samerun.record.comparison.streams import IGNORE_UNUSED_MEMORY
from samerun.record.config import STARTED_FILE
from samerun.record.trace import format as f
from samerun.record.trace.run import select_events
from samerun.record.watching.stack_frames import RECORD_FOLDER

PATIENCE, PATIENCE_BY_LINES, PATIENCE_SECONDS = 10, 50, 60.0
"""Limits of an experiment: multiples of the program's own time (tracing lines is slower), plus seconds."""
REGIONS, REGIONS_SECONDS = "regions", 400.0
"""The label of a run that looks into compiled regions, and the seconds that it may take for that."""
NEEDED_BYTES = 1 << 16
"""With less free space than this a run cannot be recorded, and a program cannot print."""


def require_trace_to_compare(run: Run) -> None:
    """Raises RunFailed if a run was not recorded, or computed nothing that could be compared."""
    full = shutil.disk_usage(run.folder).free < NEEDED_BYTES
    if run.traces.failures or (full and run.is_failed):
        reason = run.traces.failures[0] if run.traces.failures else os.strerror(errno.ENOSPC)
        where = describe_folder_if_disk_failure(reason, run.folder.parent)
        raise RunFailed(
            f"Run {run.name} could not be recorded{where}: {reason}.", run, hint=make_recording_failure_hint(reason)
        )
    if not run.traces.traces and not run.is_failed:
        if (run.folder / STARTED_FILE).exists():
            raise RunFailed(
                f"Run {run.name} left nothing to compare: {' '.join(run.plan.shown)} ended without computing"
                " anything with torch.",
                run,
                hint='Does it need arguments, or a guard such as `if __name__ == "__main__"` to be true?',
            )
        raise RunFailed(
            f"Run {run.name} left no trace: {' '.join(run.plan.shown)} ran, but not under samerun's recorder.",
            run,
            hint="Is samerun installed for the Python that the command starts? (python -I and -S switch it off.)",
        )


def find_first_difference_of_runs(a: Run, b: Run, compares_printed_lines: bool = False) -> Difference | None:
    """The first difference of two runs; None if they are the same. Printed lines come last."""
    scope = (*a.plan.scope, *b.plan.scope)
    found = find_first_difference(a.traces, b.traces, scope)
    # A library that asks for shapes computes on memory that it made for that. What the program's own line made is meant
    # to hold values; and a number that came from such memory may have been printed, which no trace shows.
    if found is not None and is_from_memory_made_by_library(a, found) and a.wrote_the_same_stdout(b):
        found = find_first_difference(a.traces, b.traces, (*scope, IGNORE_UNUSED_MEMORY))
    if found is None and a.exit_code != b.exit_code:
        found = Difference("process", "main", "main", None, None, 0, 0)
    if found is None and compares_printed_lines and find_first_unmatched_printed_lines(a, b) is not None:
        found = Difference("printed", "main", "main", None, None, 0, 0)
    return found


def is_from_memory_made_by_library(run: Run, difference: Difference) -> bool:
    """Whether the first operator that differs read memory that a library made and nothing had written."""
    event = difference.a
    if event is None or not is_from_unwritten_memory(difference):
        return False
    reads = select_events(run.traces.traces[difference.role], (f.FRESH,), event.index)
    return any(read.inputs for read in reads[-1:] if read.name == event.name)


def require_success(run: Run) -> None:
    """Raises RunFailed for a run that failed or took too long though nothing was varied in it."""
    require_within_time_limit(run)
    if run.exit_code != 0:
        how = f"ended with exit code {run.exit_code}" if run.exit_code > 0 else f"was ended by signal {-run.exit_code}"
        raise RunFailed(
            f"The program {how}, before anything was varied.", run, hint=suggest_running_alone_or_reporting(run)
        )


def suggest_running_alone_or_reporting(run: Run) -> str:
    """What to do about a run that failed; says so if the error was raised in samerun's own recorder."""
    alone = suggest_running_without_samerun(run.plan.command, run.plan.shown)
    said = run.read_output_tail("stderr")
    raised_in = re.findall(r'^ *File "(.+?)", line \d+', said, re.MULTILINE)
    # A traceback that ends where a call is handed on to the program's own has no frame of ours: see tracebacks.
    ours = [said.rstrip().splitlines()[-1]] if raised_in and raised_in[-1].startswith(RECORD_FOLDER) else []
    ours += run.traces.failures
    return f"{alone}\n  This may be samerun's own error: {ours[0]}" if ours else alone


def require_within_time_limit(run: Run) -> None:
    """Raises RunFailed for a run that took too long: what it would have computed is not known."""
    if run.timed_out:
        raise RunFailed(
            f"The program was still running after {run.seconds:.0f} s and was ended ({run.name}).", run,
            hint="Give it more time (--time-limit), or fewer steps (--max-steps N).",
        )  # fmt: skip


def timed_out_without_difference(run: Run, difference: Difference | None) -> bool:
    """Whether the time limit ended a run before anything in it differed: only its end is missing."""
    return run.timed_out and (difference is None or difference.a is None or difference.b is None)


def describe_failure(run: Run, prefix: str = "") -> str:
    """How a varied run failed; "" if it did not."""
    if run.timed_out:
        return f"{prefix}this run did not end in time"
    return f"{prefix}this run ended with exit code {run.exit_code}" if run.exit_code else ""


def limit_time_of_experiment(
    time_limit: float | None, baseline_seconds: float, labels: tuple[str, ...]
) -> float | None:
    """The time limit of a run: an experiment on a program that took so many seconds always gets one.

    A pinned source may keep a program from ever ending (a loop that waits for another random number): the experiment
    then confirms nothing.
    """
    if not any(label.startswith("pin:") or label in ("lines", REGIONS) for label in labels):
        return time_limit
    most = (PATIENCE_BY_LINES if "lines" in labels else PATIENCE) * baseline_seconds + PATIENCE_SECONDS
    most += REGIONS_SECONDS if REGIONS in labels else 0.0
    return most if time_limit is None else min(most, time_limit)
