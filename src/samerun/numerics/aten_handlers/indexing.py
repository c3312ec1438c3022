"""Reading and writing places that an index names, and nn.EmbeddingBag.

An embedding bag is rows of a table, summed, averaged, or the largest of each column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import HALF_TYPES, Members, NoPortableKernel, Scalar, widen_half_inputs
from samerun.numerics.kernels import library, ordered_scatter, sums
from samerun.numerics.kernels.ordered_scatter import index_put, make_padding_backward, scatter_add, to_subscript


def embedding_dense_backward(
    grad: Tensor, index: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    """Class S over the occurrences of each row of the table; then, by frequency, divided by their number."""
    wide = (
        grad.reshape(-1, grad.shape[-1]).float()
        if grad.dtype is not torch.float64
        else grad.reshape(-1, grad.shape[-1])
    )
    flat = index.reshape(-1)
    if wide.shape[0] != flat.shape[0]:
        raise RuntimeError(
            f"embedding_dense_backward: {tuple(grad.shape)} is no gradient of indices {tuple(index.shape)}"
        )
    kept = (flat >= 0) & (flat < num_weights)  # torch ignores others
    flat = torch.where(kept, flat, num_weights)
    out = ordered_scatter.segment_sum(wide, flat, num_weights + 1)[:num_weights]
    if scale_grad_by_freq:
        out = torch.div(
            out,
            ordered_scatter.bincount_clamped_to_one(flat, num_weights + 1)[:num_weights].to(out.dtype)[:, None],
        )
    if 0 <= padding_idx < num_weights:
        out[padding_idx] = 0
    return out.to(grad.dtype)


@widen_half_inputs
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Scalar = 1) -> Tensor:
    """Sequential in ascending source index; alpha * source is rounded first."""
    return ordered_scatter.index_add(x, dim, index, source if alpha == 1 else torch.mul(source, alpha))


_scatter_multiply = widen_half_inputs(ordered_scatter.scatter_multiply)


def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    if reduce in ("amax", "amin"):
        return torch.scatter_reduce(x, dim, index, source, reduce, include_self=include_self)
    if reduce == "prod":
        product: Tensor = _scatter_multiply(x, dim, index, source, include_self)
        return product
    if reduce not in ("sum", "mean"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    start = x if include_self else x.scatter(dim, index, 0)
    total = scatter_add(start, dim, index, source)
    if reduce == "sum":
        return total
    ones = torch.zeros_like(x) if not include_self else torch.ones_like(x)
    count = scatter_add(ones, dim, index, torch.ones_like(source))
    return torch.div(total, torch.clamp(count, min=1))


def scatter_with_add_or_multiply(x: Tensor, dim: int, index: Tensor, source: Any, *, reduce: str) -> Tensor:
    given = source if isinstance(source, Tensor) else torch.full(index.shape, source, dtype=x.dtype, device=x.device)
    if reduce == "multiply":
        product: Tensor = _scatter_multiply(x, dim, index, given)
        return product
    if reduce != "add":
        raise RuntimeError("reduce argument must be either add or multiply.")
    return scatter_add(x, dim, index, given)


def col2im(
    x: Tensor,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Tensor:
    """F.fold: each pixel adds its values in ascending order of the taps."""
    batch = x if x.dim() == 3 else x[None]
    channels = batch.shape[1] // (kernel_size[0] * kernel_size[1])
    wide = [(output_size[i] + 2 * padding[i]) for i in (0, 1)]
    steps = [(wide[i] - dilation[i] * (kernel_size[i] - 1) - 1) // stride[i] + 1 for i in (0, 1)]
    parts = batch.reshape(batch.shape[0], channels, kernel_size[0], kernel_size[1], steps[0], steps[1])
    out = batch.new_zeros(batch.shape[0], channels, *wide)
    for i in range(kernel_size[0]):
        for j in range(kernel_size[1]):
            top, left = i * dilation[0], j * dilation[1]
            rows = slice(top, top + stride[0] * (steps[0] - 1) + 1, stride[0])
            columns = slice(left, left + stride[1] * (steps[1] - 1) + 1, stride[1])
            out[:, :, rows, columns] += parts[:, :, i, j]
    out = out[:, :, padding[0] : padding[0] + output_size[0], padding[1] : padding[1] + output_size[1]].contiguous()
    return out if x.dim() == 3 else out[0]


def unfold_backward(grad: Tensor, input_size: Sequence[int], dim: int, window_size: int, step: int) -> Tensor:
    """Each value adds the gradients of its windows, in ascending order of its place in them."""
    if not input_size:  # its only window is itself, or there is none
        return sums.sum(grad)
    out = grad.new_zeros(input_size)
    dim = dim % max(len(input_size), 1)
    steps = grad.shape[dim]
    for i in range(window_size):
        where: list[Any] = [slice(None)] * len(input_size)
        where[dim] = slice(i, i + step * (steps - 1) + 1, step)
        out[tuple(where)] += grad[..., i]
    return out


SUM, MEAN, MAX = 0, 1, 2
Bags = tuple[Tensor, Tensor, Tensor, Tensor]


def _are_valid_embedding_bag_inputs(
    table: Tensor, indices: Tensor, offsets: Tensor, mode: int, weights: Tensor | None, include_last_offset: bool
) -> bool:
    if (table.dim(), indices.dim(), offsets.dim()) != (2, 1, 1) or indices.dtype is not offsets.dtype:
        return False
    if not table.is_floating_point() or indices.dtype not in (torch.int32, torch.int64):
        return False
    if weights is not None and (mode != SUM or weights.shape != indices.shape or weights.dtype is not table.dtype):
        return False
    if offsets.numel() == 0:
        return not include_last_offset
    inside = (offsets[0] == 0) & (offsets[-1] <= indices.numel())
    inside = inside & ((indices >= 0) & (indices < table.shape[0])).all()
    if library.is_off_cpu(table):  # the device is not waited for
        torch._assert_async(inside, "embedding_bag: an index or an offset is out of bounds")
        return True
    return bool(inside)


def _bag_of_each_index(offsets: Tensor, n: int, num_bags: int) -> Tensor:
    """The bag of each of n indices; `num_bags` for those behind an offset that closes the last bag. int64."""
    starts = torch.zeros(n + 1, dtype=torch.int64, device=offsets.device)
    starts.index_add_(0, offsets, torch.ones_like(offsets, dtype=torch.int64))
    return torch.sub(torch.cumsum(starts, 0)[:n], 1) if num_bags else starts[:n]


@widen_half_inputs
def embedding_bag(
    table: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Bags:
    """Sum: class S over the rows of a bag in ascending order of their indices' places, each times its weight. Mean:
    that sum / their number. Max: of each column the largest; a NaN wins, among equals the first. Rows of `padding_idx`
    are absent; a bag of nothing gives 0.

    Also: the bag of each index (`bags` for the absent), how many rows each bag has, and for max the row of each value
    (-1 where there is none).
    """
    if not _are_valid_embedding_bag_inputs(table, indices, offsets, mode, weights, include_last_offset):
        torch._embedding_bag(
            table, indices, offsets, scale_grad_by_freq, mode, False, weights, include_last_offset, padding_idx
        )
        raise RuntimeError("embedding_bag: indices or offsets are out of range")
    n, bags = indices.numel(), max(offsets.numel() - include_last_offset, 0)
    bag = _bag_of_each_index(offsets, n, bags)
    bag = torch.where(indices == padding_idx, bags, bag) if padding_idx >= 0 else bag
    sizes = torch.zeros(bags + 1, dtype=torch.int64, device=bag.device)
    sizes = sizes.index_add_(0, bag, torch.ones_like(bag))[:bags]
    if mode == MAX:
        out, chosen = _max_and_argmax_per_bag(table.index_select(0, indices), indices, bag, bags)
    else:
        out, chosen = ordered_scatter.segment_sum(table, bag, bags + 1, indices, weights)[:bags], sizes
        if mode == MEAN:
            out = torch.div(out, torch.clamp(sizes, min=1).to(out.dtype)[:, None])
    return out, bag.to(indices.dtype), sizes.to(indices.dtype), chosen.to(indices.dtype)


def _max_and_argmax_per_bag(rows: Tensor, indices: Tensor, bag: Tensor, num_bags: int) -> tuple[Tensor, Tensor]:
    """The value and the row of the table, of each bag and column. Maxima of many have no order, once zeros have one
    sign; then the first place that has it.
    """
    n, width = rows.shape
    lines = bag[:, None].expand(n, width)
    plain = torch.where(rows == 0, torch.zeros_like(rows), rows)
    largest = torch.full((num_bags + 1, width), -torch.inf, dtype=rows.dtype, device=rows.device)
    largest = torch.scatter_reduce(largest, 0, lines, plain, "amax").index_select(0, bag)
    found = (plain == largest) | (torch.isnan(plain) & torch.isnan(largest))
    places = torch.where(found, torch.arange(n, device=rows.device)[:, None], n)
    first = torch.full((num_bags + 1, width), n, dtype=torch.int64, device=rows.device)
    first = torch.scatter_reduce(first, 0, lines, places, "amin")[:num_bags]
    if n == 0:
        return rows.new_zeros(num_bags, width), first.fill_(-1)
    place, there = torch.clamp(first, max=n - 1), first < n
    out = torch.where(there, rows.gather(0, place), torch.zeros((), dtype=rows.dtype, device=rows.device))
    return out, torch.where(there, indices[place], -1)


def _ignored_index_mask(bag: Tensor, num_bags: int, indices: Tensor, padding_idx: int) -> Tensor:
    """Which indices count nowhere: those behind the last bag, and padding."""
    return (bag >= num_bags) | (indices == padding_idx) if padding_idx >= 0 else bag >= num_bags


@widen_half_inputs
def embedding_bag_dense_backward(
    grad: Tensor,
    indices: Tensor,
    bag: Tensor,
    sizes: Tensor,
    max_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """Class S over the occurrences of each row: grad of its bag, times its weight, or / the bag's number; by frequency,
    then divided by their number. Max: the gradients of one value in ascending bag.
    """
    bags, width = grad.shape
    if mode == MAX:
        places = torch.where(
            max_indices >= 0, max_indices * width + torch.arange(width, device=grad.device), num_weights * width
        )
        out = torch.zeros(num_weights * width + 1, dtype=grad.dtype, device=grad.device)
        return ordered_scatter.index_add_(out, 0, places.reshape(-1), grad.reshape(-1))[:-1].reshape(num_weights, width)
    if mode == MEAN:
        grad = torch.div(grad, torch.clamp(sizes, min=1).to(grad.dtype)[:, None])
    terms = torch.cat([grad, grad.new_zeros(1, width)])
    places = torch.where(_ignored_index_mask(bag, bags, indices, padding_idx), num_weights, indices)
    out = ordered_scatter.segment_sum(terms, places, num_weights + 1, bag, weights)[:num_weights]
    return (
        torch.div(out, ordered_scatter.bincount_clamped_to_one(indices, num_weights).to(out.dtype)[:, None])
        if scale_grad_by_freq
        else out
    )


def embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bag: Tensor,
    sizes: Tensor,
    max_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """Sparse: an entry for each index that counts, in the order of the indices: the gradient of its bag, times its
    weight, or / the bag's number.
    """
    if bag.numel() == 0:  # torch's own forward pass leaves it out
        bag = _bag_of_each_index(offsets, indices.numel(), grad.shape[0])
    if sparse:
        if not grad.is_cpu:
            raise NoPortableKernel("sparse=True on CUDA.", "Leave out sparse=True: the gradient is then dense.")
        counts = ~_ignored_index_mask(bag, grad.shape[0], indices, padding_idx)
        rows = grad.float() if grad.dtype in HALF_TYPES else grad
        if mode == MEAN:
            rows = torch.div(rows, torch.clamp(sizes, min=1).to(rows.dtype)[:, None])
        rows = rows.index_select(0, bag[counts])
        values = (rows if weights is None else torch.mul(rows, weights[counts, None].to(rows.dtype))).to(grad.dtype)
        shape = (num_weights, grad.shape[1])
        return torch.sparse_coo_tensor(indices[None, counts], values, shape, check_invariants=False)
    out: Tensor = embedding_bag_dense_backward(
        grad, indices, bag, sizes, max_indices, num_weights, scale_grad_by_freq, mode, weights, padding_idx
    )
    return out


@widen_half_inputs
def embedding_bag_per_sample_weights_backward(
    grad: Tensor, table: Tensor, indices: Tensor, offsets: Tensor, bag: Tensor, mode: int, padding_idx: int = -1
) -> Tensor:
    """Class S over the columns of grad * row; 0 for what is absent."""
    bag = bag if bag.numel() else _bag_of_each_index(offsets, indices.numel(), grad.shape[0])
    terms = torch.cat([grad, grad.new_zeros(1, grad.shape[1])]).index_select(0, bag)
    found = sums.sum(torch.mul(terms, table.index_select(0, indices)), [1])
    return torch.where(_ignored_index_mask(bag, grad.shape[0], indices, padding_idx), torch.zeros_like(found), found)


MEMBERS: Members = {
    "aten::embedding_dense_backward": embedding_dense_backward,
    "aten::index_add": index_add,
    "aten::scatter_add": scatter_add,
    "aten::scatter_reduce.two": scatter_reduce,
    "aten::scatter.reduce": scatter_with_add_or_multiply,
    "aten::scatter.value_reduce": scatter_with_add_or_multiply,
    "aten::index_put": index_put,
    "aten::_index_put_impl": index_put,
    "aten::_unsafe_index_put": index_put,
    "aten::_unsafe_index": lambda x, indices: x[to_subscript(indices)],
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
    "aten::_embedding_bag_per_sample_weights_backward": embedding_bag_per_sample_weights_backward,
}
