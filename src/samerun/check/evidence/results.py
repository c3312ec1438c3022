"""Whether two runs of the program have the same results although values in between differ."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
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
    difference: a run may have another name or port. Lines that the plan of one run calls volatile do not count.
    """
    without_numbers = not with_numbers and reads_clock(a, b) and not seeds_differ(a, b)
    only_a, only_b = _find_lines_of_one_run_alone(a, b, without_numbers)
    volatile = a.plan.volatile_lines | b.plan.volatile_lines
    only_a, only_b = ([line for line in only if NUMBER.sub(b"0", line) not in volatile] for only in (only_a, only_b))
    if not only_a and not only_b:
        return None
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


def find_differing_printed_fractions(a: Run, b: Run) -> tuple[str, str] | None:
    """The first line of two runs' standard output in which fractions differ by more than rounding; None for none.

    Lines in the same words are paired in their order, where both runs printed as many of them. Nothing is told of runs
    that read a clock, and of fractions that stand in the commands or variables themselves.
    """
    if reads_clock(a, b):
        return None
    words = [*a.plan.command, *b.plan.command, *a.plan.environment.values(), *b.plan.environment.values()]
    given = {fraction for word in words for fraction in FRACTION.findall(word.encode())}
    by_words: list[dict[bytes, list[bytes]]] = [{}, {}]
    for run, lines in zip((a, b), by_words, strict=True):
        for line in _read_normalized_text(run, "stdout").splitlines():
            lines.setdefault(NUMBER.sub(b"0", line), []).append(line)
    for words_of_line, own in by_words[0].items():
        other = by_words[1].get(words_of_line, [])
        for one, like in zip(own, other, strict=True) if len(own) == len(other) else ():
            pairs = zip(FRACTION.findall(one), FRACTION.findall(like), strict=False)
            if any(x not in given and y not in given and not agree_as_printed(x, y) for x, y in pairs):
                return one.decode(errors="replace"), like.decode(errors="replace")
    return None


def agree_as_printed(one: bytes, other: bytes) -> bool:
    """Whether two fractions differ by no more than rounding, of float32 or of the last digit, may make them."""
    x, y = float(one), float(other)
    digits = min(len(text.partition(b".")[2]) if b"e" not in text else 30 for text in (one, other))
    return math.isclose(x, y, rel_tol=1e-4, abs_tol=1.5 * 10.0**-digits) or (math.isnan(x) and math.isnan(y))


def find_lines_that_differ(runs: Sequence[Run]) -> frozenset[bytes]:
    """The printed lines of runs that another of them did not print, "0" in the place of each number."""
    return frozenset(
        NUMBER.sub(b"0", line)
        for other in runs[1:]
        for only in _find_lines_of_one_run_alone(runs[0], other, without_numbers=False)
        for line in only
    )


def _find_lines_of_one_run_alone(a: Run, b: Run, without_numbers: bool) -> tuple[list[bytes], list[bytes]]:
    """Lines that a printed and b did not, and the other way round, in alphabetical order; none where that is too much
    to compare."""
    one, other = (_read_sorted_normalized_lines(run, "stdout", without_numbers) for run in (a, b))
    if one is None or other is None or one == other:
        return [], []
    only_a, only_b = Counter(one) - Counter(other), Counter(other) - Counter(one)
    return sorted(only_a.elements()), sorted(only_b.elements())


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
    if (run.folder / stream).stat().st_size > MOST_TEXT_BYTES:
        return None
    text = _read_normalized_text(run, stream)
    return sorted((NUMBER.sub(b"0", text) if without_numbers else text).splitlines())


def _read_normalized_text(run: Run, stream: Literal["stdout", "stderr"]) -> bytes:
    with open(run.folder / stream, "rb") as file:
        text = NAME.sub(b"0", file.read(MOST_TEXT_BYTES))
    processes = "|".join(map(str, run.process_ids))
    return re.sub(rf"\b(?:{processes})\b".encode(), b"0", text) if processes else text
