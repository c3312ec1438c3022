"""Where each point of a grid lies in the input, as torch's grid_sample computes it, and how that changes."""

from __future__ import annotations

import torch
from torch import Tensor

ZEROS, BORDER, REFLECTION = 0, 1, 2


def unnormalized(points: Tensor, size: int, align: bool) -> tuple[Tensor, float]:
    """From -1 ... 1 to positions in `size` cells; and by how much they change with the point."""
    if align:
        return (points + 1) / 2 * (size - 1), (size - 1) / 2
    return ((points + 1) * size - 1) / 2, size / 2


def padded(position: Tensor, size: int, padding: int, align: bool) -> tuple[Tensor, Tensor]:
    """Positions moved into the input as the padding wants; and by how much they change with the position."""
    slope = torch.ones_like(position)
    if padding == REFLECTION:
        position, slope = _reflected(position, size, align)
    if padding != ZEROS:
        slope = torch.where((position <= 0) | (position >= size - 1), 0, slope)
        position = position.clamp(0, size - 1)
    return position, slope


def _reflected(position: Tensor, size: int, align: bool) -> tuple[Tensor, Tensor]:
    low, span = (0.0, float(size - 1)) if align else (-0.5, float(size))
    if span == 0:
        return torch.zeros_like(position), torch.zeros_like(position)
    offset = position - low
    slope = torch.where(offset < 0, -1.0, 1.0).to(position.dtype)
    offset = offset.abs()
    flips = torch.floor(offset / span)
    extra = torch.fmod(offset, span)
    odd = torch.remainder(flips, 2) != 0
    return torch.where(odd, span - extra, extra) + low, torch.where(odd, -slope, slope)
