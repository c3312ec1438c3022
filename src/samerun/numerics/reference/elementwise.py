"""Class R, the correctly rounded functions of float32, and what is made of them: activations, steps of optimizers.

The double of the platform's C library is rounded where its result is certain (an error of 2^-44 is allowed for);
elsewhere the function is computed in whole numbers of many digits (`fixed_point`). Of the others each operation is
rounded once, left to right.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from samerun.numerics.reference import Array, fixed_point

MARGIN = 2.0**-44


def _apply_per_value(function: Callable[[float], float]) -> Callable[[Array], Array]:
    return lambda x: np.array([function(float(value)) for value in x.reshape(-1)]).reshape(x.shape)


SAME = ["exp", "exp2", "expm1", "sinh", "cosh", "tanh", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "cbrt"]
DOUBLE: dict[str, Any] = {name: getattr(np, name) for name in SAME}
DOUBLE.update({name: getattr(np, "arc" + name[1:]) for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")})
DOUBLE.update(
    erf=_apply_per_value(math.erf),
    erfc=_apply_per_value(math.erfc),
    rsqrt=lambda x: 1 / np.sqrt(x),
    reciprocal=lambda x: 1 / x,
    sigmoid=lambda x: 1 / (1 + np.exp(-x)),
)


def apply_correctly_rounded(function_name: str, x: Array) -> Array:
    """float32 of any shape -> the same."""
    with np.errstate(all="ignore"):
        doubles = DOUBLE[function_name](x.astype(np.float64))
    return _round_or_recompute(doubles, fixed_point.FUNCTIONS[function_name], x)


def apply_correctly_rounded_binary(function_name: str, x: Array, y: Array) -> Array:
    """pow, atan2 (y is the second argument) or hypot of float32 arrays of one shape."""
    double = {"pow": np.power, "atan2": np.arctan2, "hypot": np.hypot}[function_name]
    with np.errstate(all="ignore"):
        doubles = double(x.astype(np.float64), y.astype(np.float64))
    return _round_or_recompute(doubles, fixed_point.PAIR_FUNCTIONS[function_name], x, y)


def apply_correctly_rounded_float64(function_name: str, *arguments: Array) -> Array:
    """A function of one or two float64 arrays of one shape, number by number.

    NumPy's own double is taken where it says that there is no number, or none but a bound: NaN, infinity, 0, and what
    is within a rounding of the bound.
    """
    binary = {"pow": np.power, "atan2": np.arctan2, "hypot": np.hypot}
    with np.errstate(all="ignore"):
        doubles = np.asarray((binary.get(function_name) or DOUBLE[function_name])(*arguments), np.float64)
    exact_function: Any = {**fixed_point.FUNCTIONS, **fixed_point.PAIR_FUNCTIONS}[function_name]
    out = np.array(doubles)
    with fixed_point.fraction_bits(fixed_point.FLOAT64_BITS):
        for where in np.ndindex(out.shape):
            given = [float(x[where]) for x in arguments]
            if not _double_is_surely_correct(function_name, given, float(doubles[where])):
                exact = exact_function(*(fixed_point.to_fraction(x) for x in given))
                out[where] = fixed_point.round_to_unbounded_float(exact, 53, -1074)
    return out


LARGEST_USEFUL = {
    "tanh": 20, "erf": 6.5, "erfc": 28, "sigmoid": 750, "expm1": 750, "exp": 750, "exp2": 1100, "sinh": 750,
    "cosh": 750,
}  # fmt: skip
"""Beyond it lies only the bound."""
STRAIGHT_AT_ZERO = frozenset(["expm1", "sinh", "tanh", "asin", "atan", "log1p", "asinh", "atanh", "sin", "tan"])


def _double_is_surely_correct(function_name: str, given: list[float], double: float) -> bool:
    """Whether the double of an argument, or of two, is the correctly rounded result for sure."""
    if math.isnan(double) or not all(map(math.isfinite, given)):
        return True
    if len(given) == 2:
        flat_angle = function_name == "atan2" and given[0] == 0
        trivial_power = function_name == "pow" and (0.0 in given or abs(given[0]) == 1)
        return flat_angle or trivial_power or (function_name == "hypot" and 0.0 in given)
    x = given[0]
    if abs(x) > LARGEST_USEFUL.get(function_name, math.inf) or (x == 0 and function_name != "acos"):
        return True
    if function_name in ("erfc", "expm1") and x < -45:
        return True
    return (
        (math.isinf(double) and function_name != "exp")
        or (function_name in STRAIGHT_AT_ZERO and abs(x) < 2.0**-55)
        or function_name == "reciprocal"
    )


def _round_or_recompute(doubles: Array, exact_function: Any, *arguments: Array) -> Array:
    """`doubles` rounded to float32; where that is not certain, `exact_function` of the arguments."""
    with np.errstate(all="ignore"):
        low, high = (doubles * (1 - MARGIN)).astype(np.float32), (doubles * (1 + MARGIN)).astype(np.float32)
    out = np.array(low)
    for where in np.argwhere((low != high) & ~np.isnan(doubles)):
        at = tuple(where)
        out[at] = fixed_point.round_to_float32(
            exact_function(*(fixed_point.to_fraction(float(x[at])) for x in arguments))
        )
    return out


F = np.float32
HALF, ONE = F(0.5), F(1)
ROOT_OF_HALF = F(0.70710678118654752)
DENSITY = F(0.39894228040143268)
"""1 / sqrt(2 pi)"""
ROOT_OF_TWO_OVER_PI = F(0.79788456080286536)
CUBIC = F(0.044715)


def _ignore_float_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    def quiet(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arguments)

    return quiet


@_ignore_float_errors
def gelu(x: Array) -> Array:
    return (HALF * x) * (ONE + apply_correctly_rounded("erf", x * ROOT_OF_HALF))


@_ignore_float_errors
def gelu_backward(x: Array, grad: Array) -> Array:
    below = HALF * (ONE + apply_correctly_rounded("erf", x * ROOT_OF_HALF))
    density = apply_correctly_rounded("exp", (x * x) * F(-0.5)) * DENSITY
    return grad * (below + x * density)


def _tanh_of_cubic(x: Array) -> Array:
    cube = (x * x) * x
    return apply_correctly_rounded("tanh", ROOT_OF_TWO_OVER_PI * (x + CUBIC * cube))


@_ignore_float_errors
def gelu_tanh(x: Array) -> Array:
    return (HALF * x) * (ONE + _tanh_of_cubic(x))


@_ignore_float_errors
def gelu_tanh_backward(x: Array, grad: Array) -> Array:
    t = _tanh_of_cubic(x)
    left = HALF * (ONE + t)
    slope = ONE - t * t
    inside = ROOT_OF_TWO_OVER_PI * (ONE + (F(3) * CUBIC) * (x * x))
    right = ((HALF * x) * slope) * inside
    return grad * (left + right)


@_ignore_float_errors
def silu(x: Array) -> Array:
    return x * apply_correctly_rounded("sigmoid", x)


@_ignore_float_errors
def silu_backward(x: Array, grad: Array) -> Array:
    s = apply_correctly_rounded("sigmoid", x)
    return grad * (s * (ONE + x * (ONE - s)))


ACTIVATIONS = {"gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu}
ACTIVATIONS_BACKWARD = {"gelu": gelu_backward, "gelu_tanh": gelu_tanh_backward, "silu": silu_backward}


def apply_fused_update(
    name: Literal["lerp", "addcmul", "addcdiv"], x: Array, y: Array, z: Array, value: float
) -> Array:
    """lerp: x + (y - x) * value; addcmul: x + (y * value) * z; addcdiv: x + (y * value) / z."""
    by = np.float32(value)
    with np.errstate(all="ignore"):
        if name == "lerp":
            return x + (y - x) * by
        return x + (y * by) * z if name == "addcmul" else x + (y * by) / z
