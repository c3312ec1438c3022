"""Values through which one run takes a gradient and the other does not: found where both go on alike."""

from __future__ import annotations

import numpy as np
import pytest

from samerun.check.neutral.detached_values import explain_detached_value
from samerun.check.neutral.run_numbers import OperatorSummary
from samerun.record.trace import format as f
from samerun.record.trace.reader import SourceLocation

DETACHED_AT = (("train.py", 7),)


def make_operator(
    line: int, total: float, sources: tuple[int, ...] = (), attached: bool = True,
    detached_at: tuple[tuple[str, int], ...] = (), phase: int = f.FORWARD,
) -> OperatorSummary:  # fmt: skip
    """An operator whose operands all require gradients, or none of them."""
    made = tuple((at, 0) for at in sources)
    results = (("float64", (4,), np.array([4.0, total, abs(total) + 1, total * total + 2, total / 3])),)
    return OperatorSummary(
        "aten.mul.Tensor", phase, SourceLocation("train.py", line, ""), made, results,
        attached=made if attached else (),
        detached=() if attached else tuple((at, n, detached_at) for at, n in made),
    )  # fmt: skip


def run_of(attached: bool, end: float = 0.7, detached_at: tuple[tuple[str, int], ...] = ()) -> list[OperatorSummary]:
    """Input, encoder (line 3), head (line 5), loss (line 6); the head is given the encoder's result."""
    return [
        make_operator(2, 0.1), make_operator(3, 0.3, (0,)), make_operator(5, 0.5, (1,), attached, detached_at),
        make_operator(6, end, (2,)),
    ]  # fmt: skip


@pytest.mark.parametrize(("detached_at", "line"), [(DETACHED_AT, 7), ((), 3)])
def test_the_line_that_detaches_or_else_makes_the_value(detached_at: tuple[tuple[str, int], ...], line: int) -> None:
    told = explain_detached_value(run_of(False, detached_at=detached_at), run_of(True))
    assert told is not None and told.line == line
    assert told.why.startswith("side B takes no gradient") and "train.py:5 uses" in told.why
    other_way = explain_detached_value(run_of(True), run_of(False, detached_at=detached_at))
    assert other_way is not None and other_way.why.startswith("side A")


def test_what_both_sides_detach_or_neither_is_no_difference() -> None:
    for attached in (True, False):
        assert explain_detached_value(run_of(attached), run_of(attached)) is None


def test_what_is_detached_for_the_log_alone_is_no_difference() -> None:
    logged = [*run_of(True), make_operator(9, 0.9, (1,), False)]
    assert explain_detached_value(logged, run_of(True)) is None  # the head is given it with its gradient
    only_logged = [*run_of(True)[:2], make_operator(9, 0.9, (1,), False)]
    assert explain_detached_value(only_logged, run_of(True)) is None  # nothing that is the same comes of it
