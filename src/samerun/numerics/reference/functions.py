"""Class R: the correctly rounded functions of float32.

The double of the platform's C library is rounded where its result is certain (an error of 2^-44 is allowed for);
elsewhere the function is computed in whole numbers of many digits (`digits`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from samerun.numerics.reference import fixed_point

MARGIN = 2.0**-44


def _per_value(function: Any) -> Any:
    return lambda x: np.array([function(float(value)) for value in x.reshape(-1)]).reshape(x.shape)


SAME = ["exp", "exp2", "expm1", "sinh", "cosh", "tanh", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "cbrt"]
DOUBLE: dict[str, Any] = {name: getattr(np, name) for name in SAME}
DOUBLE.update({name: getattr(np, "arc" + name[1:]) for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")})
DOUBLE.update(
    erf=_per_value(math.erf),
    erfc=_per_value(math.erfc),
    rsqrt=lambda x: 1 / np.sqrt(x),
    reciprocal=lambda x: 1 / x,
    sigmoid=lambda x: 1 / (1 + np.exp(-x)),
)


def unary(name: str, x: Any) -> Any:
    """float32 of any shape -> the same."""
    with np.errstate(all="ignore"):
        near = DOUBLE[name](x.astype(np.float64))
    return _round_or_compute(near, fixed_point.FUNCTIONS[name], x)


def pair(name: str, x: Any, y: Any) -> Any:
    """pow, atan2 (y is the second argument) or hypot of float32 arrays of one shape."""
    double = {"pow": np.power, "atan2": np.arctan2, "hypot": np.hypot}[name]
    with np.errstate(all="ignore"):
        near = double(x.astype(np.float64), y.astype(np.float64))
    return _round_or_compute(near, fixed_point.PAIR_FUNCTIONS[name], x, y)


def _round_or_compute(near: Any, exact: Any, *given: Any) -> Any:
    """The doubles `near` rounded to float32; where that is not certain, `exact` of the given values."""
    with np.errstate(all="ignore"):
        low, high = (near * (1 - MARGIN)).astype(np.float32), (near * (1 + MARGIN)).astype(np.float32)
    out = np.array(low)
    for where in np.argwhere((low != high) & ~np.isnan(near)):
        at = tuple(where)
        out[at] = fixed_point.nearest_float(exact(*(fixed_point.to_fraction(float(x[at])) for x in given)))
    return out
