"""Which calls of models without gradients are the same call on both sides of a neutral switch.

Calls are paired by the step they belong to, their model, and their turn: a side that calls more often in one step must
not shift those of the next. Where a step calls a model more often on one side (smaller batches, parts of a sequence),
all those calls are taken as one, of which what does not depend on how it is split is compared: sums over all elements.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from samerun.check.neutral.run_numbers import NumberRecord, OperatorSummary, RunNumbers
from samerun.check.neutral.value_correspondence import call_key, mark_corresponding
from samerun.record.comparison.rounding import ItemKey
from samerun.record.config import CALLS_KEPT, RESULT_OF

CallGroup = tuple[int, str]
"""The calls of one model in one step: the step, and the class of the model."""


class PairedCall(NamedTuple):
    """The number that a call gets on both sides, and those of its results that have as many elements on both."""

    number: int
    keys: frozenset[ItemKey]


@dataclass(frozen=True)
class CallAlignment:
    """The numbers that calls get, so that those of both sides, and of their reruns, are the same ones."""

    pairs: dict[tuple[CallGroup, int], PairedCall]
    """By the group of a call, and its turn in it: as on side A."""
    split: dict[CallGroup, int]
    """Groups that share the same work out in other calls on side B, of which both have all calls, and their numbers."""
    uncompared: tuple[str, ...]
    """In words, calls that both sides make and whose results have nothing in common that could be compared."""
    first_uncompared_step: int
    """The step that the first of them belongs to; 0 if there is none."""
    ends_uncompared: bool
    """Whether a step has such calls and no call behind them that is compared: they are no steps on the way to it."""

    def apply(self, run: RunNumbers) -> RunNumbers:
        """A run of either side with its calls under the numbers of side A; those that only it makes are left out."""
        calls: dict[int, NumberRecord] = {}
        for group, records in group_calls(run).items():
            if group in self.split:
                calls[self.split[group]] = sum_results_over_calls(records, self.split[group])
                continue
            for turn, record in enumerate(records):
                pair = self.pairs.get((group, turn))
                if pair is not None:
                    values = {key: value for key, value in record.values.items() if key in pair.keys}
                    head = {**record.head, "number": pair.number}
                    calls[pair.number] = replace(record, head=head, values=values)
        return replace(run, calls=calls)


def align_calls(a: RunNumbers, b: RunNumbers) -> CallAlignment:
    """Pair the calls of two sides. Where a run has more calls than are kept, groups of other sizes are left out."""
    groups = group_calls(a), group_calls(b)
    pairs: dict[tuple[CallGroup, int], PairedCall] = {}
    split: dict[CallGroup, int] = {}
    uncompared = []
    # By step, the calls with results of more than one element, and whether such results are compared.
    larger_calls: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    for group, records in groups[0].items():
        others = groups[1].get(group, [])
        are_whole = max(record.number for record in (*records, *others)) <= CALLS_KEPT
        if not others or not (are_whole or len(records) == len(others)):
            continue
        same = [find_results_of_equal_size(r, o) for r, o in zip(records, others, strict=False)]
        larger = list_results_of_several_elements(records, others)
        is_turn_by_turn = len(records) == len(others) and bool(
            frozenset.intersection(*same) & (larger or records[0].values.keys())
        )
        is_same_work = is_turn_by_turn or is_any_element_count_equal(records, others)
        if not is_turn_by_turn and are_whole and (is_same_work or len(records) != len(others)):
            split[group] = records[0].number
            larger_calls[group[0]].append((records[-1].number, is_same_work))
        else:
            for turn, (record, keys) in enumerate(zip(records, same, strict=True)):
                pairs[group, turn] = PairedCall(record.number, keys)
                if any(len(value) > 1 for value in record.values.values()):
                    is_compared = any(len(record.values[key]) > 1 for key in keys)
                    larger_calls[group[0]].append((record.number, is_compared))
        if not is_same_work:
            uncompared.append((group[0] + 1, group[1]))
    return CallAlignment(
        pairs, split, tuple(f"{model} before step {step}" for step, model in uncompared),
        uncompared[0][0] if uncompared else 0,
        any(not max(larger_calls[step - 1])[1] for step, _ in uncompared if step - 1 in larger_calls),
    )  # fmt: skip


def group_calls(run: RunNumbers) -> dict[CallGroup, list[NumberRecord]]:
    groups: dict[CallGroup, list[NumberRecord]] = defaultdict(list)
    for _, record in sorted(run.calls.items()):
        groups[int(record.head["step"]), str(record.head.get("model", ""))].append(record)
    return groups


def is_any_element_count_equal(records: list[NumberRecord], others: list[NumberRecord]) -> bool:
    """Whether results of two sides have as many elements in all; those of one number, as losses are, need not."""
    one, other = count_elements(records), count_elements(others)
    larger = list_results_of_several_elements(records, others)
    return not larger or any(one.get(key) == other.get(key) for key in larger)


def list_results_of_several_elements(records: list[NumberRecord], others: list[NumberRecord]) -> set[ItemKey]:
    return {key for record in (*records, *others) for key, value in record.values.items() if len(value) > 1}


def find_results_of_equal_size(record: NumberRecord, other: NumberRecord) -> frozenset[ItemKey]:
    one, counts = count_elements([record]), count_elements([other])
    return frozenset(key for key in record.values if one.get(key) == counts.get(key))


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
