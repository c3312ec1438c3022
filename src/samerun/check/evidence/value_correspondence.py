"""Which operator first computes something else? Two runs in float64, aligned by the values they compute.

Programs that compute the same in another way (another attention, split batches, a fused optimizer) call other
operators, so events cannot be paired one by one. Values can: an operator's result corresponds if the other run computes
the same value anywhere in that step, or if the parts that a line computes in several calls add up to what the other run
computes there at once.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from samerun.check.evidence.run_numbers import OperatorSummary
from samerun.record.config import INPUT_OF
from samerun.record.trace import format as f

PHASE_ORDER = {f.FORWARD: 0, f.BACKWARD: 1, f.BETWEEN: 2, f.OPTIMIZER: 3}
CLOSE = 2.0**-36
"""Values that are so close, relative to the sum of their magnitudes, are the same in float64, with its rounding."""


@dataclass(frozen=True)
class Culprit:
    """The operator that first gives another result though what it is given corresponds; `why`, in words."""

    operator: str
    file: str
    line: int
    why: str


class OddOperator(NamedTuple):
    """An operator whose result corresponds to nothing, and how many operators before it correspond."""

    operator: OperatorSummary
    corresponding_before: int

    @property
    def moment(self) -> tuple[int, int]:
        """Sort key: phase, and in it how much corresponds before. In the forward pass each side has its own way."""
        phase = PHASE_ORDER.get(self.operator.phase, 2)
        return phase, self.corresponding_before if phase else 0


class ValueIndex:
    """The values that a run computes in a step, found again by their sums."""

    def __init__(self, operators: list[OperatorSummary]) -> None:
        by_count: dict[int, list[Any]] = defaultdict(list)
        for operator in operators:
            for _, _, sums in operator.results:
                by_count[int(sums[0])].append(sums)
        self.by_count = {count: np.array(rows)[:, 1:] for count, rows in by_count.items()}

    def contains(self, sums: Any) -> bool:
        rows = self.by_count.get(int(sums[0]))
        return rows is not None and bool(np.any(are_sums_of_same_value(rows, sums[1:], sums[2])))


def are_sums_of_same_value(rows_of_sums: Any, sums: Any, magnitude: float) -> Any:
    """For each row of sums (plain, of magnitudes, of squares, weighted), whether it is that of the same value."""
    with np.errstate(invalid="ignore", over="ignore"):
        sizes = np.maximum(np.abs(rows_of_sums[:, 1]), magnitude)
        apart = np.abs(rows_of_sums - sums)
        near = (apart[:, 0] <= CLOSE * sizes) & (apart[:, 1] <= CLOSE * sizes) & (apart[:, 3] <= 2 * CLOSE * sizes)
        near &= apart[:, 2] <= CLOSE * np.maximum(np.abs(rows_of_sums[:, 2]), abs(sums[2]))
    both_odd = ~np.isfinite(rows_of_sums[:, 0]) & ~np.isfinite(sums[0])
    return near | both_odd


def is_number_dtype(dtype: str) -> bool:
    """Whether values of a dtype are what a program computes, not indices, lengths or truth values."""
    return "float" in dtype or "complex" in dtype


def is_trivial(dtype: str, sums: Any) -> bool:
    """A value that says nothing: empty, all zeros, one number over and over, a whole number, or truth values."""
    count, total, magnitude, squares = sums[0], sums[1], sums[2], sums[3]
    constant = abs(total) == magnitude and abs(squares * count - total * total) <= CLOSE * abs(squares * count)
    plain = constant if count > 1 else total == round(total) if np.isfinite(total) else True
    return bool(count == 0 or magnitude == 0 or plain or dtype == "bool")


def mark_corresponding(operators: list[OperatorSummary], others: list[OperatorSummary]) -> list[bool]:
    """For each operator whether all of its results correspond to values of the other run."""
    index = ValueIndex(others)
    groups, other_groups = group_first_results_by_call_and_size(operators), group_first_results_by_call_and_size(others)
    marks = [all(index.contains(sums) for _, _, sums in operator.results) for operator in operators]
    marks_in_turn = mark_batch_parts(operators, others)
    for at, operator in enumerate(operators):
        counts = {int(sums[0]) for _, _, sums in operator.results[:1]}
        if not marks[at] and counts:
            key = call_key(operator)
            marks[at] = marks_in_turn[at] or sums_match_in_different_split(
                counts.pop(), groups[key], other_groups.get(key, {})
            )
    return marks


def call_key(operator: OperatorSummary) -> tuple[Any, ...]:
    return operator.name, operator.phase, operator.location


def mark_batch_parts(operators: list[OperatorSummary], others: list[OperatorSummary]) -> list[bool]:
    """Marks operators of a line that the other run calls a whole number of times less, or more, often.

    Every part of a batch goes through the same calls in the same order: call n is a part of call n modulo their number.
    """
    marks = [False] * len(operators)
    calls, other_calls = list_call_indices(operators), list_call_indices(others)
    for key, numbers in calls.items():
        other_numbers = other_calls.get(key, [])
        fewer = min(len(numbers), len(other_numbers))
        if not fewer or len(numbers) == len(other_numbers) or (len(numbers) + len(other_numbers)) % fewer:
            continue
        for turn in range(fewer):
            one, other = (
                GroupSums(len(each[turn::fewer]), sum((run[at].results[0][2] for at in each[turn::fewer]), np.zeros(5)))
                for run, each in ((operators, numbers), (others, other_numbers))
            )
            are_addends = one.calls * other.total[0] == other.calls * one.total[0]
            if add_up(one, other, are_addends) and (are_addends or one.total[0] == other.total[0]):
                for at in numbers[turn::fewer]:
                    marks[at] = True
    return marks


def list_call_indices(operators: list[OperatorSummary]) -> dict[tuple[Any, ...], list[int]]:
    """The numbers of the calls of each operator at each line."""
    calls: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for at, operator in enumerate(operators):
        if operator.results:
            calls[call_key(operator)].append(at)
    return calls


@dataclass
class GroupSums:
    """The calls of one operator at one line with results of one size: how many, and their sums added up."""

    calls: int
    total: Any


SizedGroups = dict[int, GroupSums]
"""The calls of one operator at one line, by the number of elements of their result."""


def group_first_results_by_call_and_size(operators: list[OperatorSummary]) -> dict[Any, SizedGroups]:
    groups: dict[Any, SizedGroups] = defaultdict(dict)
    for operator in operators:
        for _, _, sums in operator.results[:1]:
            group = groups[call_key(operator)].setdefault(int(sums[0]), GroupSums(0, np.zeros(5)))
            group.calls += 1
            group.total = group.total + sums
    return groups


def sums_match_in_different_split(count: int, groups: SizedGroups, others: SizedGroups) -> bool:
    """Whether calls with results of `count` elements are the parts of what the other run computes in other calls.

    The parts are addends (gradients of a weight: as many elements each), or rows shared out (as many in all, in equal
    parts or in whatever parts the line has).
    """
    own = groups[count]
    if count in others and own.calls != others[count].calls and add_up(own, others[count], True):
        return True
    rest = [group for size, group in groups.items() if not (size in others and add_up(group, others[size], True))]
    both = GroupSums(sum(g.calls for g in rest), sum((g.total for g in rest), np.zeros(5)))
    for other in others.values():
        for one in (own, both):
            if one.calls != other.calls and one.total[0] == other.total[0] and add_up(one, other, False):
                return True
    return False


def add_up(one: GroupSums, other: GroupSums, are_addends: bool) -> bool:
    """Whether the sums that must be kept are the same: of addends the linear ones, of rows those without order."""
    size = max(one.total[2], other.total[2])
    apart = np.abs(one.total - other.total)
    if are_addends:
        return bool(apart[1] <= CLOSE * size and apart[4] <= 2 * CLOSE * size)
    squares = max(one.total[3], other.total[3])
    return bool(apart[1] <= CLOSE * size and apart[2] <= CLOSE * size and apart[3] <= CLOSE * squares)


def find_odd_operator(operators: list[OperatorSummary], others: list[OperatorSummary]) -> OddOperator | None:
    """The first operator whose results correspond to nothing, and from which nothing that corresponds is computed.

    What is computed in another way inside (another attention) does not correspond, but its result does again.
    """
    marks = mark_corresponding(operators, others)
    rejoins = mark_rejoining(operators, others, marks)
    odd = [at for at in range(len(operators)) if not marks[at] and not rejoins[at]]
    odd = [at for at in odd if operators[at].location.line] or odd
    # Indices and lengths are how a library keeps its books; what is computed tells more.
    odd = [at for at in odd if any(is_number_dtype(dtype) for dtype, _, _ in operators[at].results)] or odd
    # A loss is one number, whose share in a split batch corresponds to nothing: it is named only if it is all there is.
    larger = [at for at in odd if any(sums[0] > 1 for _, _, sums in operators[at].results)]
    first = next(iter(larger or odd), None)
    return OddOperator(operators[first], sum(marks[:first])) if first is not None else None


def mark_rejoining(operators: list[OperatorSummary], others: list[OperatorSummary], marks: list[bool]) -> list[bool]:
    """For each operator that does not correspond, whether every result that is used does, or leads to what does."""
    index = ValueIndex(others)
    fine = [[index.contains(sums) for _, _, sums in operator.results] for operator in operators]
    used: list[set[int]] = [set() for _ in operators]
    rejoins = [False] * len(operators)
    for at in range(len(operators) - 1, -1, -1):
        operator = operators[at]
        rejoins[at] = not marks[at] and any(fine[at]) and all(fine[at][number] for number in used[at])
        telling = marks[at] and any(not is_trivial(dtype, sums) for dtype, _, sums in operator.results)
        for source, number in operator.sources:
            # The backward of a loss takes the forward's result and may use its shape alone: that proves nothing.
            saved = operator.phase == f.BACKWARD and source >= 0 and operators[source].phase != f.BACKWARD
            if 0 <= source < at and number < len(fine[source]) and not saved:
                used[source].add(number)
                fine[source][number] |= telling or rejoins[at]
    return rejoins


def find_operator_with_new_value(
    operators: list[OperatorSummary], others: list[OperatorSummary]
) -> OperatorSummary | None:
    """The first operator at a line of the program with a result that the other run does not compute, bit by bit."""
    known = {sums.tobytes() for other in others for _, _, sums in other.results}
    computed = [o for o in operators if o.location.line and not o.name.startswith(INPUT_OF)]
    computed = [
        o for o in computed if any(is_number_dtype(dtype) and not is_trivial(dtype, s) for dtype, _, s in o.results)
    ]
    return next((o for o in computed if any(sums.tobytes() not in known for _, _, sums in o.results)), None)
