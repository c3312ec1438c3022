"""How far a difference spreads: which optimizer steps differ, in what, and whether the end does."""

from __future__ import annotations

from samerun.base.records import Spread
from samerun.check.execution.runner import Run
from samerun.record.comparison.streams import SOFT_LEAVES
from samerun.record.trace.steps import final_digests, read_steps


def spread(a: Run, b: Run, shift: int = 0) -> Spread | None:
    """Compare two runs step by step, by their digests; None where they made no steps in common.

    shift: so many steps of `a` lie before the first one of `b`. Steps are numbered as in `a`.
    """
    one, other = a.traces.main, b.traces.main
    if one is None or other is None:
        return None
    pairs = list(zip(read_steps(one)[shift:], read_steps(other), strict=False))
    if not pairs:
        return None
    differing: list[int] = []
    leaves: dict[str, int] = {}
    for left, right in pairs:
        names = left.differing_leaves(right)
        if set(names) - SOFT_LEAVES:  # random states by themselves are no result
            differing.append(left.number)
        for name in names:
            leaves.setdefault(name, left.number)
    ends = final_digests(one), final_digests(other)
    end = "unknown" if not all(ends) else "same" if ends[0] == ends[1] else "different"
    first_in = tuple(sorted(leaves.items(), key=lambda item: (item[1], item[0])))
    return Spread(steps=shift + len(pairs), different=ranges(differing), leaves=first_in, end=end)


def ranges(numbers: list[int]) -> tuple[tuple[int, int], ...]:
    """First and last of each stretch of numbers that follow one another; they ascend."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return tuple(found)
