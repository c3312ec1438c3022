"""Class R: correctly rounded functions, and the activations that are written with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from samerun.numerics.kernels import activations, remainders
from samerun.numerics.kernels import functions as kernels
from samerun.numerics.kernels.functions import NAMES, exp, expm1, log, log1p, sigmoid, sin, tanh, unary
from samerun.numerics.kernels.roots import sqrt
from samerun.numerics.kernels.tensors import dimensions
from samerun.numerics.operators.declare import Members, NotInTable, divided, floating, widened


def _of(name: str) -> Callable[[Tensor], Tensor]:
    return lambda x: unary(name, floating(x))


def _small_power(x: Tensor, exponent: Any) -> Tensor | None:
    """Powers that are products, roots or quotients: exact operations, written out."""
    if exponent == 0:
        return torch.ones_like(x)
    if exponent == 1:
        return x.clone()
    if exponent == 2:
        return torch.mul(x, x)
    if exponent == 3:
        return torch.mul(torch.mul(x, x), x)
    if exponent == 0.5:
        return sqrt(x)
    if exponent == -1:
        return torch.reciprocal(x)
    if exponent == -2:
        return torch.reciprocal(torch.mul(x, x))
    return None


def _float32(*given: Any) -> None:
    for x in given:
        if isinstance(x, Tensor) and x.dtype is torch.float64:
            raise NotInTable("torch.float64.", "It has one for float32: tensor.float().")


@widened
def power(x: Any, exponent: Any) -> Tensor:
    """x ** exponent: products and roots for 0, 1, 2, 3, 0.5, -1 and -2; else correctly rounded."""
    if isinstance(x, Tensor) and not isinstance(exponent, Tensor):
        found = _small_power(x, exponent)
        if found is not None:
            return found
    dtype = torch.result_type(x, exponent)
    if not dtype.is_floating_point:
        return torch.pow(x, exponent)
    device = next(each.device for each in (x, exponent) if isinstance(each, Tensor))
    a, b = (torch.as_tensor(each, dtype=dtype, device=device) for each in (x, exponent))
    _float32(a)
    return kernels.pow(a, b)


@widened
def atan2(y: Tensor, x: Tensor) -> Tensor:
    _float32(y, x)
    return kernels.atan2(y, x)


def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return activations.gelu(x, approximate)


def gelu_backward(g: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    return activations.gelu_backward(g.expand(x.shape), x, approximate)


def silu_backward(g: Tensor, x: Tensor) -> Tensor:
    return activations.silu_backward(g.expand(x.shape), x)


def hypot(x: Tensor, y: Tensor) -> Tensor:
    return kernels.hypot(x, y)


@widened
def softplus(x: Tensor, beta: Any = 1, threshold: Any = 20) -> Tensor:
    """log1p(exp(x * beta)) / beta; x where x * beta > threshold."""
    scaled = torch.mul(x, beta)
    return torch.where(scaled > threshold, x, divided(log1p(exp(scaled)), beta))


@widened
def softplus_backward(g: Tensor, x: Tensor, beta: Any, threshold: Any) -> Tensor:
    """g * sigmoid(x * beta); g where x * beta > threshold."""
    scaled = torch.mul(x, beta)
    return torch.where(scaled > threshold, g, torch.mul(g, sigmoid(scaled)))


@widened
def log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
    """min(x, 0) - log1p(exp(-|x|)); the second result is not used."""
    return torch.sub(torch.clamp(x, max=0), log1p(exp(torch.neg(torch.abs(x))))), x.new_empty(0)


@widened
def log_sigmoid_backward(g: Tensor, x: Tensor, buffer: Tensor) -> Tensor:
    """g * sigmoid(-x)."""
    return torch.mul(g, sigmoid(torch.neg(x)))


@widened
def mish(x: Tensor) -> Tensor:
    """x * tanh(log1p(exp(x)))."""
    return torch.mul(x, tanh(softplus(x)))


@widened
def mish_backward(g: Tensor, x: Tensor) -> Tensor:
    """g * (t + x * s * (1 - t * t)), t = tanh(log1p(exp(x))), s = sigmoid(x)."""
    t, s = tanh(softplus(x)), sigmoid(x)
    return torch.mul(g, torch.add(t, torch.mul(torch.mul(x, s), torch.rsub(torch.mul(t, t), 1))))


@widened
def elu(x: Tensor, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Tensor:
    """scale * x above 0, else (alpha * scale) * expm1(x * input_scale)."""
    return torch.where(
        x > 0, torch.mul(x, scale), torch.mul(expm1(torch.mul(x, input_scale)), float(alpha) * float(scale))
    )


@widened
def elu_backward(g: Tensor, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Tensor) -> Tensor:
    """The derivative, from the input or from the result."""
    factor = float(alpha) * float(scale)
    if is_result:
        below = torch.mul(torch.mul(g, input_scale), torch.add(x, factor))
    else:
        below = torch.mul(torch.mul(g, float(input_scale) * factor), exp(torch.mul(x, input_scale)))
    return torch.where(x <= 0, below, torch.mul(g, scale))


@widened
def glu(x: Tensor, dim: int = -1) -> Tensor:
    """The first half times the sigmoid of the second."""
    if x.dim() and -x.dim() <= dim < x.dim() and x.shape[dim] % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {x.shape[dim]}")
    a, b = x.chunk(2, dim)
    return torch.mul(a, sigmoid(b))


@widened
def glu_backward(g: Tensor, x: Tensor, dim: int) -> Tensor:
    a, b = x.chunk(2, dim)
    s = sigmoid(b)
    return torch.cat([torch.mul(g, s), torch.mul(torch.mul(torch.mul(g, a), torch.rsub(s, 1)), s)], dim)


@widened
def xlogy(x: Any, y: Any) -> Tensor:
    """x * log(y); 0 where x is 0 and y is not NaN."""
    device = next(each.device for each in (x, y) if isinstance(each, Tensor))
    a, b = (torch.as_tensor(each, dtype=torch.float32, device=device) for each in (x, y))
    return torch.where((a == 0) & ~torch.isnan(b), torch.zeros((), device=device), torch.mul(a, log(b)))


def _log_of_sum(a: Tensor, b: Tensor) -> Tensor:
    """m + log1p(exp(-|a - b|)), m the larger."""
    larger = torch.maximum(a, b)
    both = torch.add(larger, log1p(exp(torch.neg(torch.abs(torch.sub(a, b))))))
    return torch.where(torch.isinf(a) & (a == b), a, both)


@widened
def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """By doubling: each value and the one d places before it become the logarithm of their sum, d = 1, 2, 4, ...

    A running sum in logarithms has no error to speak of in this order, and takes log2(n) steps.
    """
    if not x.is_floating_point():
        return torch.logcumsumexp(x, dim)  # torch's own error
    over = (dimensions(dim, x.dim()) or [0])[0]
    line = x.reshape(1) if x.dim() == 0 else x
    n, d = line.shape[over], 1
    while d < n:
        later = _log_of_sum(line.narrow(over, 0, n - d), line.narrow(over, d, n - d))
        line = torch.cat([line.narrow(over, 0, d), later], over)
        d *= 2
    return (line.clone() if d == 1 else line).reshape(x.shape)


@widened
def sinc(x: Tensor) -> Tensor:
    """sin(y) / y, y = pi * x; 1 at 0."""
    y = torch.mul(floating(x), math.pi)
    return torch.where(y == 0, torch.ones_like(y), torch.div(sin(y), y))


def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x))."""
    if eps is not None:
        x = torch.clamp(x, eps, 1 - eps)
    return log(torch.div(x, torch.rsub(x, 1)))


@widened
def logit_backward(g: Tensor, x: Tensor, eps: float | None = None) -> Tensor:
    """g / (x * (1 - x)); 0 outside [eps, 1 - eps], NaN outside [0, 1] without eps."""
    found = torch.div(g, torch.mul(x, torch.rsub(x, 1)))
    low, high, outside = (0.0, 1.0, float("nan")) if eps is None else (eps, 1 - eps, 0.0)
    return torch.where((x < low) | (x > high), torch.full_like(x, outside), found)


def celu(x: Tensor, alpha: Any = 1.0) -> Tensor:
    """elu with its slope divided by alpha."""
    out: Tensor = elu(x, alpha, 1.0, 1.0 / float(alpha))
    return out


def deg2rad(x: Tensor) -> Tensor:
    return torch.mul(floating(x), math.pi / 180)


MEMBERS: Members = {
    **{f"aten::{name}": _of(name) for name in NAMES if name not in ("reciprocal", "cbrt")},
    "aten::sqrt": lambda x: sqrt(floating(x)),
    "aten::fmod": remainders.fmod,
    "aten::remainder": remainders.remainder,
    "aten::pow": power,
    "aten::atan2": atan2,
    "aten::gelu": gelu,
    "aten::gelu_backward": gelu_backward,
    "aten::silu": activations.silu,
    "aten::hypot": hypot,
    "aten::silu_backward": silu_backward,
    "aten::softplus": softplus,
    "aten::softplus_backward": softplus_backward,
    "aten::log_sigmoid_forward": log_sigmoid,
    "aten::log_sigmoid_backward": log_sigmoid_backward,
    "aten::mish": mish,
    "aten::mish_backward": mish_backward,
    "aten::elu": elu,
    "aten::elu_backward": elu_backward,
    "aten::glu": glu,
    "aten::glu_backward": glu_backward,
    "aten::xlogy": xlogy,
    "aten::logaddexp": widened(_log_of_sum),
    "aten::logcumsumexp": logcumsumexp,
    "aten::_logcumsumexp": logcumsumexp,
    "aten::sinc": sinc,
    "aten::celu": celu,
    "aten::logit": widened(logit),
    "aten::logit_backward": logit_backward,
    "aten::deg2rad": deg2rad,
}
