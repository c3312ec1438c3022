"""Minimum, maximum and clamp, IEEE 754's: a NaN wins, and -0.0 is less than +0.0.

torch leaves the sign of a zero to the order of work and to the machine's instruction: torch.max of a tensor with
both zeros changes with the number of threads.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from samerun.numerics.kernels.sums import amax, amin
from samerun.numerics.operators.declare import Members


def relu(x: Tensor) -> Tensor:
    """x above 0, else +0.0; one comparison."""
    return torch.threshold(x, 0, 0)


def relu_(x: Tensor) -> Tensor:
    return torch.threshold_(x, 0, 0)


def maximum(a: Tensor, b: Tensor) -> Tensor:
    larger = torch.maximum(a, b)
    if not larger.is_floating_point():
        return larger
    return torch.where((a == 0) & (b == 0), torch.add(a, b), larger)


def minimum(a: Tensor, b: Tensor) -> Tensor:
    smaller = torch.minimum(a, b)
    if not smaller.is_floating_point():
        return smaller
    return torch.where((a == 0) & (b == 0), torch.neg(torch.sub(torch.neg(a), b)), smaller)


def fmax(a: Tensor, b: Tensor) -> Tensor:
    """The larger; a number rather than a NaN."""
    return torch.where(torch.isnan(a), b, torch.where(torch.isnan(b), a, maximum(a, b)))


def fmin(a: Tensor, b: Tensor) -> Tensor:
    """The smaller; a number rather than a NaN."""
    return torch.where(torch.isnan(a), b, torch.where(torch.isnan(b), a, minimum(a, b)))


def _clamp_one_side(x: Tensor, bound: Any, lower: bool) -> Tensor:
    if isinstance(bound, Tensor):
        return maximum(x, bound) if lower else minimum(x, bound)
    if not x.is_floating_point() or bound != 0:  # no zero can meet another
        return torch.clamp_min(x, bound) if lower else torch.clamp_max(x, bound)
    if lower and str(float(bound)) == "0.0":
        return torch.threshold(x, 0, 0)
    return (maximum if lower else minimum)(x, torch.full((), float(bound), dtype=x.dtype, device=x.device))


def clamp(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """minimum(maximum(x, min), max)."""
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if min is not None:
        x = _clamp_one_side(x, min, True)
    return x if max is None else _clamp_one_side(x, max, False)


def clamp_max(x: Tensor, max: Any) -> Tensor:
    return _clamp_one_side(x, max, False)


def hardtanh(x: Tensor, min_val: Any = -1, max_val: Any = 1) -> Tensor:
    return clamp(x, min_val, max_val)


def max_of_all(x: Tensor) -> Tensor:
    if x.numel() == 0:
        return torch.max(x)  # torch's own error
    return amax(x)


def min_of_all(x: Tensor) -> Tensor:
    if x.numel() == 0:
        return torch.min(x)
    return amin(x)


def aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    where = () if dim is None else dim
    return amin(x, where, keepdim), amax(x, where, keepdim)


MEMBERS: Members = {
    "aten::relu": relu,
    "aten::relu_": relu_,
    "aten::maximum": maximum,
    "aten::minimum": minimum,
    "aten::fmax": fmax,
    "aten::fmin": fmin,
    "aten::clamp": clamp,
    "aten::clamp_min": clamp,
    "aten::clamp_max": clamp_max,
    "aten::hardtanh": hardtanh,
    "aten::amax": amax,
    "aten::amin": amin,
    "aten::max.default": max_of_all,
    "aten::min.default": min_of_all,
    "aten::aminmax": aminmax,
}
