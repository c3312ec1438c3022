"""Where one side computes the same function, but with half of the bits: which side, and which operator loses them.

In float64 both sides come together, so that values of the two programs tell nothing apart. What a side loses is its
distance from its own run in float64, operator by operator.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Literal, NamedTuple

import numpy as np

from samerun.check.evidence.neutrality import RecordKind, common_keys, iterate_common_records
from samerun.check.evidence.run_numbers import OperatorSummary, RunNumbers
from samerun.check.evidence.value_correspondence import Culprit
from samerun.record.comparison.rounding import LOSES_HALF, UNIT, norm

TINY = 2.0**-40
"""Below any rounding error of single precision in a sum, so that a ratio of errors stays finite."""


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
    for kind, number, records in iterate_common_records((a, b, a64, b64)):
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

    operators_of_lossy_side: as the lossy side computes it; operators_in_float64: in float64; operators_of_other_side:
    as the other side computes it ([]: none does).
    """
    known = Counter((o.name, coarsest_dtype(o)) for o in operators_of_other_side)
    for operator in operators_of_lossy_side if operators_of_other_side else ():
        dtype = coarsest_dtype(operator)
        if UNIT.get(dtype, 0.0) > UNIT["float32"] and not known[operator.name, dtype] and operator.location.line:
            return make_culprit(operator, f"{operator.name} gives {dtype}, which nothing on the other side does")
    errors = measure_errors(operators_of_lossy_side, operators_in_float64)
    worst, most = None, LOSES_HALF
    for at, operator in enumerate(operators_of_lossy_side):
        before = max((errors[source] for source, _ in operator.sources if source >= 0), default=0.0)
        times = errors[at] / max(before, TINY)
        if operator.location.line and times > most and errors[at] > UNIT["float32"]:
            worst, most = operator, times
    if worst is None:
        return None
    return make_culprit(worst, f"{worst.name} makes the relative error of what it is given {most:.2g} times as large")


def make_culprit(operator: OperatorSummary, why: str) -> Culprit:
    return Culprit(operator.name, operator.location.file, operator.location.line, why)


def coarsest_dtype(operator: OperatorSummary) -> str:
    """The format with the largest unit of rounding among the results; "" if none is a floating one."""
    return max((dtype for dtype, _, _ in operator.results if dtype in UNIT), key=UNIT.__getitem__, default="")


def measure_errors(program: list[OperatorSummary], operators_in_float64: list[OperatorSummary]) -> list[float]:
    """For each operator the relative error of its results; 0 for what is not paired with one in float64.

    Call n of an operator at a line is call n in float64 (casts that are there in one of the runs only are not paired).
    """
    calls: Counter[Any] = Counter()
    found = {}
    for operator in operators_in_float64:
        key = operator.name, operator.phase, operator.location
        found[key, calls[key]] = operator
        calls[key] += 1
    calls.clear()
    errors = []
    for operator in program:
        key = operator.name, operator.phase, operator.location
        twin = found.get((key, calls[key]))
        calls[key] += 1
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
    ):
        return 0.0
    apart = np.abs(sums - float64_sums)
    return float(
        max(
            apart[1] / float64_sums[2],
            apart[2] / float64_sums[2],
            apart[3] / float64_sums[3],
            apart[4] / (2 * float64_sums[2]),
        )
    )
