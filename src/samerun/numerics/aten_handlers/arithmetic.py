"""Class E operators that round more than once: written out, left to right. torch's kernels fuse some of them.

Also minimum, maximum and clamp, IEEE 754's: a NaN wins, and -0.0 is less than +0.0. torch leaves the sign of a zero to
the order of work and to the machine's instruction: torch.max of a tensor with both zeros changes with the number of
threads.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import (
    HALF_TYPES,
    Members,
    Scalar,
    divide_correctly_rounded,
    require_floating_or_complex_dtype,
    widen_half_inputs,
)
from samerun.numerics.kernels import library
from samerun.numerics.kernels.elementwise import try_fused_update_in_place
from samerun.numerics.kernels.sums import amax, amin


def multiply_unless_one(x: Any, factor: Any) -> Any:
    """A multiplication by the number 1 is omitted."""
    return x if not isinstance(factor, Tensor) and factor == 1 else torch.mul(x, factor)


@widen_half_inputs
def _add_scaled(a: Tensor, b: Tensor, alpha: Scalar) -> Tensor:
    return torch.add(a, torch.mul(b, alpha))


@widen_half_inputs
def _sub_scaled(a: Tensor, b: Tensor, alpha: Scalar) -> Tensor:
    return torch.sub(a, torch.mul(b, alpha))


def _round_numbers_as_on_cpu(a: Any, b: Any) -> tuple[Any, Any]:
    """torch's CPU kernels round a number to the bfloat16 or float16 of the tensor that it is added to or subtracted
    from; its CUDA kernels do not.
    """
    return _round_number_to_half_dtype_if_off_cpu(a, b), _round_number_to_half_dtype_if_off_cpu(b, a)


def _round_number_to_half_dtype_if_off_cpu(number: Any, x: Any) -> Any:
    if not isinstance(x, Tensor) or x.dtype not in HALF_TYPES or not library.is_off_cpu(x):
        return number
    if isinstance(number, Tensor) and (number.dim() or library.is_off_cpu(number)):
        return number
    return torch.as_tensor(number, dtype=x.dtype).item()


def add(a: Any, b: Any, *, alpha: Scalar = 1) -> Tensor:
    if alpha == 1:
        return torch.add(*_round_numbers_as_on_cpu(a, b))
    out: Tensor = _add_scaled(a, b if isinstance(b, Tensor) else torch.tensor(b, device=a.device), alpha)
    return out


def add_(a: Tensor, b: Any, *, alpha: Scalar = 1) -> Tensor:
    return a.add_(_round_number_to_half_dtype_if_off_cpu(b, a)) if alpha == 1 else a.copy_(add(a, b, alpha=alpha))


def sub(a: Any, b: Any, *, alpha: Scalar = 1) -> Tensor:
    if alpha == 1:
        return torch.sub(*_round_numbers_as_on_cpu(a, b))
    out: Tensor = _sub_scaled(a, b if isinstance(b, Tensor) else torch.tensor(b, device=a.device), alpha)
    return out


def sub_(a: Tensor, b: Any, *, alpha: Scalar = 1) -> Tensor:
    return a.sub_(_round_number_to_half_dtype_if_off_cpu(b, a)) if alpha == 1 else a.copy_(sub(a, b, alpha=alpha))


def rsub(a: Tensor, b: Any, alpha: Scalar = 1) -> Tensor:
    return torch.rsub(a, _round_number_to_half_dtype_if_off_cpu(b, a)) if alpha == 1 else sub(b, a, alpha=alpha)


@widen_half_inputs
def addcmul(x: Tensor, a: Tensor, b: Tensor, *, value: Scalar = 1) -> Tensor:
    """x + (value * a) * b."""
    return torch.add(x, torch.mul(multiply_unless_one(a, value), b))


@widen_half_inputs
def addcdiv(x: Tensor, a: Tensor, b: Tensor, *, value: Scalar = 1) -> Tensor:
    """x + (value * a) / b."""
    require_floating_or_complex_dtype(torch.promote_types(a.dtype, b.dtype))
    return torch.add(x, torch.div(multiply_unless_one(a, value), b))


def addcmul_(x: Tensor, a: Tensor, b: Tensor, *, value: Scalar = 1) -> Tensor:
    return x if try_fused_update_in_place("addcmul", x, a, b, value) else x.copy_(addcmul(x, a, b, value=value))


def addcdiv_(x: Tensor, a: Tensor, b: Tensor, *, value: Scalar = 1) -> Tensor:
    return x if try_fused_update_in_place("addcdiv", x, a, b, value) else x.copy_(addcdiv(x, a, b, value=value))


@widen_half_inputs
def lerp(start: Tensor, end: Tensor, weight: Any) -> Tensor:
    """start + weight * (end - start)."""
    require_floating_or_complex_dtype(start.dtype)
    return torch.add(start, torch.mul(torch.sub(end, start), weight))


def lerp_(start: Tensor, end: Tensor, weight: Any) -> Tensor:
    if not isinstance(weight, Tensor) and try_fused_update_in_place("lerp", start, end, end, weight):
        return start
    return start.copy_(lerp(start, end, weight))


@widen_half_inputs
def addr(x: Tensor, a: Tensor, b: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> Tensor:
    """beta * x + alpha * (a b')."""
    product = multiply_unless_one(torch.mul(a[:, None], b[None, :]), alpha)
    return product if beta == 0 else torch.add(product, multiply_unless_one(x, beta))


def linspace(start: Scalar, end: Scalar, steps: int, **kwargs: Any) -> Tensor:
    """start + i * step, in float64, rounded once; the last is `end`."""
    kwargs = {name: value for name, value in kwargs.items() if value is not None}
    dtype, device = kwargs.pop("dtype", torch.get_default_dtype()), kwargs.get("device")
    first, last = float(start), float(end)
    step = (last - first) / (steps - 1) if steps > 1 else 0.0
    values = first + step * torch.arange(steps, dtype=torch.float64, device=device)
    if steps > 1:
        values[-1] = last
    return values.to(dtype)


def arange(*bounds: Any, **kwargs: Any) -> Tensor:
    """start + i * step: exact in whole numbers, else in float64 (two roundings), rounded once more."""
    whole, device = all(isinstance(bound, int) for bound in bounds), kwargs.get("device")
    dtype = kwargs.get("dtype") or (torch.int64 if whole else torch.get_default_dtype())
    if not dtype.is_floating_point:
        return torch.arange(*bounds, dtype=dtype, device=device)
    start, end, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    size = torch.arange(start, end, step, dtype=torch.float64).numel()
    return torch.add(torch.mul(torch.arange(size, dtype=torch.float64, device=device), step), start).to(dtype)


def sigmoid_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    """(grad_output * (1 - output)) * output."""
    return torch.mul(torch.mul(grad_output, torch.rsub(output, 1)), output)


def tanh_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    """grad_output * (1 - output * output)."""
    return torch.mul(grad_output, torch.rsub(torch.mul(output, output), 1))


def hardswish(x: Tensor) -> Tensor:
    """(x * clamp(x + 3, 0, 6)) / 6."""
    return divide_correctly_rounded(torch.mul(x, torch.clamp(torch.add(x, 3), 0, 6)), 6)


def hardswish_backward(grad: Tensor, x: Tensor) -> Tensor:
    """0 below -3, grad above 3, grad * (x / 3 + 0.5) between."""
    between = torch.mul(grad, torch.add(divide_correctly_rounded(x, 3), 0.5))
    return torch.where(x < -3, torch.zeros_like(grad), torch.where(x > 3, grad, between))  # NaN stays


def hardsigmoid(x: Tensor) -> Tensor:
    """clamp(x + 3, 0, 6) / 6."""
    require_floating_or_complex_dtype(x.dtype)
    return divide_correctly_rounded(torch.clamp(torch.add(x, 3), 0, 6), 6)


def hardsigmoid_backward(grad: Tensor, x: Tensor) -> Tensor:
    """grad / 6 between -3 and 3, else 0."""
    return torch.where((x > -3) & (x < 3), divide_correctly_rounded(grad, 6), torch.zeros_like(grad))


def softshrink(x: Tensor, lambd: Scalar = 0.5) -> Tensor:
    """x - clamp(x, -lambd, lambd), and +0.0 for every zero."""
    if lambd <= 0 or not x.is_floating_point():
        return torch.add(torch.nn.functional.softshrink(x, lambd), 0.0)  # x itself, or torch's own error
    return torch.sub(x, torch.clamp(x, -lambd, lambd))


def _zero_within_lambda(values: Tensor, x: Tensor, lambd: Scalar) -> Tensor:
    inside = (x >= -lambd) & (x <= lambd)
    return torch.where(inside, torch.zeros((), dtype=values.dtype, device=values.device), values)


def hardshrink(x: Tensor, lambd: Scalar = 0.5) -> Tensor:
    """+0.0 from -lambd to lambd, else x."""
    return _zero_within_lambda(x, x, lambd)


def shrink_backward(grad: Tensor, x: Tensor, lambd: Scalar) -> Tensor:
    """+0.0 from -lambd to lambd, else grad."""
    return _zero_within_lambda(grad, x, lambd)


@widen_half_inputs
def cross(a: Tensor, b: Tensor, *, dim: int = -1) -> Tensor:
    """a[1] * b[2] - a[2] * b[1], and so on around."""
    if a.dim() != b.dim() or a.dim() == 0 or a.shape[dim] != 3 or b.shape[dim] != 3:
        torch.linalg.cross(a, b, dim=dim)  # torch's own words
        raise RuntimeError(f"linalg.cross: {tuple(a.shape)} and {tuple(b.shape)} have no three components along {dim}")
    (a0, a1, a2), (b0, b1, b2) = a.unbind(dim), b.unbind(dim)
    pairs = ((a1, b2, a2, b1), (a2, b0, a0, b2), (a0, b1, a1, b0))
    return torch.stack([torch.sub(torch.mul(p, q), torch.mul(r, s)) for p, q, r, s in pairs], dim)


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


def _clamp_one_side(x: Tensor, bound: Any, is_lower_bound: bool) -> Tensor:
    if isinstance(bound, Tensor):
        return maximum(x, bound) if is_lower_bound else minimum(x, bound)
    if not x.is_floating_point() or bound != 0:  # no zero can meet another
        return torch.clamp_min(x, bound) if is_lower_bound else torch.clamp_max(x, bound)
    if is_lower_bound and str(float(bound)) == "0.0":
        return torch.threshold(x, 0, 0)
    return (maximum if is_lower_bound else minimum)(x, torch.full((), float(bound), dtype=x.dtype, device=x.device))


def clamp(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """minimum(maximum(x, min), max)."""
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if min is not None:
        x = _clamp_one_side(x, min, True)
    return x if max is None else _clamp_one_side(x, max, False)


def clamp_max(x: Tensor, max: Any) -> Tensor:
    return _clamp_one_side(x, max, False)


def hardtanh(x: Tensor, min_val: Scalar = -1, max_val: Scalar = 1) -> Tensor:
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
    "aten::add": add,
    "aten::add_": add_,
    "aten::sub": sub,
    "aten::sub_": sub_,
    "aten::rsub": rsub,
    "aten::addcmul": addcmul,
    "aten::addcmul_": addcmul_,
    "aten::addcdiv": addcdiv,
    "aten::addcdiv_": addcdiv_,
    "aten::lerp": lerp,
    "aten::lerp_": lerp_,
    "aten::addr": addr,
    "aten::arange": arange,
    "aten::linspace": linspace,
    "aten::sigmoid_backward": widen_half_inputs(sigmoid_backward),
    "aten::tanh_backward": widen_half_inputs(tanh_backward),
    "aten::hardswish": widen_half_inputs(hardswish),
    "aten::hardswish_backward": widen_half_inputs(hardswish_backward),
    "aten::hardsigmoid": widen_half_inputs(hardsigmoid),
    "aten::hardsigmoid_backward": widen_half_inputs(hardsigmoid_backward),
    "aten::softshrink": widen_half_inputs(softshrink),
    "aten::softshrink_backward": widen_half_inputs(shrink_backward),
    "aten::hardshrink": hardshrink,
    "aten::hardshrink_backward": shrink_backward,
    "aten::linalg_cross": cross,
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
