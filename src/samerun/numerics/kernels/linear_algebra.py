"""Class M on torch tensors: products of matrices and convolutions, by the C library or by the reference; and, made of
products, orthogonal and triangular matrices.

Everything here is exact about bits and knows nothing of autograd. float32 and float64; bfloat16 and float16 are
widened to float32 in products and convolutions, and the result is rounded once. Factorizations take batches
[batch, m, n]: the steps of `reference.linear_algebra`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from enum import IntEnum
from struct import pack
from typing import Any, NamedTuple

import torch
from torch import Tensor

from samerun.numerics.convolution_shape import make_convolution_shape
from samerun.numerics.kernels import library, sums
from samerun.numerics.kernels.elementwise import sqrt
from samerun.numerics.reference import linear_algebra as reference
from samerun.numerics.status import DONE

_HALF_TYPES = (torch.bfloat16, torch.float16)
_matmul = library.declare_native_function("samerun_matmul", "iippppp")
_convolution = library.declare_native_function("samerun_convolution", "iiipppppp")


def matmul(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """[..., m, k] @ [..., k, n] -> [..., m, n] in any layout, plus `bias` (broadcast), which is one more rounding.

    Batches are those of `a` and `b`, which must be alike. The result is contiguous.
    """
    if a.dtype in _HALF_TYPES:
        wide = matmul(a.float(), b.float(), None if bias is None else bias.float())
        return wide.to(a.dtype)
    *batch, m, k = a.shape
    n = b.shape[-1]
    out = a.new_empty((*batch, m, n))
    if not library.uses_native_kernels(a):
        return _matmul_by_reference(out, a, b, bias)
    if len(batch) > 1:
        a, b, flat = a.reshape(-1, m, k), b.reshape(-1, k, n), out.view(-1, m, n)
        bias = None if bias is None else bias.broadcast_to(out.shape).reshape(-1, m, n)
    else:
        flat = out
    sa, sb = a.stride(), b.stride()
    if bias is not None:
        sc = bias.broadcast_to(flat.shape).stride()
    elif batch:
        sc = (0, 0, 0)
    else:
        sc = (0, 0)
    if batch:
        dims = (flat.shape[0], m, n, k, *sa, *sb, m * n, n, 1, *sc)
    else:
        dims = (1, m, n, k, 0, *sa, 0, *sb, 0, n, 1, 0, *sc)
    where = None if bias is None else bias.data_ptr()
    numbers = dims if library.is_off_cpu(a) else pack("16q", *dims)
    status = _matmul.for_device_of(a)(
        a.dtype is torch.float64, numbers, a.data_ptr(), b.data_ptr(), out.data_ptr(), where
    )
    if status != DONE:
        _raise_if_out_of_memory(status)
    return out


def _matmul_by_reference(out: Tensor, a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    found = reference.matmul(a.detach().numpy(), b.detach().numpy())
    out.copy_(torch.from_numpy(found if bias is None else found + bias.detach().numpy()))
    return out


def _raise_if_out_of_memory(status: int) -> None:
    if status != DONE:
        raise MemoryError("samerun: no memory for a product of matrices")


def convolution_output_size(
    input_size: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    """Spatial size of a convolution's output."""
    return [
        (i + 2 * p - d * (t - 1) - 1) // s + 1
        for i, t, s, p, d in zip(input_size, kernel_size, stride, padding, dilation, strict=True)
    ]


class ConvolutionPass(IntEnum):
    """As native/convolution.c numbers them."""

    FORWARD = 0
    GRADIENT_OF_INPUT = 1
    GRADIENT_OF_WEIGHT = 2


FORWARD, GRADIENT_OF_INPUT, GRADIENT_OF_WEIGHT = ConvolutionPass


def convolve(
    direction: ConvolutionPass,
    image: Tensor | Sequence[int],
    weight: Tensor | Sequence[int],
    gradient: Tensor | Sequence[int],
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """One of the three products of a convolution.

    `image` [n, c, *in], `weight` [c', c / groups, *taps] and `gradient` [n, c', *out]: two tensors, and the shape
    of the third, which is the result: FORWARD gives the gradient's place, INPUT the image's, WEIGHT the weight's.
    `bias` is added to the channels of the result (not for WEIGHT).
    """
    tensors = [value for value in (image, weight, gradient) if isinstance(value, Tensor)]
    dtype, device = tensors[0].dtype, tensors[0].device
    if dtype in _HALF_TYPES:
        x, w, g = (value.float() if isinstance(value, Tensor) else value for value in (image, weight, gradient))
        plus = None if bias is None else bias.float()
        return convolve(direction, x, w, g, plus, stride, padding, dilation, groups).to(dtype)
    image, weight, gradient = (
        value.contiguous() if isinstance(value, Tensor) else list(value) for value in (image, weight, gradient)
    )
    shapes = [list(value.shape) if isinstance(value, Tensor) else value for value in (image, weight, gradient)]
    result = (shapes[2], shapes[0], shapes[1])[direction]
    _require_fitting_convolution_shapes(direction, shapes[0], shapes[1], shapes[2], stride, padding, dilation, groups)
    if bias is not None and (bias.shape != (result[1],) or bias.dtype is not dtype):
        raise RuntimeError(f"expected {result[1]} biases of {dtype}, but got {list(bias.shape)} of {bias.dtype}")
    if tensors[0].dtype is not tensors[1].dtype:
        raise RuntimeError(f"expected one type, got {tensors[0].dtype} and {tensors[1].dtype}")
    if not library.uses_native_kernels(tensors[0]):
        return _convolve_by_reference(
            direction, image, weight, gradient, bias, stride, padding, dilation, groups, result
        )
    out = torch.empty(result, dtype=dtype, device=device)
    if math.prod(shapes[0]) == 0 and direction != GRADIENT_OF_INPUT:
        return _fill_with_bias_or_zero(out, bias)
    shape = make_convolution_shape(shapes[0], shapes[1], shapes[2], stride, padding, dilation, groups)
    pointers = [value.data_ptr() if isinstance(value, Tensor) else None for value in (image, weight, gradient)]
    plus = None if bias is None else bias.contiguous()
    _raise_if_out_of_memory(
        _convolution.for_device_of(out)(
            direction, dtype is torch.float64, ctypes.byref(shape), *pointers,
            None if plus is None else plus.data_ptr(), out.data_ptr(),
        )
    )  # fmt: skip
    return out


def _require_fitting_convolution_shapes(
    direction: ConvolutionPass, image: list[int], weight: list[int], gradient: list[int], stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], groups: int,
) -> None:  # fmt: skip
    """Raise RuntimeError where a kernel would read or write beyond one of the three, or divide by zero."""
    dims = len(image) - 2
    if not 1 <= dims <= 3 or not len(weight) == len(gradient) == dims + 2:
        raise RuntimeError(f"convolution: expected tensors of one dimension, got {image}, {weight} and {gradient}")
    if not len(stride) == len(padding) == len(dilation) == dims:
        raise RuntimeError(f"convolution: expected {dims} values of stride, padding and dilation")
    if min(*stride, *dilation, groups) <= 0 or min(padding) < 0:
        raise RuntimeError("convolution: stride, dilation and groups must be positive, padding must not be negative")
    fits = image[0] == gradient[0] and image[1] == weight[1] * groups and gradient[1] == weight[0]
    if direction != GRADIENT_OF_INPUT:  # every window of the gradient lies inside the padded image
        most = convolution_output_size(image[2:], weight[2:], stride, padding, dilation)
        fits = fits and all(size <= limit for size, limit in zip(gradient[2:], most, strict=True))
    if not fits or weight[0] % groups or min(*image, *weight, *gradient) < 0:
        raise RuntimeError(f"convolution: {image}, {weight} and {gradient} do not fit, with groups={groups}")


def _fill_with_bias_or_zero(out: Tensor, bias: Tensor | None) -> Tensor:
    """No image, or images without channels: every sum is empty."""
    out.zero_()
    return out if bias is None else out.add_(bias.view(-1, *[1] * (out.dim() - 2)))


def _convolve_by_reference(
    direction: ConvolutionPass,
    image: Any,
    weight: Any,
    gradient: Any,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    result_shape: list[int],
) -> Tensor:
    setting = (stride, padding, dilation, groups, result_shape[2:])
    if direction == FORWARD:
        plus = None if bias is None else bias.detach().numpy()
        stride, padding, dilation, groups, size = setting
        found = reference.convolution(
            image.detach().numpy(), weight.detach().numpy(), plus, stride, padding, dilation, groups, size
        )
    elif direction == GRADIENT_OF_INPUT:
        found = reference.convolution_input_gradient(gradient.detach().numpy(), weight.detach().numpy(), *setting)
        if bias is not None:
            found = found + bias.detach().numpy().reshape(1, -1, *[1] * (len(result_shape) - 2))
    else:
        found = reference.convolution_weight_gradient(gradient.detach().numpy(), image.detach().numpy(), *setting)
    return torch.from_numpy(found).reshape(result_shape)


def exponents_of_column_maxima(a: Tensor) -> Tensor:
    """int64 [batch, 1, n]."""
    if a.shape[1] == 0:
        return torch.zeros(a.shape[0], 1, a.shape[2], dtype=torch.int64, device=a.device)
    largest = torch.amax(torch.abs(a).to(torch.float64), 1, keepdim=True)
    usable = torch.isfinite(largest) & (largest > 0)
    found = torch.frexp(torch.where(usable, largest, 1.0))[1].to(torch.int64)
    return torch.clamp(torch.where(usable, found, 0), -1000, 1000)


def _scale_columns_by_power_of_two(a: Tensor, exponents: Tensor) -> Tensor:
    return torch.mul(a.to(torch.float64), ((exponents + 1023) << 52).view(torch.float64)).to(a.dtype)


def _apply_reflection_(a: Tensor, v: Tensor, tau: Tensor) -> None:
    """a - v (tau (v' a)), in place; v [batch, m], tau [batch]."""
    row = torch.mul(matmul(v[:, None, :], a), tau[:, None, None])
    a.sub_(torch.mul(v[:, :, None], row))


class PackedReflections(NamedTuple):
    packed: Tensor
    """The triangle on and above the diagonal, below it the vectors of the reflections."""
    tau: Tensor


def householder_qr(a: Tensor) -> PackedReflections:
    """The triangle on and above the diagonal, below it the vectors of the reflections; and tau [batch, min(m, n)]."""
    batch, m, n = a.shape
    e = exponents_of_column_maxima(a)
    r, k = _scale_columns_by_power_of_two(a, torch.neg(e)), min(m, n)
    tau = torch.zeros(batch, k, dtype=a.dtype, device=a.device)
    for j in range(k):
        first, below = r[:, j, j].clone(), r[:, j + 1 :, j].contiguous()
        squares = sums.tree_sum("square", below, [1])
        moves = squares != 0  # also of NaN; where nothing is to be made 0, tau is 0
        last = torch.neg(torch.copysign(sqrt(torch.add(torch.mul(first, first), squares)), first))
        one = torch.where(moves, torch.div(torch.sub(last, first), last), 0.0)
        v = torch.ones(batch, m - j, dtype=a.dtype, device=a.device)
        v[:, 1:] = torch.where(moves[:, None], torch.div(below, torch.sub(first, last)[:, None]), below)
        _apply_reflection_(r[:, j:, j + 1 :], v, one)
        r[:, j, j] = torch.where(moves, last, first)
        r[:, j + 1 :, j] = v[:, 1:]
        tau[:, j] = one
    above = torch.arange(m, device=a.device)[:, None] <= torch.arange(n, device=a.device)
    return PackedReflections(torch.where(above, _scale_columns_by_power_of_two(r, e), r), tau)


def multiply_reflectors(v: Tensor, tau: Tensor, num_columns: int) -> Tensor:
    """The first num_columns of the product of the reflections."""
    batch, m = v.shape[:2]
    q = torch.eye(m, num_columns, dtype=v.dtype, device=v.device).repeat(batch, 1, 1)
    for j in reversed(range(tau.shape[1])):
        one = torch.ones(batch, m - j, dtype=v.dtype, device=v.device)
        one[:, 1:] = v[:, j + 1 :, j]
        _apply_reflection_(q[:, j:, j:], one, tau[:, j])
    return q


def solve_triangular(a: Tensor, b: Tensor, upper: bool, unit_diagonal: bool) -> Tensor:
    """x of a x = b, a triangular [batch, n, n], b [batch, n, k]."""
    n = a.shape[1]
    x = torch.zeros_like(b, memory_format=torch.contiguous_format)
    for i in reversed(range(n)) if upper else range(n):
        known = slice(i + 1, n) if upper else slice(0, i)
        row = torch.sub(b[:, i], matmul(a[:, i : i + 1, known], x[:, known])[:, 0])
        x[:, i] = row if unit_diagonal else torch.div(row, a[:, i, i, None])
    return x
