"""Parameters that one side of a neutral switch writes into outside of its optimizer's steps, and leaves changed."""

from __future__ import annotations

import numpy as np

from samerun.base.user_code import format_source_location
from samerun.check.neutral.backward_pass_differences import IN_PLACE
from samerun.check.neutral.run_numbers import Array, NumberRecord, OperatorSummary
from samerun.check.neutral.value_correspondence import Culprit, are_sums_of_same_value, find_same_call
from samerun.record.trace import format as f


def explain_parameter_written_between_steps(
    b: list[OperatorSummary], a: list[OperatorSummary], before_b: NumberRecord | None, before_a: NumberRecord | None
) -> Culprit | None:
    """A parameter that a line of one side alone has written into before it is trained with: averaged weights that an
    evaluation takes, and that nobody takes out again.

    before_b, before_a: the step before this one. What is written back as that step left it changes nothing.
    """
    for side, operators, others, before in (("B", b, a, before_b), ("A", a, b, before_a)):
        if before is None:
            continue
        elsewhere = {o.location for o in others}
        left = [value for (kind, _), value in before.values.items() if kind == "parameter"]
        for user in operators:
            for at, number in user.attached if user.phase == f.FORWARD else ():
                made = operators[at]
                if made.phase != f.BETWEEN or not IN_PLACE.match(made.name) or made.location in elsewhere:
                    continue
                if made.location.line and not any(_has_sums(value, made.results[number][2]) for value in left):
                    used = format_source_location(user.location.file, user.location.line)
                    text = f"side {side} alone writes into a parameter that {used} uses, and leaves it another one"
                    return Culprit(made.name, made.location.file, made.location.line, text)
    return None


def find_write_read_on_one_side(
    operator: OperatorSummary, these: list[OperatorSummary], others: list[OperatorSummary]
) -> OperatorSummary | None:
    """What has written, between two steps, into a value that an operator or its twin on the other side is given, while
    the other of the two is given that value as it was before the step; None if nothing has.
    """
    twin = find_same_call(operator, these, others)
    if twin is None:
        return None
    for reader, other, run in ((operator, twin, these), (twin, operator, others)):
        writers = [run[at] for at, _ in reader.sources if at >= 0 and run[at].phase == f.BETWEEN]
        writers = [o for o in writers if IN_PLACE.match(o.name) and o.location.line]
        is_given_older = any(at < 0 for at, _ in other.sources) and len(other.sources) < len(reader.sources)
        if writers and is_given_older:
            return writers[0]
    return None


def _has_sums(value: Array, sums: Array) -> bool:
    """Whether these are the sums of a value of which all numbers, or a sample of them, are known."""
    if len(value) != int(sums[0]):
        return len(value) < int(sums[0])  # of a sample nothing can be said
    own = np.array([[value.sum(), np.abs(value).sum(), np.square(value).sum(), 0.0]])
    return bool(np.any(are_sums_of_same_value(own, sums[1:], sums[2], in_any_order=True)))
