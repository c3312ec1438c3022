"""By how much the loss or all gradients of one side are those of the other: a denominator that is wrong or missing."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from samerun.check.neutral.run_numbers import NumberRecord, OperatorSummary
from samerun.check.neutral.value_correspondence import UNSCALED, LossScale, ValueIndex
from samerun.record.trace import format as f
from samerun.record.trace.reader import SourceLocation

SCALING = re.compile(r"aten\.(_foreach_)?(div|mul)_?\.")
CLOSE_RATIO = 1e-5


class GradientRatio(NamedTuple):
    """Every gradient of side B is `value` times that of side A; `text` says so."""

    value: float
    text: str


def find_common_gradient_ratio(a: NumberRecord, b: NumberRecord) -> GradientRatio | None:
    """None unless every gradient of side B is the same multiple of that of side A, and not the same."""
    ratios = []
    for key, x in a.values.items():
        y = b.values.get(key)
        if key[0] != "gradient" or y is None or len(x) != len(y) or not np.any(x):
            continue
        ratio = float(np.dot(x, y) / np.dot(x, x))
        if np.linalg.norm(y - ratio * x) > CLOSE_RATIO * np.linalg.norm(y):
            return None
        ratios.append(ratio)
    if not ratios or max(ratios) - min(ratios) > CLOSE_RATIO * abs(ratios[0]) or abs(ratios[0] - 1) < CLOSE_RATIO:
        return None
    text = f"every gradient of side B is {ratios[0]:.6g} times that of side A: another denominator or factor"
    return GradientRatio(ratios[0], text)


def find_scaling_that_makes_ratio(
    b: list[OperatorSummary], a: list[OperatorSummary], ratio: float
) -> OperatorSummary | None:
    """The line that scales a loss, or gradients, by `ratio` times as much on side B as on A; None without one."""
    scaled_b, scaled_a = find_scale_of_each_line(b), find_scale_of_each_line(a)
    for location in (*scaled_b, *scaled_a):
        (factor_b, operator_b), (factor_a, operator_a) = (
            each.get(location, (1.0, None)) for each in (scaled_b, scaled_a)
        )
        if abs(factor_b - ratio * factor_a) <= CLOSE_RATIO * abs(factor_b):
            return operator_b or operator_a
    return None


def find_scale_of_each_line(operators: list[OperatorSummary]) -> dict[SourceLocation, tuple[float, OperatorSummary]]:
    """By how much each line multiplies a loss (one number), or gradients behind the backward pass, and its operator.

    Lines with several factors are left out.
    """
    found: dict[SourceLocation, tuple[float, OperatorSummary]] = {}
    several = set()
    last = max((at for at, o in enumerate(operators) if o.phase == f.BACKWARD), default=-1)
    for at, o in enumerate(operators):
        given = [operators[source].results[number][2] for source, number in o.sources if source >= 0]
        if not SCALING.match(o.name) or not o.location.line or o.phase == f.BACKWARD or len(given) != 1:
            continue
        sums, made = given[0], o.results[0][2]
        if sums[0] != made[0] or not sums[2] > 0 or (sums[0] != 1 and at < last):
            continue
        factor = float(made[2] / sums[2])
        known = found.setdefault(o.location, (factor, o))
        if abs(known[0] - factor) > CLOSE_RATIO * factor:
            several.add(o.location)
    return {location: each for location, each in found.items() if location not in several}


def find_loss_scaling(operators: list[OperatorSummary]) -> OperatorSummary | None:
    """The line that divides or scales a loss (one number, in the forward pass), or else the gradients after it."""
    last = max((at for at, o in enumerate(operators) if o.phase == f.BACKWARD), default=-1)
    scaling = [(at, o) for at, o in enumerate(operators) if o.location.line and SCALING.match(o.name)]
    of_loss = [o for at, o in scaling if o.phase == f.FORWARD and at < last
               and all(count == 1 for count in result_element_counts(o))]  # fmt: skip
    of_gradients = [o for at, o in scaling if o.phase in (f.FORWARD, f.BETWEEN) and at > last
                    and all(count != 1 for count in result_element_counts(o))]  # fmt: skip
    return next(iter([*of_loss[-1:], *of_gradients[-1:]]), None)


def find_loss_scales(b: list[OperatorSummary], a: list[OperatorSummary]) -> tuple[LossScale, LossScale]:
    """How large losses and gradients of each side are by those of the other, if one scales a loss that both compute."""
    last_b, last_a = find_last_scalar_result_before_backward(b), find_last_scalar_result_before_backward(a)
    if last_b is None or last_a is None:
        return UNSCALED, UNSCALED
    ends = tuple(float(each.results[0][2][1]) for each in (last_b, last_a))
    for last, these, those in ((last_b, b, a), (last_a, a, b)):
        given = [these[at].results[number][2] for at, number in last.sources if at >= 0]
        loss = next((sums for sums in given if sums[0] == 1), None)
        is_scaled = SCALING.match(last.name) and loss is not None and loss[1] != last.results[0][2][1]
        if is_scaled and all(ends) and loss is not None and ValueIndex(those).contains(loss):
            factor = ends[0] / ends[1]
            begin_b, begin_a = (
                [each is last for each in sides].index(True) for sides, last in ((b, last_b), (a, last_a))
            )
            return LossScale(factor, begin_b), LossScale(1 / factor, begin_a)
    return UNSCALED, UNSCALED


def find_last_scalar_result_before_backward(operators: list[OperatorSummary]) -> OperatorSummary | None:
    """The last operator of the forward pass that gives one number, before the backward pass."""
    first = next((at for at, o in enumerate(operators) if o.phase == f.BACKWARD), 0)
    forward = [o for o in operators[:first] if o.location.line and o.phase == f.FORWARD]
    return next((o for o in reversed(forward) if 1 in result_element_counts(o) and "ones_like" not in o.name), None)


def result_element_counts(operator: OperatorSummary) -> list[float]:
    """How many elements each result of an operator has."""
    return [sums[0] for _, _, sums in operator.results]
