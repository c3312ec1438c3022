"""F.interpolate: linear, bilinear and bicubic, and the last two with antialiasing; along width, then along height.

The weights of a dimension come from float64 arithmetic written out, and are rounded to the type of x once. A result
is the sum of value * weight in ascending input position, one addition after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import Members, NoPortableKernel, widen_half_inputs
from samerun.numerics.kernels import cubic_interpolation, ordered_scatter


class LinearCorners(NamedTuple):
    """For each output: the lower and upper place, and their weights (from float64, in the type of what is resized)."""

    lower: Tensor
    upper: Tensor
    lower_weight: Tensor
    upper_weight: Tensor


def linear_corners(
    in_size: int, out_size: int, align_corners: bool, scale: float | None, like: Tensor
) -> LinearCorners:
    i = torch.arange(out_size, dtype=torch.float64, device=like.device)
    if align_corners:
        source = i * ((in_size - 1) / (out_size - 1) if out_size > 1 else 0.0)
    else:
        source = torch.clamp((i + 0.5) * (1.0 / scale if scale else in_size / out_size) - 0.5, min=0.0)
    low = torch.clamp(source.floor().to(torch.int64), max=in_size - 1)
    high = torch.clamp(low + 1, max=in_size - 1)
    upper = torch.clamp(source - low, 0.0, 1.0).to(like.dtype)
    return LinearCorners(low, high, torch.rsub(upper, 1), upper)


def _scale_or_none(scales: Sequence[float | None], index: int) -> float | None:
    return scales[index] if index < len(scales) else None


@widen_half_inputs
def upsample_bilinear2d(x: Tensor, output_size: Sequence[int], align_corners: bool, *scales: float | None) -> Tensor:
    """Along width then height: (a * left + b * right) of the upper and the lower row, then the same of the two."""
    top, bottom, above, below = linear_corners(x.shape[2], output_size[0], align_corners, _scale_or_none(scales, 0), x)
    left, right, before, after = linear_corners(x.shape[3], output_size[1], align_corners, _scale_or_none(scales, 1), x)
    rows = torch.add(torch.mul(x[..., left], before), torch.mul(x[..., right], after))
    return torch.add(
        torch.mul(rows[:, :, top], above[:, None]), torch.mul(rows[:, :, bottom], below[:, None])
    ).contiguous()


@widen_half_inputs
def upsample_bilinear2d_backward(
    grad: Tensor, output_size: Sequence[int], input_size: Sequence[int], align_corners: bool, *scales: float | None
) -> Tensor:
    """The transposed steps: rows first, then columns; the upper (left) terms are added before the lower (right)."""
    top, bottom, above, below = linear_corners(
        input_size[2], output_size[0], align_corners, _scale_or_none(scales, 0), grad
    )
    left, right, before, after = linear_corners(
        input_size[3], output_size[1], align_corners, _scale_or_none(scales, 1), grad
    )
    rows = torch.zeros(
        input_size[0], input_size[1], input_size[2], output_size[1], dtype=grad.dtype, device=grad.device
    )
    rows = ordered_scatter.index_add(rows, 2, top, torch.mul(grad, above[:, None]))
    rows = ordered_scatter.index_add(rows, 2, bottom, torch.mul(grad, below[:, None]))
    out = torch.zeros(tuple(input_size), dtype=grad.dtype, device=grad.device)
    out = ordered_scatter.index_add(out, 3, left, torch.mul(rows, before))
    return ordered_scatter.index_add(out, 3, right, torch.mul(rows, after))


@widen_half_inputs
def upsample_linear1d(x: Tensor, output_size: Sequence[int], align_corners: bool, scale: float | None = None) -> Tensor:
    """a * left + b * right."""
    left, right, before, after = linear_corners(x.shape[2], output_size[0], align_corners, scale, x)
    return torch.add(torch.mul(x[..., left], before), torch.mul(x[..., right], after))


@widen_half_inputs
def upsample_linear1d_backward(
    grad: Tensor, output_size: Sequence[int], input_size: Sequence[int], align_corners: bool, scale: float | None = None
) -> Tensor:
    left, right, before, after = linear_corners(input_size[2], output_size[0], align_corners, scale, grad)
    out = ordered_scatter.index_add(
        torch.zeros(tuple(input_size), dtype=grad.dtype, device=grad.device), 2, left, torch.mul(grad, before)
    )
    return ordered_scatter.index_add(out, 2, right, torch.mul(grad, after))


class _TapTable(NamedTuple):
    """For each output along one dimension [out, taps]: places, float64 weights, and which of them there are."""

    positions: Tensor
    weight: Tensor
    is_present: Tensor | None
    """None: all of them."""


TapFunction = Callable[[int, int, bool, float | None, torch.device], _TapTable]


def _align_corners_step(in_size: int, out_size: int) -> float:
    """How far apart outputs are whose first and last stand on the first and last input."""
    return (in_size - 1) / (out_size - 1) if out_size > 1 else 0.0


def _cubic_taps(
    in_size: int, out_size: int, align_corners: bool, scale: float | None, device: torch.device
) -> _TapTable:
    """i * ((size - 1) / (out - 1)), or (i + 0.5) * (size / out) - 0.5; neighbours beyond the border are the border."""
    i = torch.arange(out_size, dtype=torch.float64, device=device)
    source = (
        i * _align_corners_step(in_size, out_size)
        if align_corners
        else (i + 0.5) * (1.0 / scale if scale else in_size / out_size) - 0.5
    )
    first = source.floor()
    weight = torch.stack(cubic_interpolation.cubic_weights(source - first, -0.75), 1)
    index = torch.clamp(first.to(torch.int64)[:, None] + torch.arange(-1, 3, device=device), 0, in_size - 1)
    return _TapTable(index, weight, None)


def _triangle_filter(x: Tensor) -> Tensor:
    return torch.where(x < 1, torch.rsub(x, 1), 0.0)


def _cubic_filter(x: Tensor) -> Tensor:
    return torch.where(
        x < 1,
        cubic_interpolation.inner_cubic_weight(x, -0.5),
        torch.where(x < 2, cubic_interpolation.outer_cubic_weight(x, -0.5), 0.0),
    )


def _antialias_taps(
    filter_function: Callable[[Tensor], Tensor],
    filter_radius: int,
    in_size: int,
    out_size: int,
    align_corners: bool,
    scale: float | None,
    device: torch.device,
) -> _TapTable:
    """s = size / out, r = reach * max(s, 1), c = s * (i + 0.5): the places from floor(c - r + 0.5) up to
    floor(c + r + 0.5), inside, of weight shape(|(j - c) + 0.5| / max(s, 1)), divided by their sum in ascending order.
    """
    step = _align_corners_step(in_size, out_size) if align_corners else 1.0 / scale if scale else in_size / out_size
    wide = max(step, 1.0)
    center = step * (torch.arange(out_size, dtype=torch.float64, device=device) + 0.5)
    low = torch.clamp(torch.floor(center - filter_radius * wide + 0.5), 0, in_size - 1).to(torch.int64)
    high = torch.clamp(torch.floor(center + filter_radius * wide + 0.5), 0, in_size).to(torch.int64)
    index = low[:, None] + torch.arange(min(in_size, 2 * math.ceil(filter_radius * wide) + 1), device=device)
    there = index < high[:, None]
    by = torch.full((), wide, dtype=torch.float64, device=device)
    weight = filter_function(torch.div(torch.abs(index - center[:, None] + 0.5), by))
    weight = torch.where(there, weight, 0.0)
    total = weight[:, 0]
    for each in weight.unbind(1)[1:]:
        total = torch.add(total, each)
    weight = torch.where(total[:, None] == 0, weight, torch.div(weight, total[:, None]))
    return _TapTable(torch.clamp(index, max=in_size - 1), weight, there)


def _resample_along_dim(x: Tensor, dim: int, taps: _TapTable) -> Tensor:
    """x resized along dim, which is -1 or -2."""
    out: Tensor | None = None
    for tap, weight in enumerate(taps.weight.to(x.dtype).unbind(1)):
        term = torch.mul(x.index_select(dim, taps.positions[:, tap]), weight if dim == -1 else weight[:, None])
        if out is None:
            out = term
        elif taps.is_present is None:
            out = torch.add(out, term)
        else:
            there = taps.is_present[:, tap] if dim == -1 else taps.is_present[:, tap, None]
            out = torch.where(there, torch.add(out, term), out)
    assert out is not None
    return out


def _resample_along_dim_backward(grad: Tensor, dim: int, in_size: int, taps: _TapTable) -> Tensor:
    """The transpose: the first taps of all outputs in ascending order, then the second ones, ..."""
    first = grad.movedim(dim, 0)
    shape = first.shape[1:]
    flat = first.reshape(grad.shape[dim], math.prod(shape))
    width = flat.shape[1]
    columns = torch.arange(width, device=grad.device)
    out = torch.zeros((in_size + 1) * width, dtype=grad.dtype, device=grad.device)
    places = taps.positions if taps.is_present is None else torch.where(taps.is_present, taps.positions, in_size)
    for at, weight in zip(places.unbind(1), taps.weight.to(grad.dtype).unbind(1), strict=True):
        lines = at[:, None] * width + columns
        ordered_scatter.index_add_(out, 0, lines.reshape(-1), torch.mul(flat, weight[:, None]).reshape(-1))
    return out[: in_size * width].reshape(in_size, *shape).movedim(0, dim).contiguous()


def _make_resize_handlers(
    torch_operator: Callable[..., Tensor], make_taps: TapFunction
) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    @widen_half_inputs
    def resize(x: Tensor, output_size: Sequence[int], align_corners: bool, *scales: float | None) -> Tensor:
        if x.dim() != 4 or len(output_size) != 2 or min(*x.shape[1:], *output_size) <= 0:
            return torch_operator(x, output_size, align_corners, *scales)  # torch's own words
        if not x.is_floating_point():
            raise NoPortableKernel(f"{x.dtype}.", "Convert it to float32 first: tensor.float().")
        rows = _resample_along_dim(
            x, -1, make_taps(x.shape[3], output_size[1], align_corners, _scale_or_none(scales, 1), x.device)
        )
        return _resample_along_dim(
            rows, -2, make_taps(x.shape[2], output_size[0], align_corners, _scale_or_none(scales, 0), x.device)
        ).contiguous()

    @widen_half_inputs
    def backward(
        grad: Tensor, output_size: Sequence[int], input_size: Sequence[int], align_corners: bool, *scales: float | None
    ) -> Tensor:
        """Height first, then width."""
        rows = _resample_along_dim_backward(
            grad,
            2,
            input_size[2],
            make_taps(input_size[2], output_size[0], align_corners, _scale_or_none(scales, 0), grad.device),
        )
        return _resample_along_dim_backward(
            rows,
            3,
            input_size[3],
            make_taps(input_size[3], output_size[1], align_corners, _scale_or_none(scales, 1), grad.device),
        )

    return resize, backward


@widen_half_inputs
def upsample_trilinear3d(x: Tensor, output_size: Sequence[int], align_corners: bool, *scales: float | None) -> Tensor:
    """Along width, then height, then depth: a * left + b * right."""
    for dim in (4, 3, 2):
        scale = scales[dim - 2] if len(scales) > dim - 2 else None
        low, high, before, after = linear_corners(x.shape[dim], output_size[dim - 2], align_corners, scale, x)
        shape = [-1 if at == dim else 1 for at in range(5)]
        left, right = (torch.mul(x.index_select(dim, at), w.reshape(shape)) for at, w in ((low, before), (high, after)))
        x = torch.add(left, right)
    return x.contiguous()


@widen_half_inputs
def upsample_trilinear3d_backward(
    grad: Tensor, output_size: Sequence[int], input_size: Sequence[int], align_corners: bool, *scales: float | None
) -> Tensor:
    """The transposed steps: depth first; the lower terms are added before the upper ones."""
    for dim in (2, 3, 4):
        scale = scales[dim - 2] if len(scales) > dim - 2 else None
        low, high, before, after = linear_corners(input_size[dim], output_size[dim - 2], align_corners, scale, grad)
        shape = [-1 if at == dim else 1 for at in range(5)]
        out = grad.new_zeros([input_size[at] if at == dim else size for at, size in enumerate(grad.shape)])
        for at, weight in ((low, before), (high, after)):
            out = ordered_scatter.index_add(out, dim, at, torch.mul(grad, weight.reshape(shape)))
        grad = out
    return grad


_NN = torch._C._nn
upsample_bicubic2d, upsample_bicubic2d_backward = _make_resize_handlers(_NN.upsample_bicubic2d, _cubic_taps)
upsample_bilinear2d_aa, upsample_bilinear2d_aa_backward = _make_resize_handlers(
    _NN._upsample_bilinear2d_aa, partial(_antialias_taps, _triangle_filter, 1)
)
upsample_bicubic2d_aa, upsample_bicubic2d_aa_backward = _make_resize_handlers(
    _NN._upsample_bicubic2d_aa, partial(_antialias_taps, _cubic_filter, 2)
)

MEMBERS: Members = {
    "aten::upsample_bilinear2d": upsample_bilinear2d,
    "aten::upsample_bilinear2d_backward": upsample_bilinear2d_backward,
    "aten::upsample_linear1d": upsample_linear1d,
    "aten::upsample_linear1d_backward": upsample_linear1d_backward,
    "aten::upsample_trilinear3d": upsample_trilinear3d,
    "aten::upsample_trilinear3d_backward": upsample_trilinear3d_backward,
    **{
        f"aten::_upsample_nearest_exact{dims}d_backward": widen_half_inputs(
            ordered_scatter.make_nearest_backward_handler(
                getattr(torch.ops.aten, f"_upsample_nearest_exact{dims}d").default
            )
        )
        for dims in (1, 2, 3)
    },
    "aten::upsample_bicubic2d": upsample_bicubic2d,
    "aten::upsample_bicubic2d_backward": upsample_bicubic2d_backward,
    "aten::_upsample_bilinear2d_aa": upsample_bilinear2d_aa,
    "aten::_upsample_bilinear2d_aa_backward": upsample_bilinear2d_aa_backward,
    "aten::_upsample_bicubic2d_aa": upsample_bicubic2d_aa,
    "aten::_upsample_bicubic2d_aa_backward": upsample_bicubic2d_aa_backward,
}
