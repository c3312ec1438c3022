"""Add up (or multiply, or pick the last of) the rows that share a key, in an order that never changes.

Rows are sorted by key, stably, and folded eight at a time by gathers and sums of whole tensors: no memory cell
has two writers, so nothing depends on the order in which threads arrive. The order depends on the rows of one key
alone: one pass adds rows 1 to 8, 9 to 16, and so on, from left to right, the next pass those sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from samerun.control.operators.declare import widened

FAN = 8
Combine = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Segments:
    """Rows grouped by key. order: int64[rows]; keys, starts, counts: int64[groups], keys ascending."""

    order: Tensor
    keys: Tensor
    starts: Tensor
    counts: Tensor


def grouped(keys: Tensor) -> Segments:
    """Group rows by `keys`, int64[rows]; rows of one key keep their order. Waits for the device once."""
    ordered, order = torch.sort(keys, stable=True)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    starts = first.nonzero().flatten()
    end = torch.full((1,), keys.numel(), dtype=torch.int64, device=keys.device)
    return Segments(order, ordered.index_select(0, starts), starts, torch.diff(starts, append=end))


def last(values: Tensor, groups: Segments) -> Tensor:
    """The last row of each group."""
    return values.index_select(0, groups.order.index_select(0, groups.starts + groups.counts - 1))


def folded(values: Tensor, groups: Segments, combine: Combine = torch.add) -> Tensor:
    """One row for each group: its rows combined; narrow types are combined in float32, and stay there."""
    rows = widened(values).index_select(0, groups.order)
    starts, counts = groups.starts, groups.counts
    longest = int(counts.max()) if counts.numel() else 0
    while longest > 1:
        rows, starts, counts = _pass(rows, starts, counts, combine, min(FAN, longest))
        longest = -(-longest // FAN)
    return rows


def _pass(rows: Tensor, starts: Tensor, counts: Tensor, combine: Combine, fan: int) -> tuple[Tensor, Tensor, Tensor]:
    """Combine each group's rows FAN at a time; `fan`: as many as there are in any group, if fewer."""
    left = torch.div(counts + (FAN - 1), FAN, rounding_mode="floor")
    after = torch.cumsum(left, 0)
    group = torch.repeat_interleave(left)
    position = torch.arange(group.numel(), device=group.device) - (after - left).index_select(0, group)
    first = starts.index_select(0, group) + FAN * position
    here = counts.index_select(0, group) - FAN * position
    shape = (-1,) + (1,) * (rows.dim() - 1)
    out = rows.index_select(0, first)
    for step in range(1, fan):
        there = here > step
        more = combine(out, rows.index_select(0, torch.where(there, first + step, first)))
        out = torch.where(there.view(shape), more, out)
    return out, after - left, left


def summed(keys: Tensor, values: Tensor, cells: int) -> Tensor:
    """The sum of the values of each key.

    keys: int64[rows], from 0 to cells-1. values: [rows, ...]. Returns [cells, ...] of the values' type.
    """
    out = torch.zeros((cells, *values.shape[1:]), dtype=values.dtype, device=values.device)
    if keys.numel():
        groups = grouped(keys)
        out.index_put_((groups.keys,), folded(values, groups).to(values.dtype))
    return out


def in_planes(indices: Tensor, planes: int, size: int) -> Tensor:
    """Positions in `planes` planes of `size` cells each, int64[planes * n], of positions inside each plane."""
    first = torch.arange(planes, device=indices.device).unsqueeze(1) * size
    return (indices.reshape(planes, -1 if indices.numel() else 0).to(torch.int64) + first).flatten()
