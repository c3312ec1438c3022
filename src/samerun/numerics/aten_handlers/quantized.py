"""Dynamic quantisation (`torch.ao.quantization.quantize_dynamic`): linear layers whose weights are stored in 8 bits.

The inputs of a call are rounded to 8 bits too, in the range that they have. Products of such integers are exact in any
order: what is specified is how numbers are rounded before and behind. Scale and zero point are those of FBGEMM's
ChooseQuantizationParams, which torch uses.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import Members, NoPortableKernel
from samerun.numerics.kernels.linear_algebra import matmul

LEVELS = 255
SMALLEST_SCALE = 6.1e-5
"""Below it, the reciprocal of a product of two scales could overflow in float16 hardware: FBGEMM's threshold."""
SCALE_OF_ZEROS = 0.1


class AffineRange(NamedTuple):
    """A real number x is stored as the integer round(x / scale) + zero_point."""

    scale: Tensor
    """float32, of no dimension."""
    zero_point: int


def choose_affine_range(x: Tensor, reduce_range: bool) -> AffineRange:
    """The range from the smallest to the largest of x and 0, in 256 steps, or 128 with `reduce_range`.

    Raises NoPortableKernel where a value is infinite or NaN.
    """
    levels = LEVELS // 2 if reduce_range else LEVELS
    low, high = (float(bound) for bound in torch.aminmax(x)) if x.numel() else (0.0, 0.0)
    if not torch.isfinite(torch.tensor([low, high])).all():
        raise NoPortableKernel("a value that is infinite or NaN.", "Find where it arises: torch.isfinite(x).all().")
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / levels
    single = torch.tensor(scale, dtype=torch.float32)
    if single == 0 or torch.isinf(1 / single):
        scale = SCALE_OF_ZEROS
    zero_point = min(max(round(-low / scale), 0), levels)
    return AffineRange(torch.tensor(max(scale, SMALLEST_SCALE), dtype=torch.float32), zero_point)


def quantize(x: Tensor, scale: Tensor, zero_point: int) -> Tensor:
    """float64, of the shape of x (float32): integers from 0 to 255; halves are rounded to the even one."""
    return (torch.round(x * (1 / scale)).double() + zero_point).clamp(0, LEVELS)


def _stored_integers_and_scales(weight: Tensor) -> tuple[Tensor, Tensor]:
    """float64 [out, in], the zero points subtracted, and the scale (float32) of all rows or of each."""
    integers = weight.int_repr().double()
    if weight.qscheme() is torch.per_tensor_affine:
        return integers - weight.q_zero_point(), torch.tensor(weight.q_scale(), dtype=torch.float32)
    if weight.qscheme() is not torch.per_channel_affine:
        raise NoPortableKernel(f"a weight quantised as {weight.qscheme()}.", "Quantise it per tensor or per channel.")
    return integers - weight.q_per_channel_zero_points().double()[:, None], weight.q_per_channel_scales().float()


def _require_float32_rows_of(weight: Tensor, x: Tensor) -> None:
    if x.dtype is not torch.float32:
        raise RuntimeError(f"linear_dynamic: expected an input of float32, got {x.dtype}")
    if x.dim() == 0 or x.shape[-1] != weight.shape[1]:
        raise RuntimeError(f"linear_dynamic: shapes {tuple(x.shape)} and {tuple(weight.shape)} cannot be multiplied")


def linear_dynamic(x: Tensor, packed_weight: Any, reduce_range: bool = False) -> Tensor:
    """x (float32 [..., in]) times the weight [out, in], plus the bias: float32 [..., out].

    The sum of products of integers, rounded once to float32, times the product of both scales, plus the bias; each of
    these three is rounded.
    """
    weight, bias = torch.ops.quantized.linear_unpack(packed_weight)
    _require_float32_rows_of(weight, x)
    stored, weight_scale = _stored_integers_and_scales(weight)
    scale, zero_point = choose_affine_range(x, reduce_range)
    rows = quantize(x.reshape(-1, x.shape[-1]), scale, zero_point) - zero_point
    # |sum| <= 255 * 255 * in < 2^53: float64 holds each of them, so the order in which the library adds is of no weight
    y = torch.mm(rows, stored.t()).float() * (scale * weight_scale)
    if bias is not None:
        y = y + bias
    return y.reshape(*x.shape[:-1], weight.shape[0])


def linear_relu_dynamic(x: Tensor, packed_weight: Any, reduce_range: bool = False) -> Tensor:
    return torch.threshold(linear_dynamic(x, packed_weight, reduce_range), 0, 0)  # every zero is +0.0, as with `relu`


def linear_dynamic_fp16(x: Tensor, packed_weight: Any) -> Tensor:
    """The weight is stored in float16, and computed with in float32."""
    weight, bias = torch.ops.quantized.linear_unpack_fp16(packed_weight)
    _require_float32_rows_of(weight, x)
    rows = x.reshape(-1, x.shape[-1])
    y: Tensor = matmul(rows, weight.float().t(), None if bias is None else bias.expand(rows.shape[0], -1))
    return y.reshape(*x.shape[:-1], weight.shape[0])


def linear_relu_dynamic_fp16(x: Tensor, packed_weight: Any) -> Tensor:
    return torch.threshold(linear_dynamic_fp16(x, packed_weight), 0, 0)


MEMBERS: Members = {
    "quantized::linear_dynamic": linear_dynamic,
    "quantized::linear_relu_dynamic": linear_relu_dynamic,
    "quantized::linear_dynamic_fp16": linear_dynamic_fp16,
    "quantized::linear_relu_dynamic_fp16": linear_relu_dynamic_fp16,
}
