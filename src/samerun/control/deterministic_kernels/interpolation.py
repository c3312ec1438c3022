"""The gradients of interpolate: linear, bilinear, bicubic and trilinear, with antialias or without."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from samerun.control.deterministic_kernels.declare import DeterministicOperator, Kernel, upcast_half_to_float32
from samerun.control.deterministic_kernels.ordered_sums import (
    TransposedMap,
    sum_output_gradients_over_readers,
    transpose_output_to_input_map,
)

TapMode = Literal["linear", "cubic", "linear smooth", "cubic smooth"]
"""smooth: with antialias."""
CUBIC_A = -0.75
CUBIC_ANTIALIAS_A = -0.5
"""The free parameter of the cubic kernel: torch takes another one for antialias."""


class InputTaps(NamedTuple):
    """Which inputs each output reads along one dimension: int64[outputs, taps], -1 for none; and with what weight."""

    inputs: Tensor
    weights: Tensor


@lru_cache(maxsize=256)
def _make_transposed_interpolation_map(
    mode: TapMode,
    num_inputs: int,
    num_outputs: int,
    align_corners: bool,
    scale_factor: float | None,
    dtype: torch.dtype,
    device: torch.device,
) -> TransposedMap:
    """Which outputs of `interpolate` read each input along one dimension, and with what weight.

    scale_factor: the scale that the user gave, if any. dtype: float32 or float64, in which torch's forward kernels
    compute positions.
    """
    step = _input_step_per_output(num_inputs, num_outputs, align_corners, scale_factor, dtype)
    out = torch.arange(num_outputs, dtype=dtype, device="cpu")
    if num_inputs == num_outputs and step == 1 and not mode.endswith("smooth"):  # as it is, and no NaN beside a NaN
        return transpose_output_to_input_map(
            torch.arange(num_inputs, device="cpu").unsqueeze(1), None, num_inputs, device
        )
    if mode.endswith("smooth"):
        taps = _antialias_taps(mode, out, step, num_inputs)
    else:
        positions = out * step if align_corners else (out + 0.5) * step - 0.5
        taps = (_linear_taps if mode == "linear" else _cubic_taps)(positions, num_inputs)
    return transpose_output_to_input_map(taps.inputs, taps.weights, num_inputs, device)


def _input_step_per_output(
    num_inputs: int, num_outputs: int, align_corners: bool, scale_factor: float | None, dtype: torch.dtype
) -> Tensor:
    """How far apart in the input two outputs are, rounded as torch's forward kernels round it: a scalar of `dtype`."""
    if align_corners:
        above, below = (float(num_inputs - 1), float(num_outputs - 1)) if num_outputs > 1 else (0.0, 1.0)
    elif scale_factor is not None and scale_factor > 0:
        above, below = 1.0, scale_factor
    else:
        above, below = float(num_inputs), float(num_outputs)
    top, bottom = (torch.tensor(value, dtype=torch.float64, device="cpu") for value in (above, below))
    if scale_factor is not None and scale_factor > 0 and not align_corners:
        return (top / bottom).to(dtype)
    return top.to(dtype) / bottom.to(dtype)


def _linear_taps(positions: Tensor, num_inputs: int) -> InputTaps:
    positions = positions.clamp(min=0)
    low = positions.to(torch.int64).clamp(max=num_inputs - 1)
    upper = (positions - low).clamp(0, 1)
    inputs = torch.stack([low, (low + 1).clamp(max=num_inputs - 1)], 1)
    return InputTaps(inputs, torch.stack([1 - upper, upper], 1))


def _cubic_taps(positions: Tensor, num_inputs: int) -> InputTaps:
    low = positions.floor()
    t = positions - low
    inputs = low.to(torch.int64).unsqueeze(1) + torch.arange(-1, 3, device="cpu")
    weights = torch.stack([_cubic_weight(distance, CUBIC_A) for distance in (t + 1, t, 1 - t, 2 - t)], 1)
    return InputTaps(inputs.clamp(0, num_inputs - 1), weights)


def _cubic_weight(distance: Tensor, a: float) -> Tensor:
    """The cubic convolution kernel with the parameter `a`, at distances of 0 and above."""
    x = distance
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return torch.where(x < 1, near, torch.where(x < 2, far, 0))


def _antialias_taps(mode: TapMode, output_indices: Tensor, scale: Tensor, num_inputs: int) -> InputTaps:
    """A kernel as wide as an output is: every input under it counts, and the weights add up to one."""
    half = 1.0 if mode.startswith("linear") else 2.0
    support = half * scale.clamp(min=1)
    center = scale * (output_indices + 0.5)
    start = (center - support + 0.5).to(torch.int64).clamp(min=0)
    end = (center + support + 0.5).to(torch.int64).clamp(max=num_inputs)
    step = torch.arange(max(int((end - start).max()), 1), device="cpu")
    sources = start.unsqueeze(1) + step
    distance = ((sources - center.unsqueeze(1) + 0.5) / scale.clamp(min=1)).abs()
    weights = (1 - distance).clamp(min=0) if mode.startswith("linear") else _cubic_weight(distance, CUBIC_ANTIALIAS_A)
    inside = sources < end.unsqueeze(1)
    weights = torch.where(inside, weights, 0)
    total = weights.sum(1, keepdim=True)
    return InputTaps(torch.where(inside, sources, -1), weights / torch.where(total == 0, 1, total))


def _upsample_backward(
    mode: TapMode,
    grad_output: Tensor,
    input_size: list[int],
    align_corners: bool,
    scale_factors_last_dim_first: tuple[float | None, ...],
) -> Tensor:
    """scale_factors_last_dim_first: for each dimension, from the last, the scale that the user gave, or None."""
    out = upcast_half_to_float32(grad_output)
    for dim, scale_factor in zip((-1, -2, -3), scale_factors_last_dim_first, strict=False):
        readers = _make_transposed_interpolation_map(
            mode, input_size[dim], out.shape[dim], align_corners, scale_factor, out.dtype, out.device
        )
        out = sum_output_gradients_over_readers(out, dim, readers)
    return out.to(grad_output.dtype)


def upsample_linear1d_backward(
    grad_output: Tensor, output_size: list[int], input_size: list[int], align_corners: bool, w: float | None = None
) -> Tensor:
    return _upsample_backward("linear", grad_output, input_size, align_corners, (w,))


def upsample_bilinear2d_backward(
    grad_output: Tensor, output_size: list[int], input_size: list[int], align_corners: bool,
    h: float | None = None, w: float | None = None,
) -> Tensor:  # fmt: skip
    return _upsample_backward("linear", grad_output, input_size, align_corners, (w, h))


def upsample_bicubic2d_backward(
    grad_output: Tensor, output_size: list[int], input_size: list[int], align_corners: bool,
    h: float | None = None, w: float | None = None,
) -> Tensor:  # fmt: skip
    return _upsample_backward("cubic", grad_output, input_size, align_corners, (w, h))


def upsample_trilinear3d_backward(
    grad_output: Tensor, output_size: list[int], input_size: list[int], align_corners: bool,
    d: float | None = None, h: float | None = None, w: float | None = None,
) -> Tensor:  # fmt: skip
    return _upsample_backward("linear", grad_output, input_size, align_corners, (w, h, d))


def upsample_bilinear2d_aa_backward(
    grad_output: Tensor, output_size: list[int], input_size: list[int], align_corners: bool,
    h: float | None = None, w: float | None = None,
) -> Tensor:  # fmt: skip
    return _upsample_backward("linear smooth", grad_output, input_size, align_corners, (w, h))


def upsample_bicubic2d_aa_backward(
    grad_output: Tensor, output_size: list[int], input_size: list[int], align_corners: bool,
    h: float | None = None, w: float | None = None,
) -> Tensor:  # fmt: skip
    return _upsample_backward("cubic smooth", grad_output, input_size, align_corners, (w, h))


def _has_float_gradient(grad_output: Tensor, *others: object, **named: object) -> bool:
    return grad_output.is_floating_point()


def _make_upsample_backward_kernel(compute: Callable[..., Tensor], overload: str) -> Kernel:
    return Kernel(compute, (overload, f"{overload}.grad_input"), applies=_has_float_gradient)


INTERPOLATE = DeterministicOperator(
    "interpolate",
    ("torch.nn.functional.interpolate", "linear", "bilinear", "bicubic", "trilinear"),
    "The gradients of interpolate: linear, bilinear, bicubic and trilinear, smoothed (antialias) or not.",
    "One dimension after the other, each input gathers the outputs that read it, times their weights, in ascending"
    " order.",
    "For each dimension a gather, a product and a sum for each output that reads an input (about twice the factor"
    " for linear, four times for cubic); tables of weights are kept for the last sizes.",
    (
        _make_upsample_backward_kernel(upsample_linear1d_backward, "upsample_linear1d_backward"),
        _make_upsample_backward_kernel(upsample_bilinear2d_backward, "upsample_bilinear2d_backward"),
        _make_upsample_backward_kernel(upsample_bilinear2d_aa_backward, "_upsample_bilinear2d_aa_backward"),
        _make_upsample_backward_kernel(upsample_bicubic2d_backward, "upsample_bicubic2d_backward"),
        _make_upsample_backward_kernel(upsample_bicubic2d_aa_backward, "_upsample_bicubic2d_aa_backward"),
        _make_upsample_backward_kernel(upsample_trilinear3d_backward, "upsample_trilinear3d_backward"),
    ),
)
