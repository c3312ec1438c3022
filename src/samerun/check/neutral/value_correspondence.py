"""Which operator first computes something else? Two runs in float64, aligned by the values they compute.

Programs that compute the same in another way (another attention, split batches, a fused optimizer) call other
operators, so events cannot be paired one by one. Values can: an operator's result corresponds if the other run computes
the same value anywhere in that step, or if the parts that a line computes in several calls add up to what the other run
computes there at once.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from samerun.check.neutral.operator_roles import mark_leading_to_gradients, mark_sent_to_one_rank
from samerun.check.neutral.run_numbers import OperatorSummary
from samerun.record.config import INPUT_OF, RESULT_OF
from samerun.record.trace import format as f

PHASE_ORDER = {f.FORWARD: 0, f.BACKWARD: 1, f.BETWEEN: 2, f.OPTIMIZER: 3}
CLOSE = 2.0**-36
"""Values that are so close, relative to the sum of their magnitudes, are the same in float64, with its rounding."""


MOVES_ELEMENTS = re.compile(
    r"aten\.(index|gather|take|scatter|select|slice|clone|copy|_to_copy|cat|stack|flip|roll|sort|argsort|embedding|"
    r"as_strided|repeat|expand|constant_pad|pad|pixel|channel_shuffle|im2col|col2im|unfold|view|tril|triu|randperm|_unsafe)"
    rf"|{INPUT_OF}"
)
"""Operators whose results hold elements of their operands in another order."""
JOINS = re.compile(r"aten\.(cat|stack)\.")
"""Operators that put several values together."""
CONSTANT = re.compile(r"aten\.((new_)?(zeros|ones|full|scalar_tensor)(_like)?|zero_)\.")
"""Operators that compute nothing: what is filled with one number has the size that each side needs."""
MADE_OF_NUMBERS = re.compile(
    rf"{CONSTANT.pattern}|aten\.(arange|linspace|logspace|eye|tril_indices|triu_indices|empty|new_empty)\."
)


MOST_RESULTS = 4
"""So many results of an operator are compared with those of several operators."""


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
    leads_to_gradients: bool

    @property
    def moment(self) -> tuple[int, int]:
        """Sort key: phase, and in it how much corresponds before. In the forward pass each side has its own way."""
        phase = PHASE_ORDER.get(self.operator.phase, 2)
        if self.leads_to_gradients and self.operator.phase == f.BETWEEN:
            phase = 0  # a function with a backward pass of its own runs without gradients
        return phase, self.corresponding_before if phase else 0


class ValueIndex:
    """The values that a run computes in a step, found again by their sums."""

    def __init__(self, operators: list[OperatorSummary]) -> None:
        by_count: dict[int, list[Any]] = defaultdict(list)
        for operator in operators:
            for _, _, sums in operator.results:
                by_count[int(sums[0])].append(sums)
        self.by_count = {count: np.array(rows)[:, 1:] for count, rows in by_count.items()}

    def contains(self, sums: Any, in_any_order: bool = False, scale: float = 1.0) -> bool:
        """Whether there is the value that has these sums, or (`scale`) the one that many times smaller."""
        rows = self.by_count.get(int(sums[0]))
        if rows is None:
            return False
        if bool(np.any(are_sums_of_same_value(rows, sums[1:], sums[2], in_any_order))):
            return True
        return scale != 1.0 and self.contains(sums / (1.0, scale, abs(scale), scale * scale, scale), in_any_order)

    def contains_with_more_or_fewer_zeros(self, dtype: str, sums: Any) -> bool:
        """Whether there is a value of another size whose sums are these: padded, or without its padding."""
        if not np.isfinite(sums).all() or is_trivial(dtype, sums) or not is_number_dtype(dtype):
            return False
        return any(
            bool(np.any(are_sums_of_same_value(rows, sums[1:], sums[2], in_any_order=True)))
            for count, rows in self.by_count.items()
            if count > 1 and sums[0] > 1 and count != int(sums[0])
        )

    def contains_telling_results_of(self, operator: OperatorSummary) -> bool:
        """Whether there is every value that an operator gives and that says something."""
        return all(is_trivial(dtype, sums) or self.contains(sums) for dtype, _, sums in operator.results)


class LossScale(NamedTuple):
    """Each value of a side from its operator number `begin` on may be `factor` times that of the other side."""

    factor: float = 1.0
    begin: int = 0

    def at(self, operator: int) -> float:
        return self.factor if operator >= self.begin else 1.0


UNSCALED = LossScale()


def are_sums_of_same_value(rows_of_sums: Any, sums: Any, magnitude: float, in_any_order: bool = False) -> Any:
    """For each row of sums (plain, of magnitudes, of squares, weighted), whether it is that of the same value.

    in_any_order: or of one with the same elements in another order.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        sizes = np.maximum(np.abs(rows_of_sums[:, 1]), magnitude)
        apart = np.abs(rows_of_sums - sums)
        near = (apart[:, 0] <= CLOSE * sizes) & (apart[:, 1] <= CLOSE * sizes)
        near &= in_any_order | (apart[:, 3] <= 2 * CLOSE * sizes)
        near &= apart[:, 2] <= CLOSE * np.maximum(np.abs(rows_of_sums[:, 2]), abs(sums[2]))
    near &= np.isfinite(rows_of_sums).all(1)  # everything is close to what is infinite
    # Infinite masks: what is infinite or no number must be the same in each sum.
    same = (rows_of_sums == sums) | (np.isnan(rows_of_sums) & np.isnan(sums))
    both_odd = ~np.isfinite(rows_of_sums[:, 0]) & ~np.isfinite(sums[0]) & (same | np.isfinite(sums)).all(1)
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


def mark_corresponding(
    operators: list[OperatorSummary], others: list[OperatorSummary], scale: LossScale = UNSCALED
) -> list[bool]:
    """For each operator whether all of its results correspond to values of the other run."""
    index = ValueIndex(others)
    groups, other_groups = group_results_by_call_and_size(operators), group_results_by_call_and_size(others)
    # Where one side has its batch in another dimension, arithmetic gives the same elements in another order. An
    # operator that moves elements is what may put them into a wrong one.
    marks = [
        all(
            index.contains(sums, not MOVES_ELEMENTS.match(operator.name), scale.at(at)) for *_, sums in operator.results
        )
        for at, operator in enumerate(operators)
    ]
    marks_in_turn = mark_batch_parts(operators, others)
    by_kind: dict[tuple[Any, ...], list[SizedGroups]] = defaultdict(list)
    # All that each call of a line gives, or all calls of it together, by how many elements that has.
    by_elements: dict[int, list[GroupSums]] = defaultdict(list)
    for key, group in other_groups.items():
        by_kind[key[:2]].append(group)
        by_kind[key[1:]].append(group)
    # One side may have an operator for each of several results of one operator of the other (fused backward passes).
    more = (group_results_by_call_and_size(others, number) for number in range(1, MOST_RESULTS))
    for group in itertools.chain.from_iterable(each.values() for each in (other_groups, *more)):
        for each in (*group.values(), *([add_groups(group.values())] if len(group) > 1 else ())):
            by_elements[int(each.total[0])].append(each)
    joined_there = {int(o.results[0][2][0]) for o in others if JOINS.match(o.name) and o.results}
    for at, operator in enumerate(operators):
        if not marks[at] and operator.results:
            key = call_key(operator)
            # What one side computes in parts may be at a line of its own there, or (vmap) be another operator.
            same = (
                [other_groups[key]] if key in other_groups else [*by_kind.get(key[:2], ()), *by_kind.get(key[1:], ())]
            )
            dtype, _, sums = operator.results[0]
            count = int(sums[0])
            own = groups[key][count]  # sample by sample in a loop, or all at once by another operator (vmap)
            marks[at] = (
                marks_in_turn[at]
                # Of one side alone, as a flat optimizer is: nothing there tells of the order of the parts.
                or (
                    JOINS.match(operator.name) is not None
                    and count not in joined_there
                    and all(source < 0 or marks[source] for source, _ in operator.sources)
                )
                or index.contains_with_more_or_fewer_zeros(dtype, sums)
                or any(sums_match_in_different_split(count, groups[key], each) for each in same)
                or any(
                    one.calls != each.calls and add_up(one, each, are_addends=False)
                    for one in (own, GroupSums(1, sums))
                    for each in by_elements[int(one.total[0])]
                )
            )
    return marks


def call_key(operator: OperatorSummary) -> tuple[Any, ...]:
    return operator.name, operator.phase, operator.location


def find_same_call(
    operator: OperatorSummary, these: list[OperatorSummary], others: list[OperatorSummary]
) -> OperatorSummary | None:
    """Call n of an operator at a line on the other side, for call n of these; None if there are not so many."""
    turn = [o is operator for o in these if call_key(o) == call_key(operator)].index(True)
    return next(itertools.islice((o for o in others if call_key(o) == call_key(operator)), turn, None), None)


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


def add_groups(groups: Collection[GroupSums]) -> GroupSums:
    return GroupSums(sum(g.calls for g in groups), sum((g.total for g in groups), np.zeros(5)))


def group_results_by_call_and_size(operators: list[OperatorSummary], number: int = 0) -> dict[Any, SizedGroups]:
    """Of each call at each line the results with that number (0: the first, and mostly the only one)."""
    groups: dict[Any, SizedGroups] = defaultdict(dict)
    for operator in operators:
        for _, _, sums in operator.results[number : number + 1]:
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
    both, all_others = add_groups(rest), add_groups(others.values())
    for other in (*others.values(), all_others):
        for one in (own, both):
            if one.calls != other.calls and one.total[0] == other.total[0] and add_up(one, other, False):
                return True
    return False


def add_up(one: GroupSums, other: GroupSums, are_addends: bool) -> bool:
    """Whether the sums that must be kept are the same: of addends the linear ones, of rows those without order."""
    if not np.isfinite((one.total, other.total)).all():  # everything is close to what is infinite
        return np.array_equal(one.total[1:], other.total[1:], equal_nan=True)
    size = max(one.total[2], other.total[2])
    apart = np.abs(one.total - other.total)
    if are_addends:
        return bool(apart[1] <= CLOSE * size and apart[4] <= 2 * CLOSE * size)
    squares = max(one.total[3], other.total[3])
    return bool(apart[1] <= CLOSE * size and apart[2] <= CLOSE * size and apart[3] <= CLOSE * squares)


def find_first_noncorresponding_operator(
    operators: list[OperatorSummary], others: list[OperatorSummary], are_losses_whole: bool = False,
    scale: LossScale = UNSCALED,
) -> OddOperator | None:  # fmt: skip
    """The first operator whose results correspond to nothing, and from which nothing that corresponds is computed.

    What is computed in another way inside (another attention) does not correspond, but its result does again.
    are_losses_whole: neither side splits its batch, so that losses correspond as everything else does.
    """
    marks = mark_corresponding(operators, others, scale)
    rejoins = mark_rejoining(operators, others, marks, scale)
    odd = [at for at in range(len(operators)) if not marks[at] and not rejoins[at]]
    prepared = mark_built_from_constants_on_one_side_only(operators, others)
    odd = [at for at in odd if operators[at].location.line] or odd
    # Indices and lengths are how a library keeps its books; what is computed tells more.
    odd = [at for at in odd if any(is_number_dtype(dtype) for dtype, _, _ in operators[at].results)] or odd
    odd = [at for at in odd if not CONSTANT.match(operators[at].name)] or odd
    odd = [at for at in odd if not prepared[at]] or odd
    sent = mark_sent_to_one_rank(operators)
    odd = [at for at in odd if not sent[at]] or odd
    # A loss is one number, whose share in a split batch corresponds to nothing: it is named only if it is all there is.
    # One number that leads to no gradient is for the log.
    trained = mark_leading_to_gradients(operators)
    counts = trained if are_losses_whole else [False] * len(operators)
    larger = [at for at in odd if counts[at] or any(sums[0] > 1 for _, _, sums in operators[at].results)]
    first = next(iter(larger or odd), None)
    return OddOperator(operators[first], sum(marks[:first]), trained[first]) if first is not None else None


def mark_built_from_constants_on_one_side_only(
    operators: list[OperatorSummary], others: list[OperatorSummary]
) -> list[bool]:
    """For each operator whether it computes with constants alone (positions, masks), and the other side has no such
    call with a result of that size: what each side prepares for its own way is wrong only by what it is used for.
    """
    there = {(call_key(o), int(sums[0])) for o in others for _, _, sums in o.results}
    constant: list[bool] = []
    for at, o in enumerate(operators):
        made_here = [0 <= source < at and constant[source] for source, _ in o.sources]
        is_made = all(made_here) if made_here else bool(MADE_OF_NUMBERS.match(o.name))
        constant.append(is_made and not o.is_random and not o.name.startswith((INPUT_OF, RESULT_OF)))
    return [
        constant[at] and all((call_key(o), int(sums[0])) not in there for _, _, sums in o.results)
        for at, o in enumerate(operators)
    ]


def mark_rejoining(
    operators: list[OperatorSummary], others: list[OperatorSummary], marks: list[bool], scale: LossScale = UNSCALED
) -> list[bool]:
    """For each operator that does not correspond, whether every result that is used does, or leads to what does."""
    index = ValueIndex(others)
    fine = [[index.contains(sums, scale=scale.at(at)) for _, _, sums in operator.results]
            for at, operator in enumerate(operators)]  # fmt: skip
    used: list[set[int]] = [set() for _ in operators]
    rejoins = [False] * len(operators)
    for at in range(len(operators) - 1, -1, -1):
        operator = operators[at]
        # What nothing uses counts by its first result: a fused optimizer writes parameters, and then its own state.
        counting = used[at] or {0}
        rejoins[at] = not marks[at] and any(fine[at]) and all(fine[at][number] for number in counting)
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
    computed = [o for o in operators if o.location.line and not o.name.startswith((INPUT_OF, RESULT_OF))]
    computed = [
        o for o in computed if any(is_number_dtype(dtype) and not is_trivial(dtype, s) for dtype, _, s in o.results)
    ]
    return next((o for o in computed if any(sums.tobytes() not in known for _, _, sums in o.results)), None)
