"""Whether two runs of the program have the same results although values in between differ."""

from __future__ import annotations

import re
from collections import Counter
from typing import Literal

from samerun.check.execution.runner import Run
from samerun.record import pins
from samerun.record.comparison.alignment import Difference
from samerun.record.comparison.results import is_harmless_order_difference
from samerun.record.trace import format as f
from samerun.record.trace.run import select_events

MOST_TEXT_BYTES = 1 << 24
"""Longer output is not compared, and counts as different."""
NUMBER = re.compile(rb"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
FRACTION = re.compile(rb"\d+\.\d+(?:e[+-]?\d+)?|\d+e[+-]?\d+|nan|inf")
NAME = re.compile(
    rb"0x[0-9a-fA-F]{4,}|\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|\S*/te?mp/\S+"
    rb"|\d+(?:\.\d+)? ?(?:[kKMGT]i?B|[mun]?s|it/s)\b"
)
"""Addresses, UUIDs, temporary files, memory and durations: others in every run, and no results. So are process ids."""


def results_agree(a: Run, b: Run, difference: Difference) -> bool:
    """Whether the runs differ in the order of threads or processes alone: the same exit code, output and results."""
    if a.exit_code != b.exit_code or a.timed_out or b.timed_out:
        return False
    return is_harmless_order_difference(
        a.traces, b.traces, difference
    ) and have_same_normalized_output_lines_in_any_order(a, b)


def have_same_normalized_output_lines_in_any_order(a: Run, b: Run) -> bool:
    """Whether both runs printed the same lines: their order is that of the threads.

    Where the program reads a clock, numbers in them do not count. What it prints of a tensor was read by an operator.
    """
    without_numbers = reads_clock(a, b)
    streams: tuple[Literal["stdout", "stderr"], ...] = ("stdout", "stderr")
    for stream in streams:
        one, other = (_read_sorted_normalized_lines(run, stream, without_numbers) for run in (a, b))
        if one is None or one != other:
            return False
    return True


def find_first_unmatched_printed_lines(a: Run, b: Run, with_numbers: bool = False) -> tuple[str, str] | None:
    """The first line of each run's standard output, in alphabetical order, that the other did not print; "" if none.

    None where both printed the same; numbers do not count if the program reads a clock, unless `with_numbers` or the
    program seeded a generator otherwise. Beside operators of torch, only other fractions in the same words are a
    difference: a run may have another name or port.
    """
    without_numbers = not with_numbers and reads_clock(a, b) and not seeds_differ(a, b)
    one, other = (_read_sorted_normalized_lines(run, "stdout", without_numbers) for run in (a, b))
    if one is None or other is None or one == other:
        return None
    only_a, only_b = (
        sorted((Counter(lines) - Counter(others)).elements()) for lines, others in ((one, other), (other, one))
    )
    if a.operators:
        pairs = [
            (line, like)
            for line in only_a for like in only_b
            if NUMBER.sub(b"0", line) == NUMBER.sub(b"0", like) and FRACTION.findall(line) != FRACTION.findall(like)
        ]  # fmt: skip
        only_a, only_b = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        if not pairs:
            return None
    first, first_other = (next(iter(only), b"").decode(errors="replace") for only in (only_a, only_b))
    return first, first_other


def reads_clock(*runs: Run) -> bool:
    """Whether a run read a clock that was not held still."""
    return any(
        select_events(trace, (f.CLOCK,))
        for run in runs if pins.CLOCK not in run.plan.watch.pins
        for trace in run.traces.traces.values()
    )  # fmt: skip


def seeds_differ(a: Run, b: Run) -> bool:
    """Whether the program gave a generator another seed: then what it drew is another result, whatever clocks say."""
    return a.explicit_seeds != b.explicit_seeds


def _read_sorted_normalized_lines(
    run: Run, stream: Literal["stdout", "stderr"], without_numbers: bool
) -> list[bytes] | None:
    """The lines of what a run printed, sorted, without names; None if that is too much."""
    path = run.folder / stream
    if path.stat().st_size > MOST_TEXT_BYTES:
        return None
    processes = "|".join(map(str, run.process_ids))
    text = NAME.sub(b"0", path.read_bytes())
    text = re.sub(rf"\b(?:{processes})\b".encode(), b"0", text) if processes else text
    return sorted((NUMBER.sub(b"0", text) if without_numbers else text).splitlines())
