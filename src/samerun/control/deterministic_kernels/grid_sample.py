"""The gradients of torch.nn.functional.grid_sample."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
from torch import Tensor

from samerun.control.deterministic_kernels.declare import DeterministicOperator, Kernel, upcast_half_to_float32
from samerun.control.deterministic_kernels.ordered_sums import sum_rows_by_key

ZEROS, BORDER, REFLECTION = 0, 1, 2
LINEAR, NEAREST, CUBIC = 0, 1, 2
CUBIC_A = -0.75
"""The free parameter of the cubic kernel."""


class AxisTap(NamedTuple):
    """One input along one dimension that each point reads; tensors of the points' shape."""

    position: Tensor
    """An integer, in the dtype of the points."""
    weight: Tensor
    slope: Tensor
    """How the weight changes with the point."""


def _unnormalize_with_derivative(points: Tensor, size: int, align_corners: bool) -> tuple[Tensor, float]:
    """Turn -1 ... 1 into positions in `size` cells; also returns by how much they change with the point."""
    if align_corners:
        return (points + 1) / 2 * (size - 1), (size - 1) / 2
    return ((points + 1) * size - 1) / 2, size / 2


def _apply_padding_mode_with_derivative(
    position: Tensor, size: int, padding_mode: int, align_corners: bool
) -> tuple[Tensor, Tensor]:
    """Move positions into the input as the padding mode wants; returns too how much they change with the position."""
    slope = torch.ones_like(position)
    if padding_mode == REFLECTION:
        position, slope = _reflect_with_derivative(position, size, align_corners)
    if padding_mode != ZEROS:
        slope = torch.where((position <= 0) | (position >= size - 1), 0, slope)
        position = position.clamp(0, size - 1)
    return position, slope


def _reflect_with_derivative(position: Tensor, size: int, align_corners: bool) -> tuple[Tensor, Tensor]:
    """Mirror positions at both ends of the input until they lie inside; also returns the slope, 1 or -1."""
    low, span = (0.0, float(size - 1)) if align_corners else (-0.5, float(size))
    if span == 0:
        return torch.zeros_like(position), torch.zeros_like(position)
    offset = position - low
    slope = torch.where(offset < 0, -1.0, 1.0).to(position.dtype)
    offset = offset.abs()
    flips = torch.floor(offset / span)
    extra = torch.fmod(offset, span)
    odd = torch.remainder(flips, 2) != 0
    return torch.where(odd, span - extra, extra) + low, torch.where(odd, -slope, slope)


def grid_sampler_backward(
    grad_output: Tensor, input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool,
    output_mask: list[bool],
) -> tuple[Tensor | None, Tensor]:  # fmt: skip
    """input: [batch, channels, ...]; grid: [batch, ..., 2 or 3], x first. Returns the gradients of both."""
    batch, channels, sizes = input.shape[0], input.shape[1], input.shape[2:]
    points = grid.to(upcast_half_to_float32(input).dtype).flatten(1, -2)  # [batch, points, dims]
    taps = [
        _axis_taps(points[..., -1 - axis], size, interpolation_mode, padding_mode, align_corners)
        for axis, size in enumerate(sizes)
    ]  # in the order of the input's dimensions; the grid names the last one first
    output_gradients = upcast_half_to_float32(grad_output).flatten(2).transpose(1, 2)  # [batch, points, channels]
    cells = upcast_half_to_float32(input).flatten(2).transpose(1, 2).reshape(-1, channels)
    first = (torch.arange(batch, device=input.device) * sizes.numel()).unsqueeze(1)
    keys, values = [], []
    slopes = [torch.zeros_like(points[..., 0]) for _ in sizes]
    for corner in itertools.product(*taps):
        is_inside, cell = _corner_in_bounds_and_flat_index(corner, sizes)
        weights = [tap.weight for tap in corner]
        keys.append(torch.where(is_inside, cell + first, -1).flatten())
        if output_mask[0]:
            values.append((output_gradients * _multiply_all(weights).unsqueeze(2)).flatten(0, 1))
        if interpolation_mode != NEAREST:
            read = cells.index_select(0, (cell + first).flatten()).view_as(output_gradients)
            value_gradient = torch.where(is_inside, (read * output_gradients).sum(2), 0)
            for axis, tap in enumerate(corner):
                others = [*weights[:axis], tap.slope, *weights[axis + 1 :]]
                slopes[axis] = slopes[axis] + value_gradient * _multiply_all(others)
    grid_gradient = torch.stack(slopes[::-1], -1).view(grid.shape).to(grid.dtype)
    if not output_mask[0]:
        return None, grid_gradient
    rows = (torch.cat(keys) >= 0).nonzero().flatten()
    out = sum_rows_by_key(torch.cat(keys).index_select(0, rows), torch.cat(values).index_select(0, rows), len(cells))
    return out.view(batch, -1, channels).transpose(1, 2).reshape(input.shape).to(input.dtype), grid_gradient


def _axis_taps(
    points: Tensor, size: int, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> list[AxisTap]:
    """What each point reads along one dimension, of `size` inputs."""
    position, factor = _unnormalize_with_derivative(points, size, align_corners)
    if interpolation_mode == CUBIC:
        low = position.floor()
        fraction = position - low
        out: list[AxisTap] = []
        for step, (weight, slope) in enumerate(
            zip(_cubic_weights(fraction), _cubic_weight_derivatives(fraction), strict=True), start=-1
        ):
            padded = _apply_padding_mode_with_derivative(low + step, size, padding_mode, align_corners)[0]
            out.append(AxisTap(padded, weight, slope * factor))
        return out
    position, change = _apply_padding_mode_with_derivative(position, size, padding_mode, align_corners)
    change = change * factor
    if interpolation_mode == NEAREST:
        return [AxisTap(position.round(), torch.ones_like(position), torch.zeros_like(position))]
    low = position.floor()
    return [AxisTap(low, low + 1 - position, -change), AxisTap(low + 1, position - low, change)]


def _cubic_weights(fraction: Tensor) -> list[Tensor]:
    def outer(x: Tensor) -> Tensor:
        return ((CUBIC_A * x - 5 * CUBIC_A) * x + 8 * CUBIC_A) * x - 4 * CUBIC_A

    def inner(x: Tensor) -> Tensor:
        return ((CUBIC_A + 2) * x - (CUBIC_A + 3)) * x * x + 1

    return [outer(fraction + 1), inner(fraction), inner(1 - fraction), outer(2 - fraction)]


def _cubic_weight_derivatives(fraction: Tensor) -> list[Tensor]:
    def outer(x: Tensor) -> Tensor:
        return (3 * CUBIC_A * x - 10 * CUBIC_A) * x + 8 * CUBIC_A

    def inner(x: Tensor) -> Tensor:
        return (3 * (CUBIC_A + 2) * x - 2 * (CUBIC_A + 3)) * x

    return [outer(fraction + 1), inner(fraction), -inner(1 - fraction), -outer(2 - fraction)]


def _corner_in_bounds_and_flat_index(corner: tuple[AxisTap, ...], sizes: torch.Size) -> tuple[Tensor, Tensor]:
    """Whether all positions lie inside, and the cell of a plane that they name (0 where they do not)."""
    is_inside = torch.ones_like(corner[0][0], dtype=torch.bool)
    for tap, size in zip(corner, sizes, strict=True):
        is_inside = is_inside & (tap.position >= 0) & (tap.position <= size - 1)  # NaN is outside
    cell = torch.zeros_like(is_inside, dtype=torch.int64)
    for tap, size in zip(corner, sizes, strict=True):
        cell = cell * size + torch.where(is_inside, tap.position, 0).to(torch.int64)
    return is_inside, cell


def _multiply_all(factors: list[Tensor]) -> Tensor:
    out = factors[0]
    for factor in factors[1:]:
        out = out * factor
    return out


def cudnn_grid_sampler_backward(self: Tensor, grid: Tensor, grad_output: Tensor) -> tuple[Tensor | None, Tensor]:
    return grid_sampler_backward(grad_output, self, grid, LINEAR, ZEROS, True, [True, True])


GRID_SAMPLE = DeterministicOperator(
    "grid_sample",
    ("torch.nn.functional.grid_sample",),
    "The gradients of torch.nn.functional.grid_sample.",
    "What each point of the grid adds to the inputs that it reads is sorted by input, stably, and added in the order"
    " of the points, corner after corner; the gradient of the grid is gathered.",
    "A copy of the gradient for each input that a point reads (linear: 4 in 2d, 8 in 3d; bicubic: 16), and a sort of"
    " as many 64-bit numbers as there are pairs; the device is waited for.",
    (
        Kernel(grid_sampler_backward, ("grid_sampler_2d_backward",)),
        Kernel(grid_sampler_backward, ("grid_sampler_3d_backward",)),
        Kernel(cudnn_grid_sampler_backward, ("cudnn_grid_sampler_backward",)),
    ),
)
