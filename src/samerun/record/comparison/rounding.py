"""Is the difference between two values rounding? Judged by what is left of it in float64 (decision 0054). Needs NumPy.

Both sides compute a value twice: as the program does, and in float64. What each side lost to rounding is measured: its
distance from its own value in float64. So no tolerance is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

ItemKey = tuple[str, str]
"""Kind (loss, gradient, parameter, buffer, output) and name of a value."""
UNIT = {
    "float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11,
    "complex128": 2.0**-53, "complex64": 2.0**-24,
}  # fmt: skip
"""Unit roundoff of each dtype."""
GUARD = 2.0**15
"""How much more than the ratio of the units a difference may keep in float64: half of the 2**29 in between, so that
neither long sums nor many steps of growth reach it, and a difference of functions stays beyond it."""
CLEAR, CLEAR_IF_NARROW = 4.0, 16.0
"""A difference in float64 of so many times the rounding error is none; the second where some operators of the run in
float64 computed in single precision after all (compiled regions may), and rounded as they always do."""
ENOUGH_ELEMENTS = 16
"""Of so many elements on, that two differences point in the same direction is no chance."""
LOSES_HALF = 2.0**12
"""Half of the bits of float32."""
ItemVerdict = Literal["clean", "wrong", "unclear"]


@dataclass(frozen=True)
class ItemJudgement:
    """What one value (a gradient, a parameter) says. Norms: of what is left in float64, and of the larger error."""

    verdict: ItemVerdict
    key: ItemKey
    left: float
    error: float
    error_a: float
    error_b: float
    scale: float


def norm(values: Any) -> float:
    return float(np.linalg.norm(values)) if len(values) else 0.0


def nonfinite_elements_differ(one: Any, other: Any) -> bool:
    """Whether elements that are finite, NaN, or infinite with a sign are so on one side only."""
    return not np.array_equal(
        np.where(np.isfinite(one), 0.0, one), np.where(np.isfinite(other), 0.0, other), equal_nan=True
    )


def judge_item(
    key: ItemKey, dtype: str, values_of_a_b_a64_b64: tuple[Any, Any, Any, Any], is_float64_partly_narrow: bool
) -> ItemJudgement:
    """Judge one value, of both sides, and of both in float64. `is_float64_partly_narrow`: see CLEAR_IF_NARROW."""
    a, b, a64, b64 = values_of_a_b_a64_b64
    if nonfinite_elements_differ(a64, b64) or nonfinite_elements_differ(a, b):
        return ItemJudgement("wrong", key, np.inf, 1.0, np.inf, np.inf, 1.0)
    every = np.logical_and.reduce([np.isfinite(each) for each in values_of_a_b_a64_b64])
    a, b, a64, b64 = (each[every] for each in values_of_a_b_a64_b64)
    unit = UNIT.get(dtype, UNIT["float32"])
    scale, left = norm(a64), norm(b64 - a64)
    error_a, error_b = norm(a - a64), norm(b - b64)
    error = max(error_a, error_b, unit * scale)
    verdict: ItemVerdict = "unclear"
    if left <= GUARD * UNIT["float64"] / unit * error:
        verdict = "clean"
    elif left > (CLEAR_IF_NARROW if is_float64_partly_narrow else CLEAR) * error or (
        not is_float64_partly_narrow and len(a) >= ENOUGH_ELEMENTS and norm((b - a) - (b64 - a64)) <= left / 2
    ):
        verdict = "wrong"
    return ItemJudgement(verdict, key, left, error, error_a, error_b, scale)
