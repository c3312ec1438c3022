"""What makes two runs compute something else in a step, in words: what has a name of its own first, then by values."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from samerun.base.user_code import format_source_location
from samerun.check.neutral.backward_pass_differences import (
    explain_gradients_taken_further,
    explain_missing_gradients,
    explain_recomputation,
    explain_scaler_update_between_microbatches,
    explain_uneven_steps,
    find_varying_factor,
)
from samerun.check.neutral.detached_values import explain_detached_value, find_collective_without_gradient
from samerun.check.neutral.draw_differences import explain_by_random_call_counts, find_seeding_line_of_one_side
from samerun.check.neutral.loss_scaling import (
    SCALING,
    GradientRatio,
    find_common_gradient_ratio,
    find_last_scalar_result_before_backward,
    find_loss_scales,
    find_loss_scaling,
    find_scaling_that_makes_ratio,
    result_element_counts,
)
from samerun.check.neutral.operator_roles import IN_PLACE
from samerun.check.neutral.parameter_writes import (
    explain_parameter_moved_without_gradient,
    explain_parameter_written_between_steps,
    find_write_read_on_one_side,
)
from samerun.check.neutral.run_numbers import (
    NumberRecord,
    OperatorSummary,
    RunNumbers,
    find_caller_of_one_side,
    parse_source_line,
)
from samerun.check.neutral.setting_differences import explain_by_optimizer_settings
from samerun.check.neutral.side_choice import (
    OddOperatorOfSide,
    choose_side,
    find_indices_of_one_side,
    find_line_writing_the_rest,
    is_padded_to_other_length,
    reads_statistics,
)
from samerun.check.neutral.value_correspondence import (
    MOVES_ELEMENTS,
    UNSCALED,
    Culprit,
    ValueIndex,
    find_first_noncorresponding_operator,
    find_same_call,
)
from samerun.record.config import BACK_IN_TRAINING, GRADIENTS_DROPPED, OVERWRITTEN
from samerun.record.trace import format as f


def explain_difference(
    record_a: NumberRecord | None, record_b: NumberRecord | None, a64: RunNumbers, b64: RunNumbers, step: int
) -> Culprit | None:
    """What makes the two runs compute something else in a step, as well as it can be told; None if nothing is seen."""
    operators_a, operators_b = a64.operators.get(step, []), b64.operators.get(step, [])
    ratio = None
    if record_a is not None and record_b is not None:
        ratio = find_common_gradient_ratio(record_a, record_b)
        found = (
            explain_by_optimizer_settings(record_a, record_b, operators_b)
            or explain_by_random_call_counts(record_b, record_a, operators_b, operators_a)
            or explain_clipping_before_unscaling(operators_b, operators_a, ratio is not None)
            or explain_detached_value(operators_b, operators_a)
            or explain_gradients_taken_further(operators_b, operators_a)
            # Of two optimizers in turn, the one may find what the backward pass for the other has left.
            or explain_gradients_taken_further(b64.operators.get(step - 1, []), a64.operators.get(step - 1, []))
            or explain_by_line_of_one_side(record_b, record_a, GRADIENTS_DROPPED, "zero_grad")
            or explain_recomputation(record_b, record_a, operators_b, operators_a)
            or explain_by_line_of_one_side(
                b64.steps.get(step), a64.steps.get(step), OVERWRITTEN, "aten.index_put_.default"
            )
            or explain_scaler_update_between_microbatches(record_b, record_a)
            or explain_uneven_steps(b64.steps, a64.steps)
            or explain_missing_gradients(record_b, record_a, operators_b, operators_a)
            or explain_parameter_moved_without_gradient(
                b64.steps.get(step, record_b), a64.steps.get(step, record_a), operators_b, operators_a
            )
            or explain_average_moved_with_each_part(b64.steps.get(step), a64.steps.get(step), operators_b, operators_a)
            or explain_parameter_written_between_steps(
                operators_b, operators_a, b64.steps.get(step - 1), a64.steps.get(step - 1)
            )
        )
        if found is not None:
            return found
    return explain_by_values(record_a, record_b, a64, b64, step, ratio) or (
        Culprit("", "", 0, ratio.text) if ratio else None
    )


class NamedOperator(NamedTuple):
    """The operator that is named for a difference, on which side (A or B) it stands, and what both sides compute.

    `first_on_other_side`: where the difference begins on the other side; None if everything there corresponds.
    `is_split`: one side computes in parts, by ranks or passes, what the other computes at once.
    """

    operator: OperatorSummary
    side: str
    these: list[OperatorSummary]
    others: list[OperatorSummary]
    first_on_other_side: OperatorSummary | None
    is_split: bool


def explain_by_values(
    record_a: NumberRecord | None, record_b: NumberRecord | None, a64: RunNumbers, b64: RunNumbers, step: int,
    ratio: GradientRatio | None,
) -> Culprit | None:  # fmt: skip
    """The first operator that gives another result though what it is given corresponds, by the line to mend.

    ratio: what is said of all gradients where those of one side are the same multiple of the other's; None else.
    """
    found = find_operator_to_name(record_a, record_b, a64, b64, step, ratio)
    if found is None:
        return None
    name, other = found.operator.name, found.first_on_other_side
    what = f"{name} gives another result on side {found.side}, though what it is given corresponds"
    if other is not None and other.location != found.operator.location and other.location.line:
        where = format_source_location(other.location.file, other.location.line)
        what += f"; on the other side it is {other.name} at {where}"
    if found.is_split and found.operator.phase == f.BACKWARD:
        for side, run in (("B", b64), ("A", a64)):
            if (cut := find_collective_without_gradient(run.rank_operators.get(step, []))) is not None:
                what = f"side {side} takes no gradient through what {cut.name} brings from other ranks"
                return Culprit(cut.name, cut.location.file, cut.location.line, what)
    culprit = find_line_to_mend(found, record_a, record_b, what)
    if found.operator.is_random and (seeded := find_seeding_line_of_one_side(a64, b64, step)):
        what = f"{culprit.why}; a generator gets another state at {format_source_location(*seeded)}, on one side only"
        return Culprit(name, *seeded, what)
    culprit = move_to_line_of_one_side(found, culprit)
    return replace(culprit, why=f"{ratio.text}; {culprit.why}") if ratio else culprit


def find_operator_to_name(
    record_a: NumberRecord | None, record_b: NumberRecord | None, a64: RunNumbers, b64: RunNumbers, step: int,
    ratio: GradientRatio | None,
) -> NamedOperator | None:  # fmt: skip
    """The first operator that gives another result, or the one behind it that makes the gradients another multiple."""
    operators_a, operators_b = a64.operators.get(step, []), b64.operators.get(step, [])
    # Where there are ranks, each computes its part of the batch: only what all of them compute corresponds.
    all_a, all_b = a64.rank_operators.get(step, []), b64.rank_operators.get(step, [])
    is_split = max(len(all_a) - len(operators_a), len(all_b) - len(operators_b)) > 0 or (
        record_a is not None
        and record_b is not None
        and record_a.head.get("backwards") != record_b.head.get("backwards")
    )
    scales = UNSCALED, UNSCALED
    if not ratio and not is_split:
        scales = find_loss_scales(all_b, all_a)
    sides = (("B", all_b, all_a, scales[0]), ("A", all_a, all_b, scales[1]))
    culprits = [
        OddOperatorOfSide(odd.moment, side, these, odd.operator)
        for side, these, those, scale in sides
        if (odd := find_first_noncorresponding_operator(these, those, not is_split, scale)) is not None
    ]
    if not culprits:
        return None
    _, side, these, culprit = choose_side(culprits)
    others = all_a if side == "B" else all_b
    culprit = find_indices_of_one_side(culprit, these, others) or culprit
    named = (find_scaling_that_makes_ratio(all_b, all_a, ratio.value) or find_loss_scaling(these)) if ratio else None
    if named is None and is_split and culprit.phase == f.BACKWARD:
        named = find_varying_factor(all_b) or find_varying_factor(all_a)
    if named is None and is_split and is_padded_to_other_length(culprit, these, others):
        # Each part is padded to its own longest row: what elements make of each other shows in the loss first.
        named = find_last_scalar_result_before_backward(these)
    if named is None and ratio and culprit.phase == f.BACKWARD and not culprit.name.startswith("aten."):
        # A collective of data parallelism averages: what it averages is another sum.
        named = find_last_scalar_result_before_backward(these)
    other = next((o for _, its_side, _, o in culprits if its_side != side), None)
    return NamedOperator(named if named is not None else culprit, side, these, others, other, is_split)


def find_line_to_mend(
    found: NamedOperator, record_a: NumberRecord | None, record_b: NumberRecord | None, what: str
) -> Culprit:
    """The operator's own line, or the one in both programs that makes it compute something else; what, with why."""
    named, these, others = found.operator, found.these, found.others
    file, at = named.location.file, named.location.line
    times, other_times = count_calls_of_both_sides(found)
    if named.phase == f.BETWEEN and min(times, other_times) > 0 and times != other_times:
        where = format_source_location(file, at)
        what += f"; {where} is reached {times} times in this step there, and {other_times} times on the other side"
        file, at = find_line_in_loop_of_forward_pass(named, these)
    elif (instead := find_line_writing_the_rest(named, found.first_on_other_side, these, others)) is not None:
        where, rest = format_source_location(file, at), format_source_location(*instead)
        what += f"; {where} writes this too, and {rest}, which writes the rest on the other side, does not"
        file, at = instead
    is_norm = any(reads_statistics(each) for each in (named, found.first_on_other_side) if each is not None)
    if is_norm and (undone := find_line_undoing_evaluation_mode(record_a, record_b)):
        what += f"; batch norms were in evaluation mode, and {format_source_location(*undone)} puts them back"
        file, at = undone
    return Culprit(named.name, file, at, what)


def move_to_line_of_one_side(found: NamedOperator, culprit: Culprit) -> Culprit:
    """The line of one side that hands an operator, called as often on both, what another call computes, if one does."""
    times, other_times = count_calls_of_both_sides(found)
    if found.is_split or times != other_times:
        return culprit
    named, these, others = found.operator, found.these, found.others
    where = format_source_location(culprit.file, culprit.line)
    written = find_write_read_on_one_side(named, these, others)
    if written is not None:
        why = f"{culprit.why}; one side alone is given there what {written.name} has written in between"
        return Culprit(written.name, written.location.file, written.location.line, why)
    caller = find_caller_of_one_side(named, these, others)
    if caller is not None:
        why = f"{culprit.why}; side {found.side} alone gets to {where} by this line"
        return Culprit(named.name, *caller, why)
    handed = find_operator_that_hands_over(named, these, others)
    if handed is not None:
        why = f"{culprit.why}; side {found.side} alone hands to {where} what {handed.name} gives here"
        return Culprit(named.name, handed.location.file, handed.location.line, why)
    return culprit


def count_calls_of_both_sides(found: NamedOperator) -> tuple[int, int]:
    """How often the named operator is called at its line, what is recomputed left out, there and on the other side."""
    this, other = (
        count_calls_at_same_line_without_recomputed(each, found.operator) for each in (found.these, found.others)
    )
    return this, other


def find_line_undoing_evaluation_mode(*records: NumberRecord | None) -> tuple[str, int] | None:
    """Where batch norms that had been frozen were put back into training mode, unused; None if nowhere."""
    lines = [line for r in records if r is not None for line in r.head.get("lines", {}).get(BACK_IN_TRAINING, {})]
    return parse_source_line(lines[0]) if lines else None


def find_line_in_loop_of_forward_pass(operator: OperatorSummary, operators: list[OperatorSummary]) -> tuple[str, int]:
    """Of the calls that lead to an operator, the one beside the calls of the forward pass: in the same function."""
    stack = ((operator.location.file, operator.location.line), *operator.callers)
    forward = [o for o in operators if o.phase == f.FORWARD and o.location.line]
    shared = 0
    for o in [o for o in forward if o.attached] or forward:  # a layer may be called without gradients too
        other = ((o.location.file, o.location.line), *o.callers)
        pairs = zip(reversed(stack), reversed(other), strict=False)
        shared = max(shared, len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))))
    return stack[max(0, len(stack) - 1 - shared)]


def explain_average_moved_with_each_part(
    b: NumberRecord | None,
    a: NumberRecord | None,
    operators_b: list[OperatorSummary],
    operators_a: list[OperatorSummary],
) -> Culprit | None:
    """A copy of the weights that is moved as often as there are backward passes, which one side has more of.

    It shows in what the copy computes, which may be much later. One line that changes tensors of several shapes in
    place, outside of the backward pass and the optimizer, changes weights: sums of losses and counts have one shape.
    """
    passes_b, passes_a = (0 if record is None else int(record.head.get("backwards", 0)) for record in (b, a))
    if min(passes_b, passes_a) < 1 or passes_b == passes_a:
        return None
    moved_b, moved_a = (
        Counter((o.location.file, o.location.line) for o in operators
                if IN_PLACE.match(o.name) and o.phase not in (f.BACKWARD, f.OPTIMIZER) and o.location.line
                and not o.location.module)
        for operators in (operators_b, operators_a)
    )  # fmt: skip
    for o in operators_b:
        key = o.location.file, o.location.line
        times_b, times_a = moved_b[key], moved_a[key]
        if not IN_PLACE.match(o.name) or not times_a or times_b * passes_a != times_a * passes_b:
            continue
        if not o.sources or o.sources[0][0] >= 0:
            continue  # what this step has made, as gradients are
        at_line = [each for each in operators_b if each.location == o.location and each.results]
        if len({each.results[0][1] for each in at_line}) > 1:
            what = f"{format_source_location(*key)} changes weights after each backward pass"
            times = f"{times_b} times in this step on side B, and {times_a} times on side A"
            return Culprit(o.name, *find_line_in_loop_of_forward_pass(o, operators_b), f"{what}: {times}")
    return None


def count_calls_at_same_line_without_recomputed(operators: list[OperatorSummary], operator: OperatorSummary) -> int:
    """How often an operator is called at its line, what is recomputed left out."""
    return sum(o.name == operator.name and o.location == operator.location and not o.is_recomputed for o in operators)


def find_operator_that_hands_over(
    operator: OperatorSummary, operators: list[OperatorSummary], others: list[OperatorSummary]
) -> OperatorSummary | None:
    """What gives an operator, at a line that the other side never runs, a value that its twin is not given; or None.

    A step that one side leaves out shows where both go on: the value before it is one that both compute. So does one
    that only moves elements or gives them another shape: it may move them to a wrong place.
    """
    twin = find_same_call(operator, operators, others)
    if twin is None:
        return None
    given = ValueIndex([others[at] for at, _ in twin.sources if at >= 0])
    lines = {o.location for o in others}
    handing = [operators[at] for at, number in operator.sources
               if at >= 0 and (MOVES_ELEMENTS.match(operators[at].name)
                               or not given.contains(operators[at].results[number][2]))]  # fmt: skip
    return next((o for o in reversed(handing) if o.location.line and o.location not in lines), None)


def explain_clipping_before_unscaling(
    operators_b: list[OperatorSummary], operators_a: list[OperatorSummary], have_gradients_one_ratio: bool
) -> Culprit | None:
    """Gradients that are clipped while they are still scaled, on one side only.

    have_gradients_one_ratio: all gradients of one side are the same multiple of the other's, as clipping makes them.
    """
    clipped_b, clipped_a = find_clipping_before_unscaling(operators_b), find_clipping_before_unscaling(operators_a)
    if (clipped_b is None) == (clipped_a is None) and have_gradients_one_ratio:
        clipped_b, clipped_a = find_norms_of_scaled_gradients(operators_b, operators_a)
    if clipped_b is not None and clipped_a is not None:
        return None
    clipped = clipped_b or clipped_a
    if clipped is None:
        return None
    side = "B" if clipped_b is not None else "A"
    text = f"on side {side} gradients are clipped before they are unscaled"
    return Culprit(clipped.name, clipped.location.file, clipped.location.line, text)


def find_norms_of_scaled_gradients(
    operators_b: list[OperatorSummary], operators_a: list[OperatorSummary]
) -> tuple[OperatorSummary | None, OperatorSummary | None]:
    """The norm that one side, B or A, takes of gradients that the program scales back itself, and only later."""
    b, a = (
        find_gradient_norm_and_scale_after_backward(operators_b),
        find_gradient_norm_and_scale_after_backward(operators_a),
    )
    if b is None or a is None:
        return None, None
    is_same = abs(b.value - a.value) <= 1e-5 * a.value
    is_same_after = abs(b.value * b.factor_after - a.value * a.factor_after) <= 1e-5 * a.value * a.factor_after
    if is_same or not is_same_after:
        return None, None
    is_scaled_on_a = abs(math.log(a.factor_after)) > abs(math.log(b.factor_after))
    return (None, a.operator) if is_scaled_on_a else (b.operator, None)


class GradientNorm(NamedTuple):
    """The norm of all gradients that is taken after the backward pass, its value, and by how much the gradients are
    multiplied between its line and the optimizer (1.0: they are not)."""

    operator: OperatorSummary
    value: float
    factor_after: float


def find_gradient_norm_and_scale_after_backward(operators: list[OperatorSummary]) -> GradientNorm | None:
    begin = max((at for at, o in enumerate(operators) if o.phase == f.BACKWARD), default=len(operators))
    behind = [(at, o) for at, o in enumerate(operators) if at > begin and o.phase != f.OPTIMIZER]
    norms = [(at, o) for at, o in behind if "norm" in o.name and result_element_counts(o) == [1]]
    if not norms:
        return None
    last, norm = norms[-1]
    value = float(norm.results[0][2][1])
    for at, o in behind:
        if at > last and SCALING.match(o.name) and o.location != norm.location and o.results:
            given = next((operators[source].results[number][2] for source, number in o.sources if source >= 0), None)
            made = o.results[0][2]
            if given is not None and made[0] == given[0] > 1 and given[2] > 0 < made[2]:
                return GradientNorm(norm, value, float(made[2] / given[2]))
    return GradientNorm(norm, value, 1.0)


def explain_by_line_of_one_side(
    b: NumberRecord | None, a: NumberRecord | None, counted: str, operator: str
) -> Culprit | None:
    """What is counted by lines under this name, and done on one side only."""
    if b is None or a is None:
        return None
    for side, one, other in (("B", b, a), ("A", a, b)):
        if (where := one.find_line_counted_here_only(other, counted)) is not None:
            return Culprit(operator, *where, f"on side {side} {counted}")
    return None


def find_clipping_before_unscaling(operators: list[OperatorSummary]) -> OperatorSummary | None:
    """The norm of gradients that is taken after the backward pass and before a scaler unscales them."""
    unscaled = next((at for at, o in enumerate(operators) if "_check_and_unscale" in o.name), None)
    if unscaled is None:
        return None
    begin = max((at for at, o in enumerate(operators[:unscaled]) if o.phase == f.BACKWARD), default=0)
    return next((o for o in operators[begin:unscaled] if "norm" in o.name and o.location.line), None)
