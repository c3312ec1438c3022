"""gelu, silu and their gradients in float64: the steps of `reference/elementwise.py`, in operators that round once."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from samerun.numerics.kernels.functions import erf, exp, sigmoid, tanh

ROOT_OF_HALF = 0.70710678118654752
DENSITY = 0.39894228040143268
ROOT_OF_TWO_OVER_PI = 0.79788456080286536
CUBIC = 0.044715


def compute(name: str, x: Tensor, grad: Tensor | None = None) -> Tensor:
    """"gelu", "gelu_tanh" or "silu" of x, or the gradient of x."""
    if name == "silu":
        s = sigmoid(x)
        return x * s if grad is None else grad * (s * (1 + x * torch.rsub(s, 1)))
    if name == "gelu":
        below = 1 + erf(x * ROOT_OF_HALF)
        if grad is None:
            return (0.5 * x) * below
        return grad * (0.5 * below + x * (exp((x * x) * -0.5) * DENSITY))
    cube = (x * x) * x
    t = tanh(ROOT_OF_TWO_OVER_PI * (x + CUBIC * cube))
    if grad is None:
        return (0.5 * x) * (1 + t)
    inside = ROOT_OF_TWO_OVER_PI * (1 + (3 * CUBIC) * (x * x))
    return grad * (0.5 * (1 + t) + ((0.5 * x) * torch.rsub(t * t, 1)) * inside)


assert math.isclose(ROOT_OF_HALF**2, 0.5)
