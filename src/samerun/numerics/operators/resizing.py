"""Bicubic interpolation, and bilinear and bicubic with smoothing (antialias): along width, then along height.

The weights of a dimension come from float64 arithmetic written out, and are rounded to the type of x once. A result
is the sum of value * weight in ascending place, one addition after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from samerun.numerics.kernels import cubic, ordered
from samerun.numerics.operators.declare import Members, NotInTable, widened


class _Taps(NamedTuple):
    """For each output along one dimension [out, taps]: places, float64 weights, and which of them there are."""

    place: Tensor
    weight: Tensor
    there: Tensor | None
    """None: all of them."""


Table = Callable[[int, int, bool, float | None, torch.device], _Taps]


def _aligned(size: int, out: int) -> float:
    """How far apart outputs are whose first and last stand on the first and last input."""
    return (size - 1) / (out - 1) if out > 1 else 0.0


def _cubic(size: int, out: int, align: bool, scale: float | None, device: torch.device) -> _Taps:
    """i * ((size - 1) / (out - 1)), or (i + 0.5) * (size / out) - 0.5; neighbours beyond the border are the border."""
    i = torch.arange(out, dtype=torch.float64, device=device)
    source = i * _aligned(size, out) if align else (i + 0.5) * (1.0 / scale if scale else size / out) - 0.5
    first = source.floor()
    weight = torch.stack(cubic.weights(source - first, -0.75), 1)
    index = torch.clamp(first.to(torch.int64)[:, None] + torch.arange(-1, 3, device=device), 0, size - 1)
    return _Taps(index, weight, None)


def _tent(x: Tensor) -> Tensor:
    return torch.where(x < 1, torch.rsub(x, 1), 0.0)


def _spline(x: Tensor) -> Tensor:
    return torch.where(x < 1, cubic.near(x, -0.5), torch.where(x < 2, cubic.far(x, -0.5), 0.0))


def _smooth(
    shape: Callable[[Tensor], Tensor],
    reach: int,
    size: int,
    out: int,
    align: bool,
    scale: float | None,
    device: torch.device,
) -> _Taps:
    """s = size / out, r = reach * max(s, 1), c = s * (i + 0.5): the places from floor(c - r + 0.5) up to
    floor(c + r + 0.5), inside, of weight shape(|(j - c) + 0.5| / max(s, 1)), divided by their sum in ascending order.
    """
    step = _aligned(size, out) if align else 1.0 / scale if scale else size / out
    wide = max(step, 1.0)
    center = step * (torch.arange(out, dtype=torch.float64, device=device) + 0.5)
    low = torch.clamp(torch.floor(center - reach * wide + 0.5), 0, size - 1).to(torch.int64)
    high = torch.clamp(torch.floor(center + reach * wide + 0.5), 0, size).to(torch.int64)
    index = low[:, None] + torch.arange(min(size, 2 * math.ceil(reach * wide) + 1), device=device)
    there = index < high[:, None]
    by = torch.full((), wide, dtype=torch.float64, device=device)
    weight = shape(torch.div(torch.abs(index - center[:, None] + 0.5), by))
    weight = torch.where(there, weight, 0.0)
    total = weight[:, 0]
    for each in weight.unbind(1)[1:]:
        total = torch.add(total, each)
    weight = torch.where(total[:, None] == 0, weight, torch.div(weight, total[:, None]))
    return _Taps(torch.clamp(index, max=size - 1), weight, there)


def _along(x: Tensor, dim: int, taps: _Taps) -> Tensor:
    """x resized along dim, which is -1 or -2."""
    out: Tensor | None = None
    for tap, weight in enumerate(taps.weight.to(x.dtype).unbind(1)):
        term = torch.mul(x.index_select(dim, taps.place[:, tap]), weight if dim == -1 else weight[:, None])
        if out is None:
            out = term
        elif taps.there is None:
            out = torch.add(out, term)
        else:
            there = taps.there[:, tap] if dim == -1 else taps.there[:, tap, None]
            out = torch.where(there, torch.add(out, term), out)
    assert out is not None
    return out


def _back(g: Tensor, dim: int, size: int, taps: _Taps) -> Tensor:
    """The transpose of `_along`: the first taps of all outputs in ascending order, then the second ones, ..."""
    first = g.movedim(dim, 0)
    shape = first.shape[1:]
    flat = first.reshape(g.shape[dim], math.prod(shape))
    width = flat.shape[1]
    columns = torch.arange(width, device=g.device)
    out = torch.zeros((size + 1) * width, dtype=g.dtype, device=g.device)
    places = taps.place if taps.there is None else torch.where(taps.there, taps.place, size)
    for at, weight in zip(places.unbind(1), taps.weight.to(g.dtype).unbind(1), strict=True):
        lines = at[:, None] * width + columns
        ordered.add_(out, 0, lines.reshape(-1), torch.mul(flat, weight[:, None]).reshape(-1))
    return out[: size * width].reshape(size, *shape).movedim(0, dim).contiguous()


def _scale(scales: Sequence[float | None], at: int) -> float | None:
    return scales[at] if at < len(scales) else None


def _pair(plain: Callable[..., Tensor], table: Table) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    @widened
    def resize(x: Tensor, size: Sequence[int], align: bool, *scales: float | None) -> Tensor:
        if x.dim() != 4 or len(size) != 2 or min(*x.shape[1:], *size) <= 0:
            return plain(x, size, align, *scales)  # torch's own words
        if not x.is_floating_point():
            raise NotInTable(f"{x.dtype}.", "Convert it to float32 first: tensor.float().")
        rows = _along(x, -1, table(x.shape[3], size[1], align, _scale(scales, 1), x.device))
        return _along(rows, -2, table(x.shape[2], size[0], align, _scale(scales, 0), x.device)).contiguous()

    @widened
    def backward(g: Tensor, size: Sequence[int], shape: Sequence[int], align: bool, *scales: float | None) -> Tensor:
        """Height first, then width."""
        rows = _back(g, 2, shape[2], table(shape[2], size[0], align, _scale(scales, 0), g.device))
        return _back(rows, 3, shape[3], table(shape[3], size[1], align, _scale(scales, 1), g.device))

    return resize, backward


_NN = torch._C._nn
bicubic, bicubic_backward = _pair(_NN.upsample_bicubic2d, _cubic)
smooth_bilinear, smooth_bilinear_backward = _pair(_NN._upsample_bilinear2d_aa, partial(_smooth, _tent, 1))
smooth_bicubic, smooth_bicubic_backward = _pair(_NN._upsample_bicubic2d_aa, partial(_smooth, _spline, 2))

MEMBERS: Members = {
    "aten::upsample_bicubic2d": bicubic,
    "aten::upsample_bicubic2d_backward": bicubic_backward,
    "aten::_upsample_bilinear2d_aa": smooth_bilinear,
    "aten::_upsample_bilinear2d_aa_backward": smooth_bilinear_backward,
    "aten::_upsample_bicubic2d_aa": smooth_bicubic,
    "aten::_upsample_bicubic2d_aa_backward": smooth_bicubic_backward,
}
