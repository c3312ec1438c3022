"""Linear and bilinear interpolation: weights from float64 arithmetic written out, then one rounding a step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from samerun.numerics.kernels import ordered
from samerun.numerics.operators.declare import Members, widened


def _corners(
    size: int, out: int, align: bool, scale: float | None, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For each output: the lower and upper place, and their weights (float32, from float64)."""
    i = torch.arange(out, dtype=torch.float64, device=device)
    if align:
        source = i * ((size - 1) / (out - 1) if out > 1 else 0.0)
    else:
        source = torch.clamp((i + 0.5) * (1.0 / scale if scale else size / out) - 0.5, min=0.0)
    low = torch.clamp(source.floor().to(torch.int64), max=size - 1)
    high = torch.clamp(low + 1, max=size - 1)
    upper = torch.clamp(source - low, 0.0, 1.0).float()
    return low, high, torch.rsub(upper, 1), upper


def _scale(scales: tuple[float | None, ...], at: int) -> float | None:
    return scales[at] if at < len(scales) else None


@widened
def bilinear(x: Tensor, size: Sequence[int], align: bool, *scales: float | None) -> Tensor:
    """Along width then height: (a * left + b * right) of the upper and the lower row, then the same of the two."""
    top, bottom, above, below = _corners(x.shape[2], size[0], align, _scale(scales, 0), x.device)
    left, right, before, after = _corners(x.shape[3], size[1], align, _scale(scales, 1), x.device)
    rows = torch.add(torch.mul(x[..., left], before), torch.mul(x[..., right], after))
    return torch.add(
        torch.mul(rows[:, :, top], above[:, None]), torch.mul(rows[:, :, bottom], below[:, None])
    ).contiguous()


@widened
def bilinear_backward(
    g: Tensor, size: Sequence[int], shape: Sequence[int], align: bool, *scales: float | None
) -> Tensor:
    """The transposed steps: rows first, then columns; the upper (left) terms are added before the lower (right)."""
    top, bottom, above, below = _corners(shape[2], size[0], align, _scale(scales, 0), g.device)
    left, right, before, after = _corners(shape[3], size[1], align, _scale(scales, 1), g.device)
    rows = torch.zeros(shape[0], shape[1], shape[2], size[1], dtype=g.dtype, device=g.device)
    rows = ordered.add(rows, 2, top, torch.mul(g, above[:, None]))
    rows = ordered.add(rows, 2, bottom, torch.mul(g, below[:, None]))
    out = torch.zeros(tuple(shape), dtype=g.dtype, device=g.device)
    out = ordered.add(out, 3, left, torch.mul(rows, before))
    return ordered.add(out, 3, right, torch.mul(rows, after))


@widened
def linear(x: Tensor, size: Sequence[int], align: bool, scale: float | None = None) -> Tensor:
    """a * left + b * right."""
    left, right, before, after = _corners(x.shape[2], size[0], align, scale, x.device)
    return torch.add(torch.mul(x[..., left], before), torch.mul(x[..., right], after))


@widened
def linear_backward(
    g: Tensor, size: Sequence[int], shape: Sequence[int], align: bool, scale: float | None = None
) -> Tensor:
    left, right, before, after = _corners(shape[2], size[0], align, scale, g.device)
    out = ordered.add(torch.zeros(tuple(shape), dtype=g.dtype, device=g.device), 2, left, torch.mul(g, before))
    return ordered.add(out, 2, right, torch.mul(g, after))


MEMBERS: Members = {
    "aten::upsample_bilinear2d": bilinear,
    "aten::upsample_bilinear2d_backward": bilinear_backward,
    "aten::upsample_linear1d": linear,
    "aten::upsample_linear1d_backward": linear_backward,
}
