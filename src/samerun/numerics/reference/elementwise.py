"""Activations and steps of optimizers on float32 arrays: one rounding an operation, left to right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from samerun.numerics.reference.functions import unary

F = np.float32
HALF, ONE = F(0.5), F(1)
ROOT_OF_HALF = F(0.70710678118654752)
DENSITY = F(0.39894228040143268)
"""1 / sqrt(2 pi)"""
ROOT_OF_TWO_OVER_PI = F(0.79788456080286536)
CUBIC = F(0.044715)


def _ignore_float_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    def quiet(*given: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*given)

    return quiet


@_ignore_float_errors
def gelu(x: Any) -> Any:
    return (HALF * x) * (ONE + unary("erf", x * ROOT_OF_HALF))


@_ignore_float_errors
def gelu_backward(x: Any, grad: Any) -> Any:
    below = HALF * (ONE + unary("erf", x * ROOT_OF_HALF))
    density = unary("exp", (x * x) * F(-0.5)) * DENSITY
    return grad * (below + x * density)


def _tanh_of(x: Any) -> Any:
    cube = (x * x) * x
    return unary("tanh", ROOT_OF_TWO_OVER_PI * (x + CUBIC * cube))


@_ignore_float_errors
def gelu_tanh(x: Any) -> Any:
    return (HALF * x) * (ONE + _tanh_of(x))


@_ignore_float_errors
def gelu_tanh_backward(x: Any, grad: Any) -> Any:
    t = _tanh_of(x)
    left = HALF * (ONE + t)
    slope = ONE - t * t
    inside = ROOT_OF_TWO_OVER_PI * (ONE + (F(3) * CUBIC) * (x * x))
    right = ((HALF * x) * slope) * inside
    return grad * (left + right)


@_ignore_float_errors
def silu(x: Any) -> Any:
    return x * unary("sigmoid", x)


@_ignore_float_errors
def silu_backward(x: Any, grad: Any) -> Any:
    s = unary("sigmoid", x)
    return grad * (s * (ONE + x * (ONE - s)))


FORWARD = {"gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu}
BACKWARD = {"gelu": gelu_backward, "gelu_tanh": gelu_tanh_backward, "silu": silu_backward}


def update(name: str, x: Any, y: Any, z: Any, value: float) -> Any:
    """lerp: x + (y - x) * value; addcmul: x + (y * value) * z; addcdiv: x + (y * value) / z."""
    by = np.float32(value)
    with np.errstate(all="ignore"):
        if name == "lerp":
            return x + (y - x) * by
        return x + (y * by) * z if name == "addcmul" else x + (y * by) / z
