"""Where one side computes the same function, but with half of the bits: which side, and which operator loses them.

In float64 both sides come together, so that values of the two programs tell nothing apart. What a side loses is its
distance from its own run in float64, operator by operator.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any, Literal, NamedTuple

import numpy as np

from samerun.check.neutral.rounding_verdict import RecordKind, common_keys, iterate_records_present_in_all_runs
from samerun.check.neutral.run_numbers import OF_RANKS, OperatorSummary, RunNumbers
from samerun.check.neutral.value_correspondence import Culprit, call_key, is_trivial
from samerun.record.comparison.rounding import LOSES_HALF, UNIT, norm

TINY = 2.0**-30
"""Below any rounding error of single precision in a sum, so that a ratio of errors stays finite."""
SIMILAR = 16
"""Of operators whose errors grow by factors that are no further apart, the first is named: the others follow on it."""
PRODUCT = re.compile(r"aten\.(mm|addmm|bmm|baddbmm|addmv|mv|dot|convolution|linear|matmul|_scaled_dot|mkldnn)")
"""Operators for which autocast casts what they are given."""


HAS_JUMP = re.compile(
    r"aten\.(threshold_backward|(leaky_relu|hardtanh|hardswish|hardsigmoid|softshrink|rrelu_with_noise|_prelu_kernel)_backward"
    r"|hardshrink|sgn|sign|heaviside|round|floor|ceil|trunc|frac|fmod|remainder)"
)
"""Operators whose result jumps where an element passes a threshold: it may do so by its last bit, and lose none."""
NO_DIGITS = 2.0**26
"""A relative error so large is that of a value that is zero but for rounding, in float64 too."""


class LossySide(NamedTuple):
    """The side that rounds so many times as coarsely as the other, and in which record that shows first."""

    label: Literal["a", "b"]
    times: float
    kind: RecordKind
    number: int
    step: int

    def __str__(self) -> str:
        text = f"side {self.label.upper()} rounds {self.times:.2g} times as coarsely as the other"
        return f"{text} ({self.kind} {self.number})"


def find_lossy_side(a: RunNumbers, b: RunNumbers, a64: RunNumbers, b64: RunNumbers) -> LossySide | None:
    """The side that loses half of its bits where the other does not, if no format says that it may."""
    if a.uses.get("autocast", 0) != b.uses.get("autocast", 0):
        return None
    coarsest = UNIT["bfloat16"] if a.uses.get("autocast", 0) else 0.0
    for kind, number, records in iterate_records_present_in_all_runs((a, b, a64, b64)):
        sums = [0.0, 0.0, 0.0]
        half = LOSES_HALF
        for key in common_keys(records):
            if records[0].dtypes[key] != records[1].dtypes[key]:
                return None
            if key[0] in ("gradient", "output"):
                values: list[Any] = [record.values[key] for record in records]
                unit = UNIT.get(records[0].dtypes[key], UNIT["float32"])
                half = min(half, max(unit, coarsest) ** -0.5)
                for at, value in enumerate((values[0] - values[2], values[1] - values[3], unit * values[2])):
                    sums[at] += norm(value) ** 2
        error_a, error_b, least = (math.sqrt(each) for each in sums)
        for label, one, other in (("a", error_a, error_b), ("b", error_b, error_a)):
            if math.isfinite(one) and one > half * max(other, least) > 0:
                step = number if kind == "step" else records[0].head["step"] + 1
                return LossySide("a" if label == "a" else "b", one / max(other, least), kind, number, step)
    return None


def find_losing_operator(
    operators_of_lossy_side: list[OperatorSummary],
    operators_in_float64: list[OperatorSummary],
    operators_of_other_side: list[OperatorSummary],
) -> Culprit | None:
    """The first operator that gives a coarser format than it does in the other run, or else that which loses the most.

    None if no operator loses half of the bits: an element that passes a threshold by its last bit, as one of ReLU may,
    changes as much. operators_of_lossy_side: as the lossy side computes it; operators_in_float64: in float64;
    operators_of_other_side: as the other side computes it ([]: none does).
    """
    known = Counter((o.name, coarsest_dtype(o)) for o in operators_of_other_side)
    for operator in operators_of_lossy_side if operators_of_other_side else ():
        dtype = coarsest_dtype(operator)
        if UNIT.get(dtype, 0.0) > UNIT["float32"] and not known[operator.name, dtype] and operator.location.line:
            return make_culprit(operator, f"{operator.name} gives {dtype}, which nothing on the other side does")
    twins = pair_with_float64(operators_of_lossy_side, operators_in_float64)
    errors = measure_errors(operators_of_lossy_side, twins)
    jumps = find_jumps(operators_of_lossy_side, twins)
    losses = []
    for at, operator in enumerate(operators_of_lossy_side):
        before = max((errors[source] for source, _ in operator.sources if source >= 0), default=0.0)
        is_of_program = bool(operator.location.line) and not OF_RANKS.match(operator.name)
        if is_of_program and errors[at] > UNIT["float32"] and not jumps[at]:
            losses.append((errors[at] / max(before, TINY), operator))
    most = max((times for times, _ in losses), default=0.0)
    if most <= LOSES_HALF:
        return None
    most, worst = next((times, operator) for times, operator in losses if times >= most / SIMILAR)
    return make_culprit(worst, f"{worst.name} makes the relative error of what it is given {most:.2g} times as large")


def make_culprit(operator: OperatorSummary, why: str) -> Culprit:
    return Culprit(operator.name, operator.location.file, operator.location.line, why)


def coarsest_dtype(operator: OperatorSummary) -> str:
    """The format with the largest unit of rounding among the results; "" if none is a floating one."""
    return max((dtype for dtype, _, _ in operator.results if dtype in UNIT), key=UNIT.__getitem__, default="")


def find_lost_whole_numbers(
    program: list[OperatorSummary], in_float64: list[OperatorSummary], only_positions: bool = False
) -> Culprit | None:
    """The first operator that gives whole numbers in float64, and others in a format too coarse to hold them.

    Positions and counts are told apart by their last digit. What autocast itself casts for a product is meant to be
    rounded, and only told where it counts 0, 1, 2 and so on; so is all else with `only_positions`: of other whole
    numbers a half format keeps as much as of all that is computed with it.
    """
    cast_for_product = {
        source for operator in program if PRODUCT.match(operator.name)
        for source, _ in operator.sources if source >= 0 and program[source].location == operator.location
    }  # fmt: skip
    for at, (operator, twin) in enumerate(zip(program, pair_with_float64(program, in_float64), strict=True)):
        for (dtype, _, sums), (_, _, exact) in zip(operator.results, twin.results if twin else (), strict=False):
            is_coarse = UNIT.get(dtype, 0.0) > UNIT["float32"] and bool(operator.location.line)
            if not is_coarse or not np.all(exact[:4] == np.round(exact[:4])) or is_trivial(dtype, exact):
                continue
            if not np.array_equal(sums[:4], exact[:4]) and (
                not (only_positions or at in cast_for_product) or are_positions(exact)
            ):
                return make_culprit(operator, f"{operator.name} gives whole numbers that {dtype} cannot hold")
    return None


def are_positions(sums: Any) -> bool:
    """Whether these are the sums of 0, 1, ..., n - 1, once or several times."""
    count, total, _, squares, _ = sums
    n = 2 * total / count + 1
    return bool(n == round(n) and 6 * squares == count * (n - 1) * (2 * n - 1))


def pair_with_float64(
    program: list[OperatorSummary], operators_in_float64: list[OperatorSummary]
) -> list[OperatorSummary | None]:
    """For each operator the one in float64; None for what is not paired.

    Call n of an operator at a line is call n in float64 (casts that are there in one of the runs only are not paired).
    """
    calls: Counter[Any] = Counter()
    found = {}
    for operator in operators_in_float64:
        key = call_key(operator)
        found[key, calls[key]] = operator
        calls[key] += 1
    calls.clear()
    twins = []
    for operator in program:
        key = call_key(operator)
        twins.append(found.get((key, calls[key])))
        calls[key] += 1
    return twins


def find_jumps(program: list[OperatorSummary], twins: list[OperatorSummary | None]) -> list[bool]:
    """For each operator whether it may jump: by its nature, or by whole or logical numbers that differ in float64.

    `twins`: each operator in float64 (see pair_with_float64).
    """
    is_decided = [
        twin is not None
        and any(
            one[0] not in UNIT and not np.array_equal(one[2], other[2])
            for one, other in zip(operator.results, twin.results, strict=False)
        )
        for operator, twin in zip(program, twins, strict=True)
    ]
    return [
        bool(HAS_JUMP.match(operator.name))
        or is_decided[at]
        or any(source >= 0 and is_decided[source] for source, _ in operator.sources)
        for at, operator in enumerate(program)
    ]


def measure_errors(program: list[OperatorSummary], twins: list[OperatorSummary | None]) -> list[float]:
    """For each operator the relative error of its results; 0 for what is not paired with one in float64."""
    errors = []
    for operator, twin in zip(program, twins, strict=True):
        pairs = zip(operator.results, twin.results, strict=False) if twin is not None else ()
        errors.append(
            max(
                (relative_error_of_sums_or_zero(one[2], other[2]) for one, other in pairs if one[0] in UNIT),
                default=0.0,
            )
        )
    return errors


def relative_error_of_sums_or_zero(sums: Any, float64_sums: Any) -> float:
    """How far the sums of a result are from those in float64, relative to the sums of their magnitudes."""
    if (
        sums[0] != float64_sums[0]
        or not (np.all(np.isfinite(sums)) and np.all(np.isfinite(float64_sums)))
        or not float64_sums[2]
        or not float64_sums[3]  # squares of memory that nobody has written
    ):
        return 0.0
    apart = np.abs(sums - float64_sums)
    error = max(
        apart[1] / float64_sums[2],
        apart[2] / float64_sums[2],
        apart[3] / float64_sums[3],
        apart[4] / (2 * float64_sums[2]),
    )
    return float(error) if error < NO_DIGITS else 0.0
