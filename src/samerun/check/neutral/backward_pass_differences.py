"""What goes wrong in backward passes: where a forward pass is run again inside of one, and where a step has several."""

from __future__ import annotations

from collections import Counter

import numpy as np

from samerun.base.user_code import format_source_location
from samerun.check.neutral.operator_roles import IN_PLACE
from samerun.check.neutral.run_numbers import OF_RANKS, NumberRecord, OperatorSummary, parse_source_line
from samerun.check.neutral.value_correspondence import Culprit, ValueIndex, is_number_dtype, is_trivial
from samerun.record.config import CUT_OFF, RESCALED
from samerun.record.trace import format as f

VARIES = 1e-9
"""By so much, relative to their size, the factors of the parts of a batch differ if they are not the same number."""


def explain_recomputation(
    record_b: NumberRecord,
    record_a: NumberRecord,
    operators_b: list[OperatorSummary],
    operators_a: list[OperatorSummary],
) -> Culprit | None:
    """A second write, gradients that a recomputation cuts off, or values that it does not give again."""
    sides = (("B", record_b, operators_b, operators_a), ("A", record_a, operators_a, operators_b))
    found = explain_second_write(operators_b, operators_a)
    for side, record, operators, _ in sides if found is None else ():
        other = record_a if side == "B" else record_b
        found = (
            found or explain_cut_off(side, record, other) or find_first_operator_recomputed_differently(side, operators)
        )
    return found


def explain_cut_off(side: str, record: NumberRecord, other: NumberRecord) -> Culprit | None:
    """Parameters without gradients, because the reentrant kind of checkpoint was given nothing that requires them."""
    lacking = record.list_gradients_of_other_only(other)
    where = record.find_line_counted_here_only(other, CUT_OFF) if lacking else None
    if where is None:
        return None
    text = f"on side {side} no input of checkpoint requires gradients, so that {lacking[0]} gets none"
    return Culprit("checkpoint", *where, f"{text} (use_reentrant=True)")


def find_first_operator_recomputed_differently(side: str, operators: list[OperatorSummary]) -> Culprit | None:
    """The first operator that gives, when it is recomputed, what its forward pass did not give: state has changed."""
    forward = [o for o in operators if o.phase == f.FORWARD]
    keys, index = {operator_at_line(o) for o in forward}, ValueIndex(forward)
    for o in operators:
        if not o.is_recomputed or operator_at_line(o) not in keys or IN_PLACE.match(o.name):
            continue
        told = [sums for dtype, _, sums in o.results if is_number_dtype(dtype) and not is_trivial(dtype, sums)]
        if told and not any(index.contains(sums) for sums in told):
            text = f"on side {side} {o.name} gives another result when its part is recomputed than in the forward pass"
            return Culprit(o.name, o.location.file, o.location.line, text)
    return None


def explain_second_write(operators_b: list[OperatorSummary], operators_a: list[OperatorSummary]) -> Culprit | None:
    """A write in place that one side repeats in the backward pass, because it recomputes the part that writes."""
    for side, operators, others in (("B", operators_b, operators_a), ("A", operators_a, operators_b)):
        forward = [o for o in operators if o.phase == f.FORWARD]
        repeated = {operator_at_line(o) for o in forward}
        repeated -= {operator_at_line(o) for o in others if o.phase == f.BACKWARD}
        # A part that is recomputed faithfully writes what its forward pass wrote.
        indices = ValueIndex(forward), ValueIndex(others)
        writes = [
            o for o in operators
            if o.is_recomputed and IN_PLACE.match(o.name) and operator_at_line(o) in repeated
            and o.results and not is_trivial(o.results[0][0], o.results[0][2])  # a counter
            and not any(index.contains(o.results[0][2]) for index in indices)
        ]  # fmt: skip
        if writes:
            # What is given something recomputed may only follow from an earlier write, or fill what the part has made.
            o = next((o for o in writes if not any(at >= 0 and operators[at].is_recomputed for at, _ in o.sources)),
                     writes[0])  # fmt: skip
            text = f"on side {side} {o.name} writes a second time, when its part is recomputed"
            return Culprit(o.name, o.location.file, o.location.line, text)
    return None


def operator_at_line(operator: OperatorSummary) -> tuple[str, str, int]:
    """Its name, file and line, whatever the phase and the module: a part is recomputed outside of its model's call."""
    return operator.name, *operator.location[:2]


def explain_missing_gradients(
    b: NumberRecord, a: NumberRecord, operators_b: list[OperatorSummary], operators_a: list[OperatorSummary]
) -> Culprit | None:
    """A parameter that gets no gradient on one side, where that side asks for gradients by a line of its own."""
    for side, one, other, these, those in (
        ("B", b, a, operators_b, operators_a),
        ("A", a, b, operators_a, operators_b),
    ):
        lacking = one.list_gradients_of_other_only(other)
        elsewhere = {line for o in those for line in o.differentiated_at}
        own = [line for o in these for line in o.differentiated_at if line not in elsewhere]
        if lacking and own:
            return Culprit("backward", *own[0], f"on side {side} {lacking[0]} gets no gradient")
    return None


def explain_gradients_taken_further(
    operators_b: list[OperatorSummary], operators_a: list[OperatorSummary]
) -> Culprit | None:
    """A backward pass that goes on, on one side, through a line that computes the same on both: nothing is detached."""
    for side, these, those in (("B", operators_b, operators_a), ("A", operators_a, operators_b)):
        counts, other_counts = (Counter((o.name, o.location) for o in each if o.phase == f.FORWARD)
                                for each in (these, those))  # fmt: skip
        elsewhere, index = {o.location for o in those if o.phase == f.BACKWARD}, ValueIndex(those)
        alike = {location for (_, location) in counts if location.line and location not in elsewhere}
        alike -= {key[1] for key in {*counts, *other_counts} if counts[key] != other_counts[key]}
        alike -= {o.location for o in these if o.phase == f.FORWARD and not index.contains_telling_results_of(o)}
        for o in these:
            if o.phase == f.BACKWARD and o.location in alike and o.differentiated_at:
                through = format_source_location(o.location.file, o.location.line)
                text = f"on side {side} alone this backward pass goes through {through}"
                return Culprit(o.name, *o.differentiated_at[0], text)
    return None


def explain_scaler_update_between_microbatches(b: NumberRecord, a: NumberRecord) -> Culprit | None:
    """A scale that changes between the parts of a batch, or a step that is made before its parts are there."""
    for side, one, other in (("B", b, a), ("A", a, b)):
        if (where := one.find_line_counted_here_only(other, RESCALED)) is not None:
            text = f"on side {side} the scale of losses changes between the parts of a batch"
            return Culprit("GradScaler.update", *where, text)
    return None


def explain_uneven_steps(steps_b: dict[int, NumberRecord], steps_a: dict[int, NumberRecord]) -> Culprit | None:
    """The first step is made after fewer backward passes than the next ones, on one side only."""
    for side, steps, others in (("B", steps_b, steps_a), ("A", steps_a, steps_b)):
        counts, other_counts = (
            [int(each[n].head.get("backwards", 0)) for n in (1, 2, 3) if n in each] for each in (steps, others)
        )
        if len(counts) < 3 or len(other_counts) < 3 or len(set(other_counts)) > 1:
            continue
        if 0 < counts[0] < counts[1] == counts[2]:
            text = (
                f"on side {side} the first step is made after {counts[0]} backward passes, the next after {counts[1]}"
            )
            return Culprit("optimizer.step", *parse_source_line(steps[1].head.get("line", "")), text)
    return None


def find_varying_factor(operators: list[OperatorSummary]) -> OperatorSummary | None:
    """The line that divides or scales the losses of the parts of a batch by numbers that are not the same."""
    factors: dict[tuple[str, int], list[float]] = {}
    known: dict[tuple[str, int], OperatorSummary] = {}
    for o in operators:
        if o.phase != f.FORWARD or not o.name.startswith(("aten.div", "aten.mul")) or not o.location.line:
            continue
        # What a collective gives is written down before it has arrived.
        given = [operators[at].results[number][2] for at, number in o.sources
                 if at >= 0 and operators[at].results and not OF_RANKS.match(operators[at].name)]  # fmt: skip
        if len(o.results) != 1 or o.results[0][2][0] != 1 or not any(sums[0] == 1 and sums[2] for sums in given):
            continue
        loss = next(sums for sums in given if sums[0] == 1 and sums[2])
        key = o.location.file, o.location.line
        factors.setdefault(key, []).append(float(o.results[0][2][1] / loss[1]))
        known.setdefault(key, o)
    for key, values in factors.items():
        if len(values) > 1 and np.ptp(values) > VARIES * max(map(abs, values)):
            return known[key]
    return None
