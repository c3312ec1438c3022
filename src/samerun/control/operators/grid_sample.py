"""The gradients of torch.nn.functional.grid_sample."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from samerun.control.operators.declare import Kernel, Operator, widened
from samerun.control.operators.grid_coordinates import ZEROS, padded, unnormalized
from samerun.control.operators.segments import summed

LINEAR, NEAREST, CUBIC = 0, 1, 2
A = -0.75
"""The free parameter of the cubic kernel."""

Taps = list[tuple[Tensor, Tensor, Tensor]]
"""Along one dimension, for each input that a point reads: its position (whole), weight, and the weight's slope."""


def gradients(
    grad_output: Tensor, input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool,
    output_mask: list[bool],
) -> tuple[Tensor | None, Tensor]:  # fmt: skip
    """input: [batch, channels, ...]; grid: [batch, ..., 2 or 3], x first. Returns the gradients of both."""
    batch, channels, sizes = input.shape[0], input.shape[1], input.shape[2:]
    points = grid.to(widened(input).dtype).flatten(1, -2)  # [batch, points, dims]
    along = [
        _taps(points[..., -1 - axis], size, interpolation_mode, padding_mode, align_corners)
        for axis, size in enumerate(sizes)
    ]  # in the order of the input's dimensions; the grid names the last one first
    given = widened(grad_output).flatten(2).transpose(1, 2)  # [batch, points, channels]
    cells = widened(input).flatten(2).transpose(1, 2).reshape(-1, channels)
    first = (torch.arange(batch, device=input.device) * sizes.numel()).unsqueeze(1)
    keys, values = [], []
    slopes = [torch.zeros_like(points[..., 0]) for _ in sizes]
    for corner in itertools.product(*along):
        there, cell = _cell(corner, sizes)
        weights = [weight for _, weight, _ in corner]
        keys.append(torch.where(there, cell + first, -1).flatten())
        if output_mask[0]:
            values.append((given * _product(weights).unsqueeze(2)).flatten(0, 1))
        if interpolation_mode != NEAREST:
            read = cells.index_select(0, (cell + first).flatten()).view_as(given)
            seen = torch.where(there, (read * given).sum(2), 0)
            for axis, (_, _, slope) in enumerate(corner):
                slopes[axis] = slopes[axis] + seen * _product([*weights[:axis], slope, *weights[axis + 1 :]])
    of_grid = torch.stack(slopes[::-1], -1).view(grid.shape).to(grid.dtype)
    if not output_mask[0]:
        return None, of_grid
    rows = (torch.cat(keys) >= 0).nonzero().flatten()
    out = summed(torch.cat(keys).index_select(0, rows), torch.cat(values).index_select(0, rows), len(cells))
    return out.view(batch, -1, channels).transpose(1, 2).reshape(input.shape).to(input.dtype), of_grid


def _taps(points: Tensor, size: int, mode: int, padding: int, align: bool) -> Taps:
    position, factor = unnormalized(points, size, align)
    if mode == CUBIC:
        low = position.floor()
        t = position - low
        out = []
        for step, (weight, slope) in enumerate(zip(_cubic(t), _cubic_slopes(t), strict=True), start=-1):
            out.append((padded(low + step, size, padding, align)[0], weight, slope * factor))
        return out
    position, change = padded(position, size, padding, align)
    change = change * factor
    if mode == NEAREST:
        return [(position.round(), torch.ones_like(position), torch.zeros_like(position))]
    low = position.floor()
    return [(low, low + 1 - position, -change), (low + 1, position - low, change)]


def _cubic(t: Tensor) -> list[Tensor]:
    def far(x: Tensor) -> Tensor:
        return ((A * x - 5 * A) * x + 8 * A) * x - 4 * A

    def near(x: Tensor) -> Tensor:
        return ((A + 2) * x - (A + 3)) * x * x + 1

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _cubic_slopes(t: Tensor) -> list[Tensor]:
    def far(x: Tensor) -> Tensor:
        return (3 * A * x - 10 * A) * x + 8 * A

    def near(x: Tensor) -> Tensor:
        return (3 * (A + 2) * x - 2 * (A + 3)) * x

    return [far(t + 1), near(t), -near(1 - t), -far(2 - t)]


def _cell(corner: tuple[tuple[Tensor, Tensor, Tensor], ...], sizes: torch.Size) -> tuple[Tensor, Tensor]:
    """Whether all positions lie inside, and the cell of a plane that they name (0 where they do not)."""
    there = torch.ones_like(corner[0][0], dtype=torch.bool)
    for (position, _, _), size in zip(corner, sizes, strict=True):
        there = there & (position >= 0) & (position <= size - 1)  # NaN is outside
    cell = torch.zeros_like(there, dtype=torch.int64)
    for (position, _, _), size in zip(corner, sizes, strict=True):
        cell = cell * size + torch.where(there, position, 0).to(torch.int64)
    return there, cell


def _product(factors: list[Tensor]) -> Tensor:
    out = factors[0]
    for factor in factors[1:]:
        out = out * factor
    return out


def cudnn_gradients(self: Tensor, grid: Tensor, grad_output: Tensor) -> tuple[Tensor | None, Tensor]:
    return gradients(grad_output, self, grid, LINEAR, ZEROS, True, [True, True])


OPERATOR = Operator(
    "grid_sample",
    ("torch.nn.functional.grid_sample",),
    "The gradients of torch.nn.functional.grid_sample.",
    "What each point of the grid adds to the inputs that it reads is sorted by input, stably, and added in the order"
    " of the points, corner after corner; the gradient of the grid is gathered.",
    "A copy of the gradient for each input that a point reads (linear: 4 in 2d, 8 in 3d; bicubic: 16), and a sort of"
    " as many 64-bit numbers as there are pairs; the device is waited for.",
    (
        Kernel(gradients, ("grid_sampler_2d_backward",)),
        Kernel(gradients, ("grid_sampler_3d_backward",)),
        Kernel(cudnn_gradients, ("cudnn_grid_sampler_backward",)),
    ),
)
