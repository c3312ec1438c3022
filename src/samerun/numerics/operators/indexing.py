"""Sums into places that are named by an index: each place adds its values in ascending order of their index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from samerun.numerics.kernels import library, ordered_scatter
from samerun.numerics.kernels.ordered_scatter import make_padding_backward
from samerun.numerics.operators.declare import Members, NotInTable, widen_half_inputs


def embedding_backward(g: Tensor, index: Tensor, rows: int, padding: int, scale_by_frequency: bool) -> Tensor:
    """Class S over the occurrences of each row of the table; then, by frequency, divided by their number."""
    wide = g.reshape(-1, g.shape[-1]).float() if g.dtype is not torch.float64 else g.reshape(-1, g.shape[-1])
    flat = index.reshape(-1)
    if wide.shape[0] != flat.shape[0]:
        raise RuntimeError(f"embedding_dense_backward: {tuple(g.shape)} is no gradient of indices {tuple(index.shape)}")
    kept = (flat >= 0) & (flat < rows)  # torch ignores others
    flat = torch.where(kept, flat, rows)
    out = ordered_scatter.segment_sum(wide, flat, rows + 1)[:rows]
    if scale_by_frequency:
        out = torch.div(
            out, ordered_scatter.count_occurrences_at_least_one(flat, rows + 1)[:rows].to(out.dtype)[:, None]
        )
    if 0 <= padding < rows:
        out[padding] = 0
    return out.to(g.dtype)


@widen_half_inputs
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """Sequential in ascending source index; alpha * source is rounded first."""
    return ordered_scatter.index_add(x, dim, index, source if alpha == 1 else torch.mul(source, alpha))


def scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Sequential in ascending source index."""
    if x.dim() == 0 or index.numel() == 0:
        return torch.scatter_add(x, dim, index, source)
    return _flat_index_add(x, dim, index, source)


def _flat_index_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """One after the other: a flat index_add."""
    source = source[tuple(slice(size) for size in index.shape)]
    out = x.contiguous().clone().reshape(-1)
    flat = ordered_scatter.flat_indices(x, dim, index).reshape(-1)
    return ordered_scatter.index_add_(out, 0, flat, source.reshape(-1).to(x.dtype)).reshape(x.shape)


def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    if reduce in ("amax", "amin"):
        return torch.scatter_reduce(x, dim, index, source, reduce, include_self=include_self)
    if reduce not in ("sum", "mean"):
        raise NotInTable(f"reduce={reduce!r}.", "sum, mean, amax and amin have one.")
    start = x if include_self else x.scatter(dim, index, 0)
    total = scatter_add(start, dim, index, source)
    if reduce == "sum":
        return total
    ones = torch.zeros_like(x) if not include_self else torch.ones_like(x)
    count = scatter_add(ones, dim, index, torch.ones_like(source))
    return torch.div(total, torch.clamp(count, min=1))


def scatter_reduce_in_place(x: Tensor, dim: int, index: Tensor, source: Any, *, reduce: str) -> Tensor:
    if reduce != "add":
        raise NotInTable(f"reduce={reduce!r}.", "add has one.")
    given = source if isinstance(source, Tensor) else torch.full(index.shape, source, dtype=x.dtype, device=x.device)
    return scatter_add(x, dim, index, given)


def index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Tensor:
    """accumulate: sequential in ascending source index. Else the last of several values for a place stays."""
    chosen = torch.arange(x.numel(), device=x.device).reshape(x.shape)[_to_subscript(indices)]
    given = values.to(x.device).broadcast_to(chosen.shape).reshape(-1).to(x.dtype)
    out = x.contiguous().clone().reshape(-1)
    flat = chosen.reshape(-1)
    if accumulate:
        return ordered_scatter.index_add_(out, 0, flat, given).reshape(x.shape)
    if library.is_off_cpu(x):
        return ordered_scatter.put_last_value_(out, flat, given).reshape(x.shape)
    order = torch.argsort(flat, stable=True)
    key = flat[order]
    last = torch.ones_like(key, dtype=torch.bool)
    last[:-1] = key[1:] != key[:-1]
    out[key[last]] = given[order[last]]
    return out.reshape(x.shape)


def _to_subscript(indices: Sequence[Tensor | None]) -> tuple[Any, ...]:
    return tuple(slice(None) if index is None else index for index in indices)


def col2im(
    x: Tensor,
    size: Sequence[int],
    taps: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Tensor:
    """F.fold: each pixel adds its values in ascending order of the taps."""
    batch = x if x.dim() == 3 else x[None]
    channels = batch.shape[1] // (taps[0] * taps[1])
    wide = [(size[i] + 2 * padding[i]) for i in (0, 1)]
    steps = [(wide[i] - dilation[i] * (taps[i] - 1) - 1) // stride[i] + 1 for i in (0, 1)]
    parts = batch.reshape(batch.shape[0], channels, taps[0], taps[1], steps[0], steps[1])
    out = batch.new_zeros(batch.shape[0], channels, *wide)
    for i in range(taps[0]):
        for j in range(taps[1]):
            top, left = i * dilation[0], j * dilation[1]
            rows = slice(top, top + stride[0] * (steps[0] - 1) + 1, stride[0])
            columns = slice(left, left + stride[1] * (steps[1] - 1) + 1, stride[1])
            out[:, :, rows, columns] += parts[:, :, i, j]
    out = out[:, :, padding[0] : padding[0] + size[0], padding[1] : padding[1] + size[1]].contiguous()
    return out if x.dim() == 3 else out[0]


def unfold_backward(g: Tensor, size: Sequence[int], dim: int, width: int, step: int) -> Tensor:
    """Each value adds the gradients of its windows, in ascending order of its place in them."""
    out = g.new_zeros(size)
    dim = dim % max(len(size), 1)
    steps = g.shape[dim]
    for i in range(width):
        where: list[Any] = [slice(None)] * len(size)
        where[dim] = slice(i, i + step * (steps - 1) + 1, step)
        out[tuple(where)] += g[..., i]
    return out


MEMBERS: Members = {
    "aten::embedding_dense_backward": embedding_backward,
    "aten::index_add": index_add,
    "aten::scatter_add": scatter_add,
    "aten::scatter_reduce.two": scatter_reduce,
    "aten::scatter.reduce": scatter_reduce_in_place,
    "aten::scatter.value_reduce": scatter_reduce_in_place,
    "aten::index_put": index_put,
    "aten::_index_put_impl": index_put,
    "aten::_unsafe_index_put": index_put,
    "aten::_unsafe_index": lambda x, indices: x[_to_subscript(indices)],
    "aten::col2im": widen_half_inputs(col2im),
    "aten::unfold_backward": widen_half_inputs(unfold_backward),
    # Of padding in one and two dimensions torch's CPU kernels add in ascending order themselves.
    "aten::reflection_pad3d_backward": widen_half_inputs(
        make_padding_backward(torch.ops.aten.reflection_pad3d.default)
    ),
    "aten::replication_pad3d_backward": widen_half_inputs(
        make_padding_backward(torch.ops.aten.replication_pad3d.default)
    ),
}
