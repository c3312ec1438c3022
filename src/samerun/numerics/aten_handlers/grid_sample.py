"""Values of an image at the places of a grid, in two or three dimensions, and the grid of an affine map."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import Members, widen_half_inputs
from samerun.numerics.kernels import cubic_interpolation, ordered_scatter, sums
from samerun.numerics.kernels.elementwise import fmod, remainder

LINEAR, NEAREST, CUBIC = 0, 1, 2
ZEROS, BORDER, REFLECTION = 0, 1, 2
_LARGEST_COORDINATE = float(1 << 30)


class _Neighbour(NamedTuple):
    """One neighbour along one dimension, for every place: [n, places]."""

    position: Tensor
    inside: Tensor
    weight: Tensor | None
    """None: 1."""
    slope: Tensor | None
    """How the weight grows with the coordinate. None: not at all."""


def _unnormalize_and_replace_nan(x: Tensor, size: int, padding_mode: int, align_corners: bool) -> Tensor:
    """((x + 1) * 0.5) * (size - 1), or ((x + 1) * size - 1) * 0.5. A NaN is 0, or outside where outside is zero."""
    if align_corners:
        found = torch.mul(torch.mul(torch.add(x, 1), 0.5), size - 1)
    else:
        found = torch.mul(torch.sub(torch.mul(torch.add(x, 1), size), 1), 0.5)
    found = torch.where(torch.isnan(found), -100.0 if padding_mode == ZEROS else 0.0, found)
    return torch.clamp(found, -_LARGEST_COORDINATE, _LARGEST_COORDINATE)


def _reflect_with_slope(x: Tensor, size: int, align_corners: bool) -> tuple[Tensor, Tensor]:
    """x thrown back at 0 and size - 1 (at -0.5 and size - 0.5 without align), and its derivative, 1 or -1.

    y = |x - low|, e = y mod span, e + low after an even number of spans, else (span - e) + low.
    """
    low, span = (0.0, float(size - 1)) if align_corners else (-0.5, float(size))
    if span == 0:
        return torch.zeros_like(x), torch.zeros_like(x)
    moved = torch.sub(x, low)
    y, by = torch.abs(moved), torch.full((), span, dtype=x.dtype, device=x.device)
    e = fmod(y, by)
    odd = remainder(torch.floor(torch.div(y, by)), 2) != 0
    sign = torch.where((moved < 0) ^ odd, -1.0, 1.0).to(x.dtype)
    return torch.add(torch.where(odd, torch.rsub(e, span), e), low), sign


def _pad_coordinate_with_slope(
    x: Tensor, size: int, padding_mode: int, align_corners: bool
) -> tuple[Tensor, Tensor | None]:
    """The coordinate after padding, and the factor of its gradient: 1 inside, 0 at and beyond the border."""
    if padding_mode == ZEROS:
        return x, None
    sign: Tensor | None = None
    if padding_mode == REFLECTION:
        x, sign = _reflect_with_slope(x, size, align_corners)
    within = ((x > 0) & (x < size - 1)).to(x.dtype)
    return torch.clamp(x, 0, max(size - 1, 0)), within if sign is None else torch.mul(sign, within)


def _clamp_index_with_inside_mask(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    inside = (x >= 0) & (x <= size - 1)
    return torch.clamp(x, 0, max(size - 1, 0)).to(torch.int64), inside


def _neighbours_with_slope(
    x: Tensor, size: int, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> tuple[list[_Neighbour], Tensor | None]:
    """The neighbours of normalised places [n, places], and the factor of the gradient of the coordinate."""
    x = _unnormalize_and_replace_nan(x, size, padding_mode, align_corners)
    if interpolation_mode == CUBIC:  # the border is where a neighbour is looked for
        first = torch.floor(x)
        t = torch.sub(x, first)
        given = zip(
            (-1, 0, 1, 2),
            cubic_interpolation.cubic_weights(t, -0.75),
            cubic_interpolation.cubic_weight_slopes(t, -0.75),
            strict=True,
        )
        return [
            _Neighbour(
                *_clamp_index_with_inside_mask(
                    _pad_coordinate_with_slope(torch.add(first, at), size, padding_mode, align_corners)[0].round(), size
                ),
                weight,
                slope,
            )
            for at, weight, slope in given
        ], None
    x, factor = _pad_coordinate_with_slope(x, size, padding_mode, align_corners)
    if interpolation_mode == NEAREST:
        return [_Neighbour(*_clamp_index_with_inside_mask(torch.round(x), size), None, None)], factor
    first = torch.floor(x)
    upper = torch.sub(x, first)
    one = torch.ones_like(upper)
    return [
        _Neighbour(*_clamp_index_with_inside_mask(first, size), torch.rsub(upper, 1), torch.neg(one)),
        _Neighbour(*_clamp_index_with_inside_mask(torch.add(first, 1), size), upper, one),
    ], factor


def _product_or_none(factors: Sequence[Tensor | None]) -> Tensor | None:
    """The product of those that are not None (a weight of 1); None where all are."""
    out: Tensor | None = None
    for factor in factors:
        out = factor if out is None else out if factor is None else torch.mul(out, factor)
    return out


class _GridSampler:
    """The neighbours of every place of a grid in x: for each a flat index, [n, places]. Behind x stands a zero, which
    is what lies outside.
    """

    def __init__(
        self, x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
    ) -> None:
        self.sizes, self.shape = x.shape[2:], grid.shape[1:-1]
        self.volume = math.prod(self.sizes)
        self.x = torch.cat([x.reshape(*x.shape[:2], self.volume), x.new_zeros(*x.shape[:2], 1)], 2)
        dims = len(self.sizes)
        flat = grid.reshape(grid.shape[0], math.prod(self.shape), dims)
        found = [
            _neighbours_with_slope(
                flat[..., dims - 1 - d], self.sizes[d], interpolation_mode, padding_mode, align_corners
            )
            for d in range(dims)
        ]
        self.taps, self.factors = [each[0] for each in found], [each[1] for each in found]

    def __iter__(self) -> Iterator[tuple[tuple[_Neighbour, ...], Tensor]]:
        for corner in itertools.product(*self.taps):
            index, inside = corner[0].position, corner[0].inside
            for tap, size in zip(corner[1:], self.sizes[1:], strict=True):
                index, inside = torch.add(torch.mul(index, size), tap.position), inside & tap.inside
            yield corner, torch.where(inside, index, self.volume)

    def gather_values_or_outside_zero(self, index: Tensor) -> Tensor:
        """x at such places: [n, channels, places]."""
        return self.x.gather(2, index[:, None].expand(*self.x.shape[:2], index.shape[1]))


def _require_fitting_grid(
    x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> None:
    dims = x.dim() - 2
    fits = grid.dim() == x.dim() and grid.shape[0] == x.shape[0] and grid.shape[-1] == dims and x.dtype is grid.dtype
    if (
        dims not in (2, 3)
        or not fits
        or 0 in x.shape[2:]
        or (interpolation_mode == CUBIC and dims == 3)
        or interpolation_mode not in (0, 1, 2)
    ):
        torch.grid_sampler(x, grid, interpolation_mode, padding_mode, align_corners)  # torch's own words
        raise RuntimeError(f"grid_sample: {tuple(grid.shape)} is no grid for {tuple(x.shape)}")


@widen_half_inputs
def grid_sample(x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """The sum of value * weight over the neighbours of a place, in row-major order, one addition after the other.

    Linear: f and f + 1, f = floor(coordinate), with 1 - t and t, t = coordinate - f; a weight is the product over the
    dimensions, in their order. Nearest: ties to even. Cubic: four neighbours a dimension
    (`numerics/kernels/cubic_interpolation.py`).
    """
    _require_fitting_grid(x, grid, interpolation_mode, padding_mode, align_corners)
    sampling, out = _GridSampler(x, grid, interpolation_mode, padding_mode, align_corners), None
    for corner, index in sampling:
        term, weight = sampling.gather_values_or_outside_zero(index), _product_or_none([tap.weight for tap in corner])
        term = term if weight is None else torch.mul(term, weight[:, None])
        out = term if out is None else torch.add(out, term)
    assert out is not None
    return out.reshape(*x.shape[:2], *sampling.shape)


@widen_half_inputs
def grid_sample_backward(
    grad: Tensor,
    x: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Of x: grad * weight, neighbour after neighbour in row-major order, for each the places in ascending order.

    Of a coordinate: q = the class S sum over the channels of grad * value; then the sum of q * (weights of the other
    dimensions * slope) over the neighbours in row-major order, times the factor of the padding, times size / 2 or
    (size - 1) / 2.
    """
    sampling = _GridSampler(x, grid, interpolation_mode, padding_mode, align_corners)
    n, channels, dims = *x.shape[:2], x.dim() - 2
    grad = grad.reshape(n, channels, math.prod(sampling.shape))
    planes = torch.arange(n * channels, device=x.device).reshape(n, channels, 1) * (sampling.volume + 1)
    of_x = torch.zeros(sampling.x.numel(), dtype=grad.dtype, device=grad.device) if output_mask[0] else None
    slopes: list[Tensor | None] = [None] * dims
    for corner, index in sampling:
        if of_x is not None:
            weight = _product_or_none([tap.weight for tap in corner])
            term = grad if weight is None else torch.mul(grad, weight[:, None])
            ordered_scatter.index_add_(of_x, 0, torch.add(index[:, None], planes).reshape(-1), term.reshape(-1))
        if not output_mask[1] or interpolation_mode == NEAREST:
            continue
        q = sums.sum(torch.mul(grad, sampling.gather_values_or_outside_zero(index)), [1])
        for d, before in enumerate(slopes):
            weight = _product_or_none([tap.slope if d == at else tap.weight for at, tap in enumerate(corner)])
            assert weight is not None
            term = torch.mul(q, weight)
            slopes[d] = term if before is None else torch.add(before, term)
    of_image = None if of_x is None else of_x.reshape(sampling.x.shape)[..., :-1].reshape(x.shape).contiguous()
    if not output_mask[1]:
        return of_image, None
    of_grid = torch.zeros(n, grad.shape[2], dims, dtype=grad.dtype, device=grad.device)
    for d, slope in enumerate(slopes):
        if slope is not None:
            factor = sampling.factors[d]
            found = slope if factor is None else torch.mul(slope, factor)
            of_grid[..., dims - 1 - d] = torch.mul(found, (x.shape[2 + d] - align_corners) / 2)
    return of_image, of_grid.reshape(grid.shape)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """Class M: (x, y, 1) or (x, y, z, 1) times the rows of theta, x from -1 to 1 by `linspace`; without align, x
    times (width - 1), then / width. In torch's operators, of which torch composes the gradient too.
    """
    n, dims = size[0], len(size) - 2
    if dims not in (2, 3):
        raise RuntimeError("AffineGridGenerator needs 4d (spatial) or 5d (volumetric) inputs.")
    parts = []
    for at, length in enumerate(reversed(size[2:])):
        line = torch.linspace(-1, 1, length, dtype=theta.dtype, device=theta.device) if length > 1 else (
            torch.zeros(length, dtype=theta.dtype, device=theta.device)
        )  # fmt: skip
        line = line if align_corners else line * (length - 1) / length
        parts.append(line.reshape([-1 if dims - 1 - at == d else 1 for d in range(dims)]).expand(list(size[2:])))
    parts.append(torch.ones(list(size[2:]), dtype=theta.dtype, device=theta.device))
    base = torch.stack(parts, -1).reshape(1, -1, dims + 1).expand(n, -1, -1)
    return torch.bmm(base, theta.transpose(1, 2)).reshape(n, *size[2:], dims)


MEMBERS: Members = {
    "aten::grid_sampler_2d": grid_sample,
    "aten::grid_sampler_2d_backward": grid_sample_backward,
    "aten::grid_sampler_3d": grid_sample,
    "aten::grid_sampler_3d_backward": grid_sample_backward,
    "aten::_grid_sampler_2d_cpu_fallback": grid_sample,
    "aten::cudnn_grid_sampler": lambda x, grid: grid_sample(x, grid, LINEAR, ZEROS, True),
    "aten::cudnn_grid_sampler_backward": lambda x, grid, g: grid_sample_backward(
        g, x, grid, LINEAR, ZEROS, True, (True, True)
    ),
}
COMPOSED: Members = {"aten::affine_grid_generator": affine_grid}
