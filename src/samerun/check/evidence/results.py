"""Whether two runs of the program have the same results although values in between differ."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Literal

from samerun.check.execution.runner import Run
from samerun.record.comparison.alignment import Difference
from samerun.record.comparison.results import is_harmless_order_difference
from samerun.record.trace import format as f
from samerun.record.trace.run import select_events

MOST_TEXT_BYTES = 1 << 24
"""Longer output is not compared, and counts as different."""
NUMBER = re.compile(rb"\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def results_agree(a: Run, b: Run, difference: Difference) -> bool:
    """Whether the runs differ in the order of threads or processes alone: the same exit code, output and results."""
    if a.exit_code != b.exit_code or a.timed_out or b.timed_out:
        return False
    return is_harmless_order_difference(a.traces, b.traces, difference) and have_same_output_lines_in_any_order(a, b)


def have_same_output_lines_in_any_order(a: Run, b: Run) -> bool:
    """Whether both runs printed the same lines: their order is that of the threads.

    Where the program reads a clock, numbers in them do not count. What it prints of a tensor was read by an operator.
    """
    reads_clock = _reads_clock(a, b)
    streams: tuple[Literal["stdout", "stderr"], ...] = ("stdout", "stderr")
    for stream in streams:
        one, other = (_read_sorted_lines(run.folder / stream, reads_clock) for run in (a, b))
        if one is None or one != other:
            return False
    return True


def find_differing_printed_lines(a: Run, b: Run) -> tuple[str, str] | None:
    """The first line of each run's standard output, in alphabetical order, that the other did not print.

    None where both printed the same, but for numbers if the program reads a clock; "" for a run that printed less.
    """
    reads_clock = _reads_clock(a, b)
    one, other = (_read_sorted_lines(run.folder / "stdout", reads_clock) for run in (a, b))
    if one is None or other is None or one == other:
        return None
    only_a, only_b = (
        next(iter((Counter(lines) - Counter(others)).elements()), b"").decode(errors="replace")
        for lines, others in ((one, other), (other, one))
    )
    return only_a, only_b


def _reads_clock(*runs: Run) -> bool:
    return any(select_events(trace, (f.CLOCK,)) for run in runs for trace in run.traces.traces.values())


def _read_sorted_lines(path: Path, without_numbers: bool) -> list[bytes] | None:
    """The lines of what a run printed, sorted; None if that is too much."""
    if path.stat().st_size > MOST_TEXT_BYTES:
        return None
    text = path.read_bytes()
    return sorted((NUMBER.sub(b"0", text) if without_numbers else text).splitlines())
