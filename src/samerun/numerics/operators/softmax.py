"""softmax, log_softmax and their gradients, step by step."""

from __future__ import annotations

import torch
from torch import Tensor

from samerun.numerics import sums
from samerun.numerics.extremes import amax
from samerun.numerics.functions import exp, log
from samerun.numerics.operators.declare import Members, floating, widened


def _start(x: Tensor, half_to_float: bool) -> Tensor:
    return x.float() if half_to_float else floating(x)


@widened
def softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    """m = max; e = exp(x - m); e / sum(e)."""
    x = _start(x, half_to_float)
    if x.numel() == 0:
        return x.clone()
    e = exp(torch.sub(x, amax(x, dim, True)))
    return torch.div(e, sums.sum(e, dim, True))


@widened
def log_softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    """(x - m) - log(sum(exp(x - m)))."""
    x = _start(x, half_to_float)
    if x.numel() == 0:
        return x.clone()
    centered = torch.sub(x, amax(x, dim, True))
    return torch.sub(centered, log(sums.sum(exp(centered), dim, True)))


def softmax_backward(g: Tensor, y: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    """(g - sum(g * y)) * y."""
    g, y = (each if each.dtype is torch.float64 else each.float() for each in (g, y))
    return torch.mul(torch.sub(g, sums.sum(torch.mul(g, y), dim, True)), y).to(input_dtype)


def log_softmax_backward(g: Tensor, y: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    """g - exp(y) * sum(g)."""
    g, y = (each if each.dtype is torch.float64 else each.float() for each in (g, y))
    return torch.sub(g, torch.mul(exp(y), sums.sum(g, dim, True))).to(input_dtype)


def safe_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """softmax; 0 in rows where everything is -inf."""
    y = softmax(x if dtype is None else x.to(dtype), dim)
    masked = torch.eq(x, float("-inf")).all(dim, True)
    return torch.where(masked, torch.zeros_like(y), y)


MEMBERS: Members = {
    "aten::_softmax": softmax,
    "aten::_log_softmax": log_softmax,
    "aten::_softmax_backward_data": softmax_backward,
    "aten::_log_softmax_backward_data": log_softmax_backward,
    "aten::_safe_softmax": safe_softmax,
}
