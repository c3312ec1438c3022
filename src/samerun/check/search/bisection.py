"""Which of several variations makes a difference: one run with all of them, then with halves of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from samerun.base.records import DIFFERENT, SAME, TROUBLE
from samerun.check.evidence.steady import any_uses_addresses
from samerun.check.execution.runner import Run
from samerun.check.plan import Variation
from samerun.check.search.run_status import cut_short, failure_of
from samerun.check.search.whole import Whole

NOT_ALONE = "not varied alone: address_layout makes a difference already, and most others move objects too"


class Runs(Protocol):
    """What this needs of a search."""

    def together(self, first: Run, held: Sequence[Variation], group: Sequence[Variation]) -> Whole: ...
    def finished(self, run: Run) -> None: ...
    def settle(self, variation: Variation, outcome: str, detail: str = "") -> None: ...


def leave_out_failing(
    search: Runs, first: Run, held: Sequence[Variation], whole: Whole
) -> tuple[Whole | None, list[Variation]]:
    """A run with everything varied that failed is made again once without what may fail for a reason of its own (a
    copy of the working directory lacks what the program looks for). Returns what is varied, and its run."""
    group = list(whole.group)
    failing = [v for v in group if v.may_fail]
    if not whole.run.failed or whole.run.timed_out or not failing or len(group) == 1:
        return whole, group
    said = whole.run.output("stderr").strip().splitlines()
    why = f"left out: {failure_of(whole.run)}" + (f" ({said[-1].strip()})" if said else "")
    for variation in failing:
        search.settle(variation, TROUBLE, why)
    rest = [v for v in group if v not in failing]
    return (search.together(first, held, rest) if rest else None), rest


def bisect_variations(search: Runs, first: Run, held: Sequence[Variation], whole: Whole) -> list[Whole]:
    """The single variations of a group that make a difference; each of the group gets its outcome.

    A program that goes by addresses differs under most variations, since most of them move objects: the layout of
    addresses by itself says so in one run, and the half it stands in need not be taken apart.
    """
    single = _address_layout(search, first, held, whole) if any_uses_addresses(first.traces) else None
    return single or _halve(search, first, held, whole)


def _halve(search: Runs, first: Run, held: Sequence[Variation], whole: Whole) -> list[Whole]:
    if whole.difference is None:
        search.finished(whole.run)
        for variation in whole.group:
            search.settle(variation, SAME)
        return []
    if len(whole.group) == 1:
        (variation,) = whole.group
        failed = cut_short(whole.run, whole.difference) or (variation.may_fail and whole.run.failed)
        search.settle(variation, TROUBLE if failed else DIFFERENT, failure_of(whole.run))
        return [] if failed else [whole]
    middle = (len(whole.group) + 1) // 2
    parts = (whole.group[:middle], whole.group[middle:])
    halves: list[Whole] = []
    for part in sorted(parts, key=lambda part: not _layouts(part)):  # where addresses settle it, the other is not run
        half = search.together(first, held, part)
        halves.append(half)
        single = _address_layout(search, first, held, half) if not half.run.failed else []
        if single:
            for variation in whole.group:
                if variation not in half.group:
                    search.settle(variation, "skipped", NOT_ALONE)
            return single
    halves.sort(key=lambda half: half.group != parts[0])
    return [single for half in halves for single in _halve(search, first, held, half)]


def _address_layout(search: Runs, first: Run, held: Sequence[Variation], whole: Whole) -> list[Whole]:
    """The layout of addresses varied by itself, where it is one of several and makes a difference; else nothing."""
    layouts = _layouts(whole.group)
    if not layouts or len(whole.group) < 3 or whole.difference is None:
        return []
    alone = search.together(first, held, layouts)
    if alone.difference is None or alone.run.failed:
        return []
    for variation in whole.group:
        if variation in layouts:
            search.settle(variation, DIFFERENT)
        else:
            search.settle(variation, "skipped", NOT_ALONE)
    return [alone]


def _layouts(group: Sequence[Variation]) -> list[Variation]:
    return [v for v in group if v.cause == "object-id"]
