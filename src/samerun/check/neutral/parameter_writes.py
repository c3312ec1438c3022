"""Parameters that one side of a neutral switch writes into outside of its optimizer's steps, and leaves changed."""

from __future__ import annotations

import numpy as np

from samerun.base.user_code import format_source_location
from samerun.check.neutral.operator_roles import IN_PLACE
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


def explain_parameter_moved_without_gradient(
    b: NumberRecord, a: NumberRecord, operators_b: list[OperatorSummary], operators_a: list[OperatorSummary]
) -> Culprit | None:
    """A parameter that has no gradient on either side, and that one side's optimizer moves all the same (decay,
    momentum): at the line that makes zeros for the gradient it lacks, or where the parameter is written into first.
    """
    # Where an optimizer writes into parameters through one vector, or keeps its gradients to itself, nothing is seen.
    trained = [
        key for key in b.values if key[0] == "parameter" and all(("gradient", key[1]) in r.values for r in (a, b))
    ]
    for operators, record in ((operators_a, a), (operators_b, b)):
        if not any(_find_writes_of_optimizer(operators, record.values[k]) for k in trained if k in record.values):
            return None
    for key in b.values:
        kind, name = key
        if kind != "parameter" or key not in a.values or any(("gradient", name) in record.values for record in (a, b)):
            continue
        of_b, of_a = (_find_writes_of_optimizer(run, r.values[key]) for run, r in ((operators_b, b), (operators_a, a)))
        if bool(of_b) == bool(of_a):
            continue
        side, these, others, writes = (
            ("B", operators_b, operators_a, of_b) if of_b else ("A", operators_a, operators_b, of_a)
        )
        elsewhere = {o.location for o in others}
        shape = these[writes[0][0]].results[writes[0][1]][1]
        made = [o for o in these if o.phase == f.OPTIMIZER and o.location not in elsewhere and _makes_zeros(o, shape)]
        named = made[0] if made else these[writes[-1][0]]
        text = f"{name} has no gradient in this step, and side {side} alone moves it"
        return Culprit(named.name, named.location.file, named.location.line, text)
    return None


def _find_writes_of_optimizer(operators: list[OperatorSummary], value: Array) -> list[tuple[int, int]]:
    """Of what an optimizer wrote into a parameter that has this value behind it: operators with the number of their
    result, the last one first. Empty where none did, and where only a sample of the value is known.
    """
    at = next(
        (
            (at, number)
            for at, o in reversed(list(enumerate(operators)))
            for number, (_, _, sums) in enumerate(
                o.results if o.phase == f.OPTIMIZER and IN_PLACE.match(o.name) else ()
            )
            if len(value) == int(sums[0]) and _has_sums(value, sums)
        ),
        None,
    )
    found = []
    while at is not None:
        found.append(at)
        shape = operators[at[0]].results[at[1]][1]
        at = next(
            (
                source for source in operators[at[0]].sources
                if source[0] >= 0 and source[1] == at[1] and operators[source[0]].phase == f.OPTIMIZER
                and IN_PLACE.match(operators[source[0]].name) and operators[source[0]].results[source[1]][1] == shape
            ),
            None,
        )  # fmt: skip
    return found


def _makes_zeros(operator: OperatorSummary, shape: tuple[int, ...]) -> bool:
    return any(each == shape and not sums[2] for _, each, sums in operator.results)


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
