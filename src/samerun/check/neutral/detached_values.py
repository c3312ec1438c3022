"""A value that both runs compute and use, and of which one takes no gradient: detached, or made without gradients."""

from __future__ import annotations

from typing import Any

from samerun.base.user_code import format_source_location
from samerun.check.neutral.run_numbers import OF_RANKS, OperatorSummary, find_caller_of_one_side
from samerun.check.neutral.value_correspondence import (
    Culprit,
    ValueIndex,
    call_key,
    is_number_dtype,
    is_trivial,
)
from samerun.record.trace import format as f
from samerun.record.trace.reader import SourceLocation

NOWHERE = SourceLocation("", 0, "")


def explain_detached_value(b: list[OperatorSummary], a: list[OperatorSummary]) -> Culprit | None:
    """The first value through which one side takes no gradient and the other does, and from which both go on to
    compute something that is the same; None if there is none.
    """
    for side, operators, others in (("B", b, a), ("A", a, b)):
        # Leaves (parameters) are left out: they require gradients because somebody said so.
        attached = [others[at].results[number] for o in others for at, number in o.attached
                    if others[at].attached or others[at].phase == f.BACKWARD]  # fmt: skip
        kept = ValueIndex(
            [_make_operator_with_results(operators[at].results[number] for o in operators for at, number in o.attached)]
        )
        through = ValueIndex([_make_operator_with_results(attached)])
        for user_at, user in enumerate(operators):
            for at, number, lines in user.detached if user.phase == f.FORWARD else ():
                made = operators[at]
                dtype, _, sums = made.results[number]
                if not is_number_dtype(dtype) or is_trivial(dtype, sums) or not through.contains(sums):
                    continue
                if OF_RANKS.match(made.name) or kept.contains(sums) or _is_detached_there_too(user, sums, others):
                    continue
                if not _lead_to_one_value(operators, user_at, others, sums):
                    continue
                called = find_caller_of_one_side(made, operators, others) or made.location[:2]
                file, line = (lines or made.differentiated_at or (called,))[0]
                used = format_source_location(user.location.file, user.location.line)
                text = f"side {side} takes no gradient through what {made.name} gives, which {used} uses"
                return Culprit("aten.detach.default" if lines else made.name, file, line, text)
    return None


def find_collective_without_gradient(operators: list[OperatorSummary]) -> OperatorSummary | None:
    """A collective of the forward pass that is given a value with gradients, and whose result, which has none, is
    computed with further; None if there is none. Functions with a backward pass of their own call them without.
    """
    for at, o in enumerate(operators):
        if o.phase != f.FORWARD or not o.attached or not OF_RANKS.match(o.name) or "autograd" in o.name:
            continue
        users = (user for user in operators[at + 1 :] if user.phase == f.FORWARD and user.attached)
        if o.location.line and any(source == at for user in users for source, _ in user.sources):
            return o
    return None


def _make_operator_with_results(results: Any) -> OperatorSummary:
    """An operator that stands for all of these results."""
    return OperatorSummary("", f.FORWARD, NOWHERE, (), tuple(results))


def _is_detached_there_too(user: OperatorSummary, sums: Any, others: list[OperatorSummary]) -> bool:
    """Whether the other side gives an operator at the same line this value, and takes no gradient through it either."""
    same_calls = (o for o in others if call_key(o) == call_key(user))
    detached = (others[at].results[number] for o in same_calls for at, number, _ in o.detached)
    return ValueIndex([_make_operator_with_results(detached)]).contains(sums)


def _lead_to_one_value(
    operators: list[OperatorSummary], user_at: int, others: list[OperatorSummary], sums: Any
) -> bool:
    """Whether something in the forward pass that is computed by way of operator `user_at` is also computed on the other
    side, by way of the value with these sums.
    """
    users = [
        at for at, o in enumerate(others)
        if any(ValueIndex([_make_operator_with_results([others[s].results[n]])]).contains(sums) for s, n in o.attached)
    ]  # fmt: skip
    there = ValueIndex(_computed_from(others, set(users)))
    return any(
        there.contains(result)
        for o in _computed_from(operators, {user_at})
        for dtype, _, result in o.results
        if is_number_dtype(dtype) and not is_trivial(dtype, result)
    )


def _computed_from(operators: list[OperatorSummary], begin: set[int]) -> list[OperatorSummary]:
    """These operators of a forward pass and all that is computed of what they give."""
    reached = set(begin)
    for at, operator in enumerate(operators):
        if operator.phase == f.FORWARD and any(source in reached for source, _ in operator.sources):
            reached.add(at)
    return [operators[at] for at in sorted(reached)]
