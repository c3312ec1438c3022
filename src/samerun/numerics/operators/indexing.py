"""Reading and writing places that an index names, and nn.EmbeddingBag.

An embedding bag is rows of a table, summed, averaged, or the largest of each column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from samerun.numerics.kernels import library, ordered_scatter, sums
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


SUM, MEAN, MAX = 0, 1, 2
Bags = tuple[Tensor, Tensor, Tensor, Tensor]


def _are_valid_inputs(
    table: Tensor, indices: Tensor, offsets: Tensor, mode: int, weights: Tensor | None, include_last: bool
) -> bool:
    if (table.dim(), indices.dim(), offsets.dim()) != (2, 1, 1) or indices.dtype is not offsets.dtype:
        return False
    if not table.is_floating_point() or indices.dtype not in (torch.int32, torch.int64):
        return False
    if weights is not None and (mode != SUM or weights.shape != indices.shape or weights.dtype is not table.dtype):
        return False
    if offsets.numel() == 0:
        return not include_last
    inside = (offsets[0] == 0) & (offsets[-1] <= indices.numel())
    inside = inside & ((indices >= 0) & (indices < table.shape[0])).all()
    if library.is_off_cpu(table):  # the device is not waited for
        torch._assert_async(inside, "embedding_bag: an index or an offset is out of bounds")
        return True
    return bool(inside)


def _bag_per_index(offsets: Tensor, n: int, bags: int) -> Tensor:
    """The bag of each of n indices; `bags` for those behind an offset that closes the last bag. int64."""
    starts = torch.zeros(n + 1, dtype=torch.int64, device=offsets.device)
    starts.index_add_(0, offsets, torch.ones_like(offsets, dtype=torch.int64))
    return torch.sub(torch.cumsum(starts, 0)[:n], 1) if bags else starts[:n]


@widen_half_inputs
def embedding_bag(
    table: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_by_frequency: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    weights: Tensor | None = None,
    include_last: bool = False,
    padding: int = -1,
) -> Bags:
    """Sum: class S over the rows of a bag in ascending order of their indices' places, each times its weight. Mean:
    that sum / their number. Max: of each column the largest; a NaN wins, among equals the first. Rows of `padding`
    are absent; a bag of nothing gives 0.

    Also: the bag of each index (`bags` for the absent), how many rows each bag has, and for max the row of each value
    (-1 where there is none).
    """
    if not _are_valid_inputs(table, indices, offsets, mode, weights, include_last):
        torch._embedding_bag(table, indices, offsets, scale_by_frequency, mode, False, weights, include_last, padding)
        raise RuntimeError("embedding_bag: indices or offsets are out of range")
    n, bags = indices.numel(), max(offsets.numel() - include_last, 0)
    bag = _bag_per_index(offsets, n, bags)
    bag = torch.where(indices == padding, bags, bag) if padding >= 0 else bag
    sizes = torch.zeros(bags + 1, dtype=torch.int64, device=bag.device)
    sizes = sizes.index_add_(0, bag, torch.ones_like(bag))[:bags]
    if mode == MAX:
        out, chosen = _max_per_bag(table.index_select(0, indices), indices, bag, bags)
    else:
        out, chosen = ordered_scatter.segment_sum(table, bag, bags + 1, indices, weights)[:bags], sizes
        if mode == MEAN:
            out = torch.div(out, torch.clamp(sizes, min=1).to(out.dtype)[:, None])
    return out, bag.to(indices.dtype), sizes.to(indices.dtype), chosen.to(indices.dtype)


def _max_per_bag(rows: Tensor, indices: Tensor, bag: Tensor, bags: int) -> tuple[Tensor, Tensor]:
    """The value and the row of the table, of each bag and column. Maxima of many have no order, once zeros have one
    sign; then the first place that has it.
    """
    n, width = rows.shape
    lines = bag[:, None].expand(n, width)
    plain = torch.where(rows == 0, torch.zeros_like(rows), rows)
    largest = torch.full((bags + 1, width), -torch.inf, dtype=rows.dtype, device=rows.device)
    largest = torch.scatter_reduce(largest, 0, lines, plain, "amax").index_select(0, bag)
    found = (plain == largest) | (torch.isnan(plain) & torch.isnan(largest))
    places = torch.where(found, torch.arange(n, device=rows.device)[:, None], n)
    first = torch.full((bags + 1, width), n, dtype=torch.int64, device=rows.device)
    first = torch.scatter_reduce(first, 0, lines, places, "amin")[:bags]
    if n == 0:
        return rows.new_zeros(bags, width), first.fill_(-1)
    place, there = torch.clamp(first, max=n - 1), first < n
    out = torch.where(there, rows.gather(0, place), torch.zeros((), dtype=rows.dtype, device=rows.device))
    return out, torch.where(there, indices[place], -1)


def _is_ignored_index(bag: Tensor, bags: int, indices: Tensor, padding: int) -> Tensor:
    """Which indices count nowhere: those behind the last bag, and padding."""
    return (bag >= bags) | (indices == padding) if padding >= 0 else bag >= bags


@widen_half_inputs
def embedding_bag_dense_backward(
    g: Tensor,
    indices: Tensor,
    bag: Tensor,
    sizes: Tensor,
    chosen: Tensor,
    rows: int,
    scale_by_frequency: bool,
    mode: int,
    weights: Tensor | None,
    padding: int = -1,
) -> Tensor:
    """Class S over the occurrences of each row: g of its bag, times its weight, or / the bag's number; by frequency,
    then divided by their number. Max: the gradients of one value in ascending bag.
    """
    bags, width = g.shape
    if mode == MAX:
        places = torch.where(chosen >= 0, chosen * width + torch.arange(width, device=g.device), rows * width)
        out = torch.zeros(rows * width + 1, dtype=g.dtype, device=g.device)
        return ordered_scatter.index_add_(out, 0, places.reshape(-1), g.reshape(-1))[:-1].reshape(rows, width)
    if mode == MEAN:
        g = torch.div(g, torch.clamp(sizes, min=1).to(g.dtype)[:, None])
    terms = torch.cat([g, g.new_zeros(1, width)])
    places = torch.where(_is_ignored_index(bag, bags, indices, padding), rows, indices)
    out = ordered_scatter.segment_sum(terms, places, rows + 1, bag, weights)[:rows]
    return (
        torch.div(out, ordered_scatter.count_occurrences_at_least_one(indices, rows).to(out.dtype)[:, None])
        if scale_by_frequency
        else out
    )


def embedding_bag_backward(
    g: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bag: Tensor,
    sizes: Tensor,
    chosen: Tensor,
    rows: int,
    scale_by_frequency: bool,
    mode: int,
    sparse: bool,
    weights: Tensor | None,
    padding: int = -1,
) -> Tensor:
    if sparse:
        raise NotInTable("sparse=True.", "Leave out sparse=True: the gradient is then dense.")
    if bag.numel() == 0:  # torch's own forward pass leaves it out
        bag = _bag_per_index(offsets, indices.numel(), g.shape[0])
    out: Tensor = embedding_bag_dense_backward(
        g, indices, bag, sizes, chosen, rows, scale_by_frequency, mode, weights, padding
    )
    return out


@widen_half_inputs
def embedding_bag_weights_backward(
    g: Tensor, table: Tensor, indices: Tensor, offsets: Tensor, bag: Tensor, mode: int, padding: int = -1
) -> Tensor:
    """Class S over the columns of g * row; 0 for what is absent."""
    bag = bag if bag.numel() else _bag_per_index(offsets, indices.numel(), g.shape[0])
    terms = torch.cat([g, g.new_zeros(1, g.shape[1])]).index_select(0, bag)
    found = sums.sum(torch.mul(terms, table.index_select(0, indices)), [1])
    return torch.where(_is_ignored_index(bag, g.shape[0], indices, padding), torch.zeros_like(found), found)


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
    "aten::_embedding_bag": embedding_bag,
    "aten::_embedding_bag_forward_only": embedding_bag,
    "aten::_embedding_bag_backward": embedding_bag_backward,
    "aten::_embedding_bag_dense_backward": embedding_bag_dense_backward,
    "aten::_embedding_bag_per_sample_weights_backward": embedding_bag_weights_backward,
}
