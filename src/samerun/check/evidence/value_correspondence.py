"""Which operator first computes something else? Two runs in float64, aligned by the values they compute.

Programs that compute the same in another way (another attention, split batches, a fused optimizer) call other
operators, so events cannot be paired one by one. Values can: an operator's result corresponds if the other run computes
the same value anywhere in that step, or if the parts that a line computes in several calls add up to what the other run
computes there at once.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from samerun.base.user_code import format_source_location
from samerun.check.evidence.run_numbers import NumberRecord, OperatorSummary, RunNumbers
from samerun.record.config import GRADIENTS_DROPPED, INPUT_OF, RECOMPUTED
from samerun.record.trace import format as f

PHASE_ORDER = {f.FORWARD: 0, f.BACKWARD: 1, f.BETWEEN: 2, f.OPTIMIZER: 3}
SCALING = re.compile(r"aten\.(_foreach_)?(div|mul)_?\.")
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


def is_trivial(dtype: str, sums: Any) -> bool:
    """A value that says nothing: empty, all zeros, one number over and over, a whole number, or truth values."""
    count, total, magnitude, squares = sums[0], sums[1], sums[2], sums[3]
    constant = abs(total) == magnitude and abs(squares * count - total * total) <= CLOSE * abs(squares * count)
    plain = constant if count > 1 else total == round(total) if np.isfinite(total) else True
    return bool(count == 0 or magnitude == 0 or plain or dtype == "bool")


def mark_corresponding(operators: list[OperatorSummary], others: list[OperatorSummary]) -> list[bool]:
    """For each operator whether all of its results correspond to values of the other run."""
    index = ValueIndex(others)
    groups, other_groups = sum_first_results(operators), sum_first_results(others)
    marks = [all(index.contains(sums) for _, _, sums in operator.results) for operator in operators]
    marks_in_turn = mark_batch_parts(operators, others)
    for at, operator in enumerate(operators):
        counts = {int(sums[0]) for _, _, sums in operator.results[:1]}
        if not marks[at] and counts:
            key = call_key(operator)
            marks[at] = marks_in_turn[at] or adds_up_in_another_split(
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


def sum_first_results(operators: list[OperatorSummary]) -> dict[Any, SizedGroups]:
    groups: dict[Any, SizedGroups] = defaultdict(dict)
    for operator in operators:
        for _, _, sums in operator.results[:1]:
            group = groups[call_key(operator)].setdefault(int(sums[0]), GroupSums(0, np.zeros(5)))
            group.calls += 1
            group.total = group.total + sums
    return groups


def adds_up_in_another_split(count: int, groups: SizedGroups, others: SizedGroups) -> bool:
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
    odd = [at for at in odd if any("float" in dtype for dtype, _, _ in operators[at].results)] or odd
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
    computed = [o for o in computed if any("float" in dtype and not is_trivial(dtype, s) for dtype, _, s in o.results)]
    return next((o for o in computed if any(sums.tobytes() not in known for _, _, sums in o.results)), None)


# --- in words ----------------------------------------------------------------------------------------------------
def explain_difference(
    record_a: NumberRecord | None, record_b: NumberRecord | None, a64: RunNumbers, b64: RunNumbers, step: int
) -> Culprit | None:
    """What makes the two runs compute something else in a step, as well as it can be told; None if nothing is seen."""
    operators_a, operators_b = a64.operators.get(step, []), b64.operators.get(step, [])
    if record_a is not None and record_b is not None:
        found = (
            explain_by_optimizer_settings(record_a, record_b)
            or explain_draws(record_b, record_a, operators_b, operators_a)
            or explain_clipping_before_unscaling(operators_b, operators_a)
            or explain_dropped_gradients(record_b, record_a)
        )
        if found is not None:
            return found
    ratio = describe_common_gradient_ratio(record_a, record_b) if record_a is not None and record_b is not None else ""
    # Where there are ranks, each computes its part of the batch: only what all of them compute corresponds.
    all_a, all_b = a64.rank_operators.get(step, []), b64.rank_operators.get(step, [])
    culprits = [
        (odd.moment, side, these, odd.operator)
        for side, these, those in (("B", all_b, all_a), ("A", all_a, all_b))
        if (odd := find_odd_operator(these, those)) is not None
    ]
    if culprits:  # an operator that one side lacks shows on the other side, and earlier there
        _, side, these, culprit = min(culprits, key=lambda each: each[0])
        line = find_loss_scaling(these) if ratio else None
        if ratio and line is None and culprit.phase == f.BACKWARD and not culprit.name.startswith("aten."):
            line = find_last_loss(these)  # a collective of data parallelism averages: what it averages is another sum
        named = line if line is not None else culprit
        what = f"{named.name} gives another result on side {side}, though what it is given corresponds"
        return Culprit(
            named.name, named.location.file, named.location.line, f"{ratio}; {what}" if ratio else what
        )  # fmt: skip
    return Culprit("", "", 0, ratio) if ratio else None


def explain_by_optimizer_settings(a: NumberRecord, b: NumberRecord) -> Culprit | None:
    """Another learning rate, weight decay or momentum, and who stepped the scheduler more often."""
    one, other = a.head.get("settings", {}), b.head.get("settings", {})
    ignored = ("foreach", "fused", "differentiable", "capturable")
    names = [n for n in one if n in other and one[n] != other[n] and not n.startswith(ignored)]
    if not names:
        return None
    name = names[0]
    text = (
        f"{name} of the optimizer is {float.fromhex(one[name]):.9g} on side A and {float.fromhex(other[name]):.9g} on B"
    )
    steps_a, steps_b = (r.head.get("scheduler steps so far", {}) for r in (a, b))
    for line in sorted(set(steps_a) | set(steps_b)):
        if steps_a.get(line, 0) != steps_b.get(line, 0):
            text += (
                f": the scheduler was stepped {steps_a.get(line, 0)} times on side A and {steps_b.get(line, 0)} on B"
            )
            file, _, at = line.rpartition(":")
            return Culprit("lr_scheduler.step", file, int(at), text)
    made_a, made_b = (r.head.get("schedulers", {}) for r in (a, b))
    for line, settings in made_b.items():
        for key, value in settings.items():
            other = made_a.get(line, {}).get(key)
            if other is not None and other != value:
                file, _, at = line.rpartition(":")
                text += f": {settings['class']} is made with {key}={other} on side A and {value} on B"
                return Culprit(settings["class"], file, int(at), text)
    file, _, at = b.head.get("line", "").rpartition(":")
    return Culprit("optimizer.step", file, int(at or 0), text)


def explain_draws(
    b: NumberRecord, a: NumberRecord, operators_b: list[OperatorSummary], operators_a: list[OperatorSummary]
) -> Culprit | None:
    """Another number of draws, with the line that draws more often; or masks drawn a second time."""
    drawn_a, drawn_b = (
        Counter((o.name, o.location.file, o.location.line) for o in each if o.is_random)
        for each in (operators_a, operators_b)
    )
    again = b.head.get("lines", {}).get(RECOMPUTED) or a.head.get("lines", {}).get(RECOMPUTED)
    for key in dict.fromkeys((*drawn_b, *drawn_a)):
        if drawn_a[key] == drawn_b[key]:
            continue
        name, file, line = key
        times_a, times_b = ("once" if n == 1 else f"{n} times" for n in (drawn_a[key], drawn_b[key]))
        text = f"{name} draws {times_a} in this step on side A and {times_b} on B"
        if again and drawn_b[key] > drawn_a[key]:
            file, _, at = next(iter(again)).rpartition(":")
            drawn_at = format_source_location(key[1], key[2])
            text += f": the recomputation of {drawn_at} does not restore the random states (preserve_rng_state=False)"
            line = int(at)
        elif drawn_b[key] > drawn_a[key] > 0 and any(o.phase == f.BACKWARD and o.is_random for o in operators_b):
            text += ": numbers are drawn again in the backward pass"
        return Culprit(name, file, line, text)
    return None


def explain_clipping_before_unscaling(
    operators_b: list[OperatorSummary], operators_a: list[OperatorSummary]
) -> Culprit | None:
    """Gradients that are clipped while they are still scaled, on one side only."""
    clipped_b, clipped_a = find_clipping_before_unscaling(operators_b), find_clipping_before_unscaling(operators_a)
    if (clipped_b is None) == (clipped_a is None):
        return None
    clipped = clipped_b or clipped_a
    assert clipped is not None
    side = "B" if clipped_b is not None else "A"
    text = f"on side {side} gradients are clipped before they are unscaled"
    return Culprit(clipped.name, clipped.location.file, clipped.location.line, text)


def explain_dropped_gradients(b: NumberRecord, a: NumberRecord) -> Culprit | None:
    """Gradients that are set to zero between the backward pass and the step, on one side only."""
    for side, one, other in (("B", b, a), ("A", a, b)):
        lines, others = (record.head.get("lines", {}).get(GRADIENTS_DROPPED, {}) for record in (one, other))
        for where in lines:
            if where not in others:
                file, _, line = where.rpartition(":")
                return Culprit("zero_grad", file, int(line), f"on side {side} {GRADIENTS_DROPPED}")
    return None


def find_clipping_before_unscaling(operators: list[OperatorSummary]) -> OperatorSummary | None:
    """The norm of gradients that is taken after the backward pass and before a scaler unscales them."""
    unscaled = next((at for at, o in enumerate(operators) if "_check_and_unscale" in o.name), None)
    if unscaled is None:
        return None
    begin = max((at for at, o in enumerate(operators[:unscaled]) if o.phase == f.BACKWARD), default=0)
    return next((o for o in operators[begin:unscaled] if "norm" in o.name and o.location.line), None)


def describe_common_gradient_ratio(a: NumberRecord, b: NumberRecord) -> str:
    """In words, if every gradient of side B is the same multiple of that of side A: another denominator."""
    ratios = []
    for key, x in a.values.items():
        y = b.values.get(key)
        if key[0] != "gradient" or y is None or len(x) != len(y) or not np.any(x):
            continue
        ratio = float(np.dot(x, y) / np.dot(x, x))
        if np.linalg.norm(y - ratio * x) > 1e-5 * np.linalg.norm(y):
            return ""
        ratios.append(ratio)
    if not ratios or max(ratios) - min(ratios) > 1e-5 * abs(ratios[0]) or abs(ratios[0] - 1) < 1e-5:
        return ""
    return f"every gradient of side B is {ratios[0]:.6g} times that of side A: another denominator or factor"


def find_loss_scaling(operators: list[OperatorSummary]) -> OperatorSummary | None:
    """The line that divides or scales a loss (one number, in the forward pass), or else the gradients after it."""
    last = max((at for at, o in enumerate(operators) if o.phase == f.BACKWARD), default=-1)
    scaling = [(at, o) for at, o in enumerate(operators) if o.location.line and SCALING.match(o.name)]
    of_loss = [o for at, o in scaling if o.phase == f.FORWARD and at < last
               and all(count == 1 for count in result_element_counts(o))]  # fmt: skip
    of_gradients = [o for at, o in scaling if o.phase in (f.FORWARD, f.BETWEEN) and at > last
                    and all(count != 1 for count in result_element_counts(o))]  # fmt: skip
    return next(iter([*of_loss[-1:], *of_gradients[-1:]]), None)


def find_last_loss(operators: list[OperatorSummary]) -> OperatorSummary | None:
    """The last operator of the forward pass that gives one number, before the backward pass."""
    first = next((at for at, o in enumerate(operators) if o.phase == f.BACKWARD), 0)
    forward = [o for o in operators[:first] if o.location.line and o.phase == f.FORWARD]
    return next((o for o in reversed(forward) if 1 in result_element_counts(o) and "ones_like" not in o.name), None)


def result_element_counts(operator: OperatorSummary) -> list[float]:
    """How many elements each result of an operator has."""
    return [sums[0] for _, _, sums in operator.results]
