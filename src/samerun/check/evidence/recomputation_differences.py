"""What goes wrong where a forward pass is run again inside of a backward pass."""

from __future__ import annotations

import re

from samerun.check.evidence.run_numbers import NumberRecord, OperatorSummary
from samerun.check.evidence.value_correspondence import Culprit, ValueIndex, is_number_dtype, is_trivial
from samerun.record.config import CUT_OFF
from samerun.record.trace import format as f
from samerun.record.trace.reader import SourceLocation

IN_PLACE = re.compile(r"\w+\.\w+_\.")


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
    lacking = [key[1] for key in other.values if key[0] == "gradient" and key not in record.values]
    where = record.find_line_counted_here_only(other, CUT_OFF) if lacking else None
    if where is None:
        return None
    text = f"on side {side} no input of checkpoint requires gradients, so that {lacking[0]} gets none"
    return Culprit("checkpoint", *where, f"{text} (use_reentrant=True)")


def find_first_operator_recomputed_differently(side: str, operators: list[OperatorSummary]) -> Culprit | None:
    """The first operator that gives, when it is recomputed, what its forward pass did not give: state has changed."""
    forward = [o for o in operators if o.phase == f.FORWARD]
    keys, index = {call_key_without_phase(o) for o in forward}, ValueIndex(forward)
    for o in operators:
        if not o.is_recomputed or call_key_without_phase(o) not in keys or IN_PLACE.match(o.name):
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
        repeated = {call_key_without_phase(o) for o in forward}
        repeated -= {call_key_without_phase(o) for o in others if o.phase == f.BACKWARD}
        # A part that is recomputed faithfully writes what its forward pass wrote.
        indices = ValueIndex(forward), ValueIndex(others)
        for o in operators:
            if not o.is_recomputed or not IN_PLACE.match(o.name) or call_key_without_phase(o) not in repeated:
                continue
            if not o.results or is_trivial(o.results[0][0], o.results[0][2]):  # a counter
                continue
            if not any(index.contains(o.results[0][2]) for index in indices):
                text = f"on side {side} {o.name} writes a second time, when its part is recomputed"
                return Culprit(o.name, o.location.file, o.location.line, text)
    return None


def call_key_without_phase(operator: OperatorSummary) -> tuple[str, SourceLocation]:
    return operator.name, operator.location
