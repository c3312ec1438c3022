"""Which calls of models without gradients are the same call on both sides of a neutral switch.

Calls are paired by the step they belong to, their model, and their turn: a side that calls more often in one step must
not shift those of the next. Where a step calls a model more often on one side (smaller batches, parts of a sequence),
all those calls are taken as one, of which what does not depend on how it is split is compared: sums over all elements.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from samerun.check.neutral.run_numbers import NumberRecord, OperatorSummary, RunNumbers
from samerun.check.neutral.value_correspondence import call_key, mark_corresponding
from samerun.record.comparison.rounding import ItemKey
from samerun.record.config import CALLS_KEPT, RESULT_OF

CallGroup = tuple[int, str]
"""The calls of one model in one step: the step, and the class of the model."""


@dataclass(frozen=True)
class CallAlignment:
    """The numbers that calls get, so that those of both sides, and of their reruns, are the same ones."""

    numbers: dict[tuple[CallGroup, int], int]
    """Of each call of side A (its group, and its turn in it), the number."""
    split: frozenset[CallGroup]
    """Groups of other sizes on the two sides, of which both have all calls."""
    uncompared: tuple[str, ...]
    """In words, calls that both sides make and whose results have nothing in common that could be compared."""
    first_uncompared_step: int
    """The step that the first of them belongs to; 0 if there is none."""

    def apply(self, run: RunNumbers) -> RunNumbers:
        """A run of either side with its calls under the numbers of side A; those that only it makes are left out."""
        calls: dict[int, NumberRecord] = {}
        for group, records in group_calls(run).items():
            if group in self.split:
                number = self.numbers[group, 0]
                calls[number] = sum_results_over_calls(records, number)
                continue
            for turn, record in enumerate(records):
                known = self.numbers.get((group, turn))
                if known is not None:
                    calls[known] = replace(record, head={**record.head, "number": known})
        return replace(run, calls=calls)


def align_calls(a: RunNumbers, b: RunNumbers) -> CallAlignment:
    """Pair the calls of two sides. Where a run has more calls than are kept, groups of other sizes are left out."""
    groups = group_calls(a), group_calls(b)
    numbers: dict[tuple[CallGroup, int], int] = {}
    split: set[CallGroup] = set()
    uncompared = []
    first_uncompared_step = 0
    for group, records in groups[0].items():
        others = groups[1].get(group, [])
        are_whole = max(record.number for record in (*records, *others)) <= CALLS_KEPT
        if len(records) != len(others):
            if not others or not are_whole:
                continue
            split.add(group)
        numbers.update({(group, turn): record.number for turn, record in enumerate(records)})
        if not is_any_element_count_equal(records, others):
            uncompared.append(f"{group[1]} before step {group[0] + 1}")
            first_uncompared_step = first_uncompared_step or group[0] + 1
    return CallAlignment(numbers, frozenset(split), tuple(uncompared), first_uncompared_step)


def group_calls(run: RunNumbers) -> dict[CallGroup, list[NumberRecord]]:
    groups: dict[CallGroup, list[NumberRecord]] = defaultdict(list)
    for _, record in sorted(run.calls.items()):
        groups[int(record.head["step"]), str(record.head.get("model", ""))].append(record)
    return groups


def is_any_element_count_equal(records: list[NumberRecord], others: list[NumberRecord]) -> bool:
    """Whether results of two sides have as many elements in all; those of one number, as losses are, need not."""
    one, other = count_elements(records), count_elements(others)
    larger = {key for record in (*records, *others) for key, value in record.values.items() if len(value) > 1}
    return not larger or any(one.get(key) == other.get(key) for key in larger)


def count_elements(records: list[NumberRecord]) -> dict[ItemKey, int]:
    """How many elements each result has in all calls."""
    counts: dict[ItemKey, int] = defaultdict(int)
    for record in records:
        for key, sums in zip(record.values, record.head.get("sums", ()), strict=False):
            counts[key] += int(sums[0])
    return counts


def sum_results_over_calls(records: list[NumberRecord], number: int) -> NumberRecord:
    """One record of several calls: of each result the number of elements, and sums over all of them.

    A result is named after its size as well, so that results of other sizes are not compared.
    """
    totals: dict[ItemKey, Any] = {}
    dtypes: dict[ItemKey, str] = {}
    for record in records:
        for key, sums in zip(record.values, record.head.get("sums", ()), strict=False):
            totals[key] = totals.get(key, 0.0) + np.array(sums[:4])
            dtypes[key] = record.dtypes[key]
    values = {(kind, f"{name} of {int(sums[0])}"): sums[1:] for (kind, name), sums in totals.items()}
    head = {**records[0].head, "number": number, "merged": len(records)}
    return NumberRecord(head, values, {(kind, f"{name} of {int(sums[0])}"): dtypes[kind, name]
                                       for (kind, name), sums in totals.items()})  # fmt: skip


def compare_uses_of_results(
    a: list[OperatorSummary], b: list[OperatorSummary]
) -> Literal["corresponding", "different", "unknown"]:
    """Whether two sides compute the same of results of calls, which may have other sizes: of the last position alone.

    "different": where both compute as much at a line. "unknown": what one side computes is nothing that the other does.
    """
    uses = [
        [at for at, o in enumerate(each) if any(n >= 0 and each[n].name.startswith(RESULT_OF) for n, _ in o.sources)]
        for each in (a, b)
    ]
    marks = mark_corresponding(a, b), mark_corresponding(b, a)
    differing = [
        [each[at] for at in used if not mark[at]] for each, used, mark in zip((a, b), uses, marks, strict=True)
    ]
    if not all(uses):
        return "unknown"
    if not any(differing):
        return "corresponding"
    keys = [{(call_key(o), o.results[0][2][0]) for o in each if o.results} for each in differing]
    return "different" if keys[0] & keys[1] else "unknown"
