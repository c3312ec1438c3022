"""Class R where no kernel of its own stands yet: computed in float64 by torch, then rounded to float32.

Rounding hides nearly all differences between float64 libraries, not provably all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from samerun.base.errors import SamerunError

NAMES = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "erfc",
    "rsqrt",
    "sigmoid",
]


def function(name: str, x: Tensor) -> Tensor:
    """The function of float32, bfloat16 or float16; of integers and booleans in the default floating type."""
    if not x.is_floating_point():
        x = x.to(torch.get_default_dtype())
    if x.dtype is torch.float64:
        raise SamerunError("torch.float64.", "It has a portable kernel for float32: tensor.float().")
    found: Tensor = getattr(torch, name)(x.detach().double())
    return found.to(torch.float32).to(x.dtype)


def power(x: Tensor, y: Tensor) -> Tensor:
    """x ** y of float32."""
    return torch.pow(x.detach().double(), y.detach().double()).to(torch.float32)


def atan2(y: Tensor, x: Tensor) -> Tensor:
    """The angle of (x, y), float32."""
    return torch.atan2(y.detach().double(), x.detach().double()).to(torch.float32)


def exp(x: Tensor) -> Tensor:
    """e ** x."""
    return function("exp", x)


def expm1(x: Tensor) -> Tensor:
    """e ** x - 1."""
    return function("expm1", x)


def log(x: Tensor) -> Tensor:
    """The natural logarithm."""
    return function("log", x)


def log1p(x: Tensor) -> Tensor:
    """log(1 + x)."""
    return function("log1p", x)


def tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return function("tanh", x)


def erf(x: Tensor) -> Tensor:
    """The error function."""
    return function("erf", x)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return function("sigmoid", x)
