"""Sums in an order that never changes: of rows that share a key, and back through a linear map of one dimension.

By key (`sum_rows_by_key`; or multiply, or take the last row): rows are sorted by key, stably, and reduced eight at a
time by gathers and sums of whole tensors. No memory cell has two writers, so nothing depends on the order in which
threads arrive. The order depends on the rows of one key alone: one pass adds rows 1 to 8, 9 to 16, and so on, from left
to right, the next pass those sums.

Back through a map (`transpose_output_to_input_map`): forward, each output reads a few inputs, each with a weight, as in
pooling and interpolation. Back, torch's kernels let each output add into what it read, so the order of the sums is that
of the threads. Here each input gathers the outputs that read it, in ascending order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from samerun.control.deterministic_kernels.declare import upcast_half_to_float32

FAN = 8
Combine = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class RowGroups:
    """Rows grouped by key. order: int64[rows]; keys, starts, counts: int64[groups], keys ascending."""

    order: Tensor
    keys: Tensor
    starts: Tensor
    counts: Tensor


def group_rows_by_key(keys: Tensor) -> RowGroups:
    """Group rows by `keys`, int64[rows]; rows of one key keep their order. Waits for the device once."""
    ordered, order = torch.sort(keys, stable=True)
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    starts = is_first.nonzero().flatten()
    end = torch.full((1,), keys.numel(), dtype=torch.int64, device=keys.device)
    return RowGroups(order, ordered.index_select(0, starts), starts, torch.diff(starts, append=end))


def take_last_row_of_each_group(values: Tensor, groups: RowGroups) -> Tensor:
    """The last row of each group."""
    return values.index_select(0, groups.order.index_select(0, groups.starts + groups.counts - 1))


def reduce_rows_of_each_group(values: Tensor, groups: RowGroups, combine: Combine = torch.add) -> Tensor:
    """One row for each group: its rows combined; 16-bit types are combined in float32, and stay there."""
    rows = upcast_half_to_float32(values).index_select(0, groups.order)
    starts, counts = groups.starts, groups.counts
    longest = int(counts.max()) if counts.numel() else 0
    while longest > 1:
        rows, starts, counts = _reduce_groups_once(rows, starts, counts, combine, min(FAN, longest))
        longest = -(-longest // FAN)
    return rows


def _reduce_groups_once(
    rows: Tensor, starts: Tensor, counts: Tensor, combine: Combine, max_rows_combined: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Combine each group's rows FAN at a time; returns the rows, starts and counts that are left.

    max_rows_combined: FAN, or the size of the largest group, where that is less.
    """
    new_counts = torch.div(counts + (FAN - 1), FAN, rounding_mode="floor")
    new_ends = torch.cumsum(new_counts, 0)
    group = torch.repeat_interleave(new_counts)
    position = torch.arange(group.numel(), device=group.device) - (new_ends - new_counts).index_select(0, group)
    first = starts.index_select(0, group) + FAN * position
    available = counts.index_select(0, group) - FAN * position
    shape = (-1,) + (1,) * (rows.dim() - 1)
    out = rows.index_select(0, first)
    for step in range(1, max_rows_combined):
        has_more = available > step
        combined = combine(out, rows.index_select(0, torch.where(has_more, first + step, first)))
        out = torch.where(has_more.view(shape), combined, out)
    return out, new_ends - new_counts, new_counts


def sum_rows_by_key(keys: Tensor, values: Tensor, num_keys: int) -> Tensor:
    """The sum of the values of each key.

    keys: int64[rows], from 0 to num_keys-1. values: [rows, ...]. Returns [num_keys, ...] of the values' type.
    """
    out = torch.zeros((num_keys, *values.shape[1:]), dtype=values.dtype, device=values.device)
    if keys.numel():
        groups = group_rows_by_key(keys)
        out.index_put_((groups.keys,), reduce_rows_of_each_group(values, groups).to(values.dtype))
    return out


def plane_to_flat_indices(indices: Tensor, planes: int, plane_size: int) -> Tensor:
    """Turn positions inside each plane into positions in all planes, one after the other: int64[planes * n]."""
    first = torch.arange(planes, device=indices.device).unsqueeze(1) * plane_size
    return (indices.reshape(planes, -1 if indices.numel() else 0).to(torch.int64) + first).flatten()


MAX_ADDED_ONE_BY_ONE = 8
"""Where more outputs than this read one input, they are added by one gather and `sum`."""


@dataclass(frozen=True)
class TransposedMap:
    """Which outputs read each input.

    outputs: int64[inputs, most readers of an input]. weights: the same shape, or None (all one).
    is_used: bool of the same shape, False where an input has fewer readers than others; None: all have as many.
    """

    outputs: Tensor
    weights: Tensor | None
    is_used: Tensor | None
    num_pairs: int
    """How many (output, input) pairs there are."""


def transpose_output_to_input_map(
    inputs_of_outputs: Tensor, weights: Tensor | None, num_inputs: int, device: torch.device
) -> TransposedMap:
    """Turn a map from outputs to the inputs they read into one from inputs to the outputs that read them.

    inputs_of_outputs: int64[outputs, taps] on the CPU, the inputs that each output reads, -1 for none. weights: floats
    of the same shape, or None. num_inputs: how many there are.
    """
    taps = inputs_of_outputs.shape[1]
    flat = inputs_of_outputs.reshape(-1)
    order = torch.sort(flat, stable=True).indices
    order = order[int((flat < 0).sum()) :]
    counts = torch.bincount(flat[order], minlength=num_inputs)
    most = max(int(counts.max()), 1) if num_inputs else 1
    starts = torch.cumsum(counts, 0) - counts
    step = torch.arange(most, device="cpu")
    is_used = step < counts.unsqueeze(1)
    if order.numel() == 0:
        order = torch.zeros(1, dtype=torch.int64, device="cpu")
    pick = order[torch.where(is_used, starts.unsqueeze(1) + step, 0).clamp_(max=order.numel() - 1)]
    outputs = torch.where(is_used, torch.div(pick, taps, rounding_mode="floor"), 0)
    weight = None if weights is None else torch.where(is_used, weights.reshape(-1)[pick], 0).to(device)
    return TransposedMap(outputs.to(device), weight, None if bool(is_used.all()) else is_used.to(device), order.numel())


def sum_output_gradients_over_readers(output_gradient: Tensor, negative_dim: int, readers: TransposedMap) -> Tensor:
    """The gradient of the inputs along `negative_dim` (counted from the end: -1, -2, ...), from that of the outputs."""
    num_inputs, most = readers.outputs.shape
    tail = (1,) * (-1 - negative_dim)
    if most > MAX_ADDED_ONE_BY_ONE and num_inputs * most <= 2 * readers.num_pairs:
        wide: Tensor = output_gradient.index_select(negative_dim, readers.outputs.flatten())
        wide = wide.unflatten(negative_dim, (num_inputs, most))  # type: ignore[no-untyped-call]
        if readers.weights is not None:
            wide = wide * readers.weights.view(num_inputs, most, *tail)
        if readers.is_used is not None:
            wide = torch.where(readers.is_used.view(num_inputs, most, *tail), wide, 0)
        return wide.sum(negative_dim)
    out: Tensor | None = None
    for step in range(most):
        part = output_gradient.index_select(negative_dim, readers.outputs[:, step])
        if readers.weights is not None:
            part = part * readers.weights[:, step].view(-1, *tail)
        if readers.is_used is not None:
            part = torch.where(readers.is_used[:, step].view(-1, *tail), part, 0)
        out = part if out is None else out + part
    assert out is not None
    return out
