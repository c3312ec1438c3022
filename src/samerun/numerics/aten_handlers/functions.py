"""Class R: correctly rounded functions, the activations that are written with them, and windows of signal processing.

Windows and logarithmic steps are functions of evenly spaced numbers, which are spaced in float64 and rounded to float32
once, as `linspace` and `arange` have it; functions are then of float32, and other types are rounded from that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import (
    Members,
    NoPortableKernel,
    Scalar,
    divide_correctly_rounded,
    to_floating,
    widen_half_inputs,
)
from samerun.numerics.kernels import elementwise
from samerun.numerics.kernels import functions as kernels
from samerun.numerics.kernels.elementwise import sqrt
from samerun.numerics.kernels.functions import (
    NAMES,
    apply_correctly_rounded,
    exp,
    expm1,
    log,
    log1p,
    sigmoid,
    sin,
    tanh,
)
from samerun.numerics.kernels.tensors import normalize_reduction_dims


def _make_unary_handler(name: str) -> Callable[[Tensor], Tensor]:
    return lambda x: apply_correctly_rounded(name, to_floating(x))


def _try_exact_power(x: Tensor, exponent: Any) -> Tensor | None:
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


@widen_half_inputs
def pow(x: Any, exponent: Any) -> Tensor:
    """x ** exponent: products and roots for 0, 1, 2, 3, 0.5, -1 and -2; else correctly rounded."""
    dtype = torch.result_type(x, exponent)
    if not dtype.is_floating_point:
        return torch.pow(x, exponent)
    if isinstance(x, Tensor) and not isinstance(exponent, Tensor):
        x = x.to(dtype)
        found = _try_exact_power(x, exponent)
        if found is not None:
            return found
    device = next(each.device for each in (x, exponent) if isinstance(each, Tensor))
    a, b = (torch.as_tensor(each, dtype=dtype, device=device) for each in (x, exponent))
    return kernels.pow(a, b)


@widen_half_inputs
def atan2(y: Tensor, x: Tensor) -> Tensor:
    return kernels.atan2(*_promote_to_floating(y, x))


def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return elementwise.gelu(x, approximate)


def gelu_backward(grad: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    return elementwise.gelu_backward(grad.expand(x.shape), x, approximate)


def silu_backward(grad: Tensor, x: Tensor) -> Tensor:
    return elementwise.silu_backward(grad.expand(x.shape), x)


@widen_half_inputs
def hypot(x: Tensor, y: Tensor) -> Tensor:
    return kernels.hypot(*_promote_to_floating(x, y))


@widen_half_inputs
def softplus(x: Tensor, beta: Scalar = 1, threshold: Scalar = 20) -> Tensor:
    """log1p(exp(x * beta)) / beta; x where x * beta > threshold."""
    scaled = torch.mul(x, beta)
    return torch.where(scaled > threshold, x, divide_correctly_rounded(log1p(exp(scaled)), beta))


@widen_half_inputs
def softplus_backward(grad: Tensor, x: Tensor, beta: Scalar, threshold: Scalar) -> Tensor:
    """grad * sigmoid(x * beta); grad where x * beta > threshold."""
    scaled = torch.mul(x, beta)
    return torch.where(scaled > threshold, grad, torch.mul(grad, sigmoid(scaled)))


@widen_half_inputs
def log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
    """min(x, 0) - log1p(exp(-|x|)); the second result is not used."""
    return torch.sub(torch.clamp(x, max=0), log1p(exp(torch.neg(torch.abs(x))))), x.new_empty(0)


@widen_half_inputs
def log_sigmoid_backward(grad: Tensor, x: Tensor, buffer: Tensor) -> Tensor:
    """grad * sigmoid(-x)."""
    return torch.mul(grad, sigmoid(torch.neg(x)))


@widen_half_inputs
def mish(x: Tensor) -> Tensor:
    """x * tanh(log1p(exp(x)))."""
    return torch.mul(x, tanh(softplus(x)))


@widen_half_inputs
def mish_backward(grad: Tensor, x: Tensor) -> Tensor:
    """grad * (t + x * s * (1 - t * t)), t = tanh(log1p(exp(x))), s = sigmoid(x)."""
    t, s = tanh(softplus(x)), sigmoid(x)
    return torch.mul(grad, torch.add(t, torch.mul(torch.mul(x, s), torch.rsub(torch.mul(t, t), 1))))


@widen_half_inputs
def elu(x: Tensor, alpha: Scalar = 1, scale: Scalar = 1, input_scale: Scalar = 1) -> Tensor:
    """scale * x above 0, else (alpha * scale) * expm1(x * input_scale)."""
    return torch.where(
        x > 0, torch.mul(x, scale), torch.mul(expm1(torch.mul(x, input_scale)), float(alpha) * float(scale))
    )


@widen_half_inputs
def elu_backward(grad: Tensor, alpha: Scalar, scale: Scalar, input_scale: Scalar, is_result: bool, x: Tensor) -> Tensor:
    """The derivative, from the input or from the result."""
    factor = float(alpha) * float(scale)
    if is_result:
        below = torch.mul(torch.mul(grad, input_scale), torch.add(x, factor))
    else:
        below = torch.mul(torch.mul(grad, float(input_scale) * factor), exp(torch.mul(x, input_scale)))
    return torch.where(x <= 0, below, torch.mul(grad, scale))


@widen_half_inputs
def glu(x: Tensor, dim: int = -1) -> Tensor:
    """The first half times the sigmoid of the second."""
    if x.dim() and -x.dim() <= dim < x.dim() and x.shape[dim] % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {x.shape[dim]}")
    a, b = x.chunk(2, dim)
    return torch.mul(a, sigmoid(b))


@widen_half_inputs
def glu_backward(grad: Tensor, x: Tensor, dim: int) -> Tensor:
    a, b = x.chunk(2, dim)
    s = sigmoid(b)
    return torch.cat([torch.mul(grad, s), torch.mul(torch.mul(torch.mul(grad, a), torch.rsub(s, 1)), s)], dim)


@widen_half_inputs
def xlogy(x: Any, y: Any) -> Tensor:
    """x * log(y); 0 where x is 0 and y is not NaN."""
    a, b = _promote_to_floating(x, y)
    return torch.where((a == 0) & ~torch.isnan(b), torch.zeros_like(a), torch.mul(a, log(b)))


def _promote_to_floating(*values: Any) -> tuple[Tensor, ...]:
    """Tensors and numbers, at least one a tensor, as tensors of the floating type that torch promotes them to."""
    device = next(each.device for each in values if isinstance(each, Tensor))
    dtype = torch.result_type(*values)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    return tuple(torch.as_tensor(each, dtype=dtype, device=device) for each in values)


def logaddexp(a: Tensor, b: Tensor) -> Tensor:
    """m + log1p(exp(-|a - b|)), m the larger."""
    larger = torch.maximum(a, b)
    both = torch.add(larger, log1p(exp(torch.neg(torch.abs(torch.sub(a, b))))))
    return torch.where(torch.isinf(a) & (a == b), a, both)


@widen_half_inputs
def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """By doubling: each value and the one d places before it become the logarithm of their sum, d = 1, 2, 4, ...

    A running sum in logarithms has no error to speak of in this order, and takes log2(n) steps.
    """
    if not x.is_floating_point():
        return torch.logcumsumexp(x, dim)  # torch's own error
    over = (normalize_reduction_dims(dim, x.dim()) or [0])[0]
    line = x.reshape(1) if x.dim() == 0 else x
    n, d = line.shape[over], 1
    while d < n:
        later = logaddexp(line.narrow(over, 0, n - d), line.narrow(over, d, n - d))
        line = torch.cat([line.narrow(over, 0, d), later], over)
        d *= 2
    return (line.clone() if d == 1 else line).reshape(x.shape)


@widen_half_inputs
def sinc(x: Tensor) -> Tensor:
    """sin(y) / y, y = pi * x; 1 at 0."""
    y = torch.mul(to_floating(x), math.pi)
    return torch.where(y == 0, torch.ones_like(y), torch.div(sin(y), y))


def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x))."""
    if eps is not None:
        x = torch.clamp(x, eps, 1 - eps)
    return log(torch.div(x, torch.rsub(x, 1)))


@widen_half_inputs
def logit_backward(grad: Tensor, x: Tensor, eps: float | None = None) -> Tensor:
    """grad / ((x + 0) * (1 - x)); 0 outside [eps, 1 - eps], NaN outside [0, 1] without eps."""
    found = torch.div(grad, torch.mul(x + 0.0, torch.rsub(x, 1)))  # at -0.0 the slope is infinite too, not its opposite
    low, high, outside = (0.0, 1.0, float("nan")) if eps is None else (eps, 1 - eps, 0.0)
    return torch.where((x < low) | (x > high), torch.full_like(x, outside), found)


def celu(x: Tensor, alpha: Scalar = 1.0) -> Tensor:
    """elu with its slope divided by alpha."""
    out: Tensor = elu(x, alpha, 1.0, 1.0 / float(alpha))
    return out


def deg2rad(x: Tensor) -> Tensor:
    return torch.mul(to_floating(x), math.pi / 180)


def _require_real_floating_dtype(kwargs: dict[str, Any]) -> torch.dtype:
    dtype: torch.dtype = kwargs.get("dtype") or torch.get_default_dtype()
    if dtype not in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        raise NoPortableKernel(f"{dtype}.", "It has one for float32: dtype=torch.float32.")
    return dtype


def _make_window_handler(
    torch_operator: Callable[..., Tensor], window_function: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    """`shape(k, n, ...)` of k = 0, 1, ..., n - 1 in float64; a periodic window is one longer, without its last."""

    def window(n: int, periodic: bool = True, *settings: float, **kwargs: Any) -> Tensor:
        if n < 0 or not (kwargs.get("dtype") or torch.get_default_dtype()).is_floating_point:
            return torch_operator(n, periodic, *settings, **kwargs)  # torch's own error
        dtype, device = _require_real_floating_dtype(kwargs), kwargs.get("device")
        if n <= 1:
            return torch.ones(n, dtype=dtype, device=device)
        k = torch.arange(n, dtype=torch.float64, device=device)
        return window_function(
            k, n + periodic, torch.float64 if dtype is torch.float64 else torch.float32, *settings
        ).to(dtype)

    return window


def _window_cosine(k: Tensor, num_periods: float, window_length: int, dtype: torch.dtype) -> Tensor:
    """cos(k * (2 pi num_periods / (window_length - 1))): the angle is rounded to `dtype`."""
    return kernels.cos(torch.mul(k, num_periods * 2 * math.pi / (window_length - 1)).to(dtype))


def _hamming_window(
    k: Tensor, window_length: int, dtype: torch.dtype, alpha: float = 0.54, beta: float = 0.46
) -> Tensor:
    """cos * -beta + alpha."""
    return torch.add(torch.mul(_window_cosine(k, 1, window_length, dtype), -beta), alpha)


def _blackman_window(k: Tensor, window_length: int, dtype: torch.dtype) -> Tensor:
    """(cos of twice the angle * 0.08 - cos * 0.5) + 0.42."""
    return torch.add(
        torch.sub(
            torch.mul(_window_cosine(k, 2, window_length, dtype), 0.08),
            torch.mul(_window_cosine(k, 1, window_length, dtype), 0.5),
        ),
        0.42,
    )


def _bartlett_window(k: Tensor, window_length: int, dtype: torch.dtype) -> Tensor:
    """2k / (window_length - 1) up to the middle, then 2 minus that."""
    rising = torch.mul(k, 2 / (window_length - 1)).to(dtype)
    return torch.where(k <= (window_length - 1) // 2, rising, torch.rsub(rising, 2))


def logspace(start: Scalar, end: Scalar, steps: int, base: float = 10.0, **kwargs: Any) -> Tensor:
    """base to the power of start + i * step, of which the last is `end`; the exponent is rounded to float32."""
    dtype, device = _require_real_floating_dtype(kwargs), kwargs.get("device")
    if steps < 0:
        return torch.logspace(start, end, steps, base)  # torch's own error
    first, last = float(start), float(end)
    step = (last - first) / (steps - 1) if steps > 1 else 0.0
    exponents = torch.add(torch.mul(torch.arange(steps, dtype=torch.float64, device=device), step), first)
    if steps > 1:
        exponents[-1] = last
    power = exponents if dtype is torch.float64 else exponents.float()
    return kernels.pow(torch.full_like(power, base), power).to(dtype)


MEMBERS: Members = {
    **{f"aten::{name}": _make_unary_handler(name) for name in NAMES if name not in ("reciprocal", "cbrt")},
    "aten::sqrt": lambda x: sqrt(to_floating(x)),
    "aten::fmod": elementwise.fmod,
    "aten::remainder": elementwise.remainder,
    "aten::pow": pow,
    "aten::atan2": atan2,
    "aten::gelu": gelu,
    "aten::gelu_backward": gelu_backward,
    "aten::silu": elementwise.silu,
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
    "aten::logaddexp": widen_half_inputs(logaddexp),
    "aten::logcumsumexp": logcumsumexp,
    "aten::_logcumsumexp": logcumsumexp,
    "aten::sinc": sinc,
    "aten::celu": celu,
    "aten::logit": widen_half_inputs(logit),
    "aten::logit_backward": logit_backward,
    "aten::deg2rad": deg2rad,
    "aten::rad2deg": lambda x: torch.mul(to_floating(x), 180 / math.pi),
    "aten::hann_window": _make_window_handler(
        torch.hann_window, lambda k, n, dtype: _hamming_window(k, n, dtype, 0.5, 0.5)
    ),
    "aten::hamming_window": _make_window_handler(torch.hamming_window, _hamming_window),
    "aten::blackman_window": _make_window_handler(torch.blackman_window, _blackman_window),
    "aten::bartlett_window": _make_window_handler(torch.bartlett_window, _bartlett_window),
    "aten::logspace": logspace,
}
