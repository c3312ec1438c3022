"""Scatter in a fixed order: values that share a destination are added (or written) in ascending source order.

A sum of floats depends on the order of its terms, so the order is part of the specification. On the CPU torch's own
operators take the values one after the other. On a CUDA device they use atomics, whose order changes from run to run;
there the indices are sorted (stably, which is exact) and one thread finishes each destination.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from samerun.base.errors import SamerunError
from samerun.numerics.cuda import sums as cuda_sums
from samerun.numerics.kernels import library, sums
from samerun.numerics.kernels.tensors import outer_dim_inner_sizes


class SortedIndex(NamedTuple):
    key: Tensor
    """The indices, ascending."""
    order: Tensor
    """Where each stood."""


def sort_index_and_assert_in_bounds(index: Tensor, num_destinations: int) -> SortedIndex:
    """The indices sorted, and where each stood; int64. Raises (on CUDA: when the device comes to it) where one is
    below 0 or not below `num_destinations`.
    """
    flat = index.reshape(-1).to(torch.int64)
    torch._assert_async(((flat >= 0) & (flat < num_destinations)).all(), "an index is out of bounds")
    key, order = torch.sort(flat, stable=True)
    return SortedIndex(key, order)


def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """x with source[.., i, ..] added at index[i] along `dim`, in ascending i. `index` is 1-D."""
    if not library.is_off_cpu(x) or not x.is_floating_point():
        return torch.index_add(x, dim, index, source)
    if x.dtype not in (torch.float32, torch.float64):
        raise SamerunError(f"sums into places: {x.dtype} has no portable kernel on CUDA.", "Use float32: x.float().")
    if source.dtype is not x.dtype or x.dim() != source.dim() or index.dim() > 1:
        return torch.index_add(x.cpu(), dim, index.cpu(), source.cpu())  # torch's own words for what is wrong
    out = x.contiguous().clone()
    outer, places, inner = outer_dim_inner_sizes(x, dim % max(x.dim(), 1))
    key, order = sort_index_and_assert_in_bounds(index, places)
    given = source.contiguous().view(outer, key.numel(), inner)
    cuda_sums.launch_ordered_index_add(out.view(outer, places, inner), given, key, order)
    return out


def index_add_(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """`index_add`, in place."""
    if library.is_off_cpu(x):
        return x.copy_(index_add(x, dim, index, source))
    return x.index_add_(dim, index, source)


def segment_sum(
    source: Tensor, index: Tensor, num_rows: int, source_rows: Tensor | None = None, factors: Tensor | None = None
) -> Tensor:
    """[rows, width]: class S over the rows of source [n, width] with each index, in ascending n; 0 where none has it.
    float32 or float64. `source_rows`: row i is source[source_rows[i]]; `factors`: each is multiplied first.
    """
    if library.is_off_cpu(source):
        source = source if source_rows is None else source.index_select(0, source_rows)
        source = source if factors is None else torch.mul(source, factors[:, None])
    out = torch.zeros(num_rows, source.shape[1], dtype=source.dtype, device=source.device)
    if library.is_off_cpu(source):  # nothing is asked of the device, so that it can be captured in a graph
        key, order = sort_index_and_assert_in_bounds(index, num_rows)
        cuda_sums.launch_segment_tree_sum(
            out, source.contiguous(), key, order, torch.searchsorted(key, key, right=True)
        )
        return out
    in_turn = bool((index[1:] >= index[:-1]).all())
    order = torch.arange(index.numel()) if in_turn else torch.argsort(index, stable=True)
    found, counts = torch.unique_consecutive(index if in_turn else index[order], return_counts=True)
    starts = torch.cumsum(counts, 0) - counts
    for size in torch.unique(counts).tolist():  # rows that occur equally often, together
        chosen = counts == size
        where = order[starts[chosen][:, None] + torch.arange(size)].reshape(-1)
        terms = source.index_select(0, where if source_rows is None else source_rows[where])
        terms = terms if factors is None else torch.mul(terms, factors[where, None])
        out[found[chosen]] = sums.sum(terms.reshape(-1, size, source.shape[1]), 1)
    return out


def bincount_clamped_to_one(index: Tensor, num_bins: int) -> Tensor:
    """How often each of `num_bins` places is named by a 1-D index; 1 for those that never are. int64."""
    counts = torch.zeros(num_bins, dtype=torch.int64, device=index.device)
    return torch.clamp(counts.index_add_(0, index, torch.ones_like(index, dtype=torch.int64)), min=1)


def put_last_value_on_cuda_(x: Tensor, flat_index: Tensor, values: Tensor) -> Tensor:
    """x (1-D, contiguous) with values[i] at flat_index[i], in place; of several for one the last stays. CUDA alone."""
    key, order = sort_index_and_assert_in_bounds(flat_index, x.numel())
    cuda_sums.launch_write_last_of_segments(x, values.reshape(-1).to(x.dtype).contiguous(), key, order)
    return x


def check_and_linearize_scatter_indices(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Where x, contiguous and flat, has place (index along dim) of each line: as scatter and gather mean it."""
    shape, dim = index.shape, dim % x.dim()
    flat = torch.zeros(shape, dtype=torch.int64, device=x.device)
    for at, stride in enumerate(torch.empty(x.shape, device="meta").stride()):
        if at == dim:
            flat += index * stride
        else:
            line = torch.arange(shape[at], device=x.device)
            flat += line.view([-1 if i == at else 1 for i in range(x.dim())]) * stride
    outside = ((index < 0) | (index >= x.shape[dim])).any()
    if library.is_off_cpu(x):
        torch._assert_async(outside.logical_not(), "scatter: an index is out of bounds")
    elif bool(outside):
        raise RuntimeError(f"scatter: an index is out of bounds for dimension {dim} with size {x.shape[dim]}")
    return flat


def scatter_add_into_zeros(grad: Tensor, flat_index: Tensor, shape: Sequence[int]) -> Tensor:
    """Zeros of `shape` with `grad` added at flat positions, in its ascending order: the gradient of a gather."""
    out = torch.zeros(tuple(shape), dtype=grad.dtype, device=grad.device).reshape(-1)
    return index_add_(out, 0, flat_index.reshape(-1), grad.reshape(-1)).reshape(tuple(shape))


def make_flat_positions_as_float64(shape: Sequence[int], device: torch.device) -> Tensor:
    """The flat position of every element. As float64, because torch's padding and resizing take floats alone; exact
    up to 2^53 elements.
    """
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float64, device=device).reshape(tuple(shape))


def make_padding_backward(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The gradient of a padding that repeats values of the tensor.

    Padding the element numbers themselves shows which element each padded value was copied from.
    """

    def backward(grad: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor:
        return scatter_add_into_zeros(
            grad, forward(make_flat_positions_as_float64(x.shape, x.device), padding).to(torch.int64), x.shape
        )

    return backward


def scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Sequential in ascending source index."""
    if x.dim() == 0 or index.numel() == 0:
        return torch.scatter_add(x, dim, index, source)
    return _scatter_add_in_order(x, dim, index, source)


def _scatter_add_in_order(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """One after the other: a flat index_add."""
    source = source[tuple(slice(size) for size in index.shape)]
    out = x.contiguous().clone().reshape(-1)
    flat = check_and_linearize_scatter_indices(x, dim, index).reshape(-1)
    return index_add_(out, 0, flat, source.reshape(-1).to(x.dtype)).reshape(x.shape)


def multiply_in_order(x: Tensor, flat_index: Tensor, values: Tensor) -> Tensor:
    """x (1-D) times values at flat_index, one after the other in ascending order of them."""
    out, left = x.clone(), torch.argsort(flat_index, stable=True)
    key = flat_index[left]
    place = torch.arange(key.numel(), device=x.device)
    first = torch.ones_like(key, dtype=torch.bool)
    first[1:] = key[1:] != key[:-1]
    rank = place - torch.cummax(torch.where(first, place, 0), 0)[0] if key.numel() else place
    for turn in range(int(rank.max()) + 1 if key.numel() else 0):
        now = rank == turn
        out[key[now]] = torch.mul(out[key[now]], values[left[now]])
    return out


def scatter_multiply(x: Tensor, dim: int, index: Tensor, source: Tensor, include_self: bool = True) -> Tensor:
    """Products in ascending source index; without x where `include_self` is false."""
    if x.dim() == 0:
        found: Tensor = scatter_multiply(x.reshape(1), 0, index.reshape(-1), source.reshape(-1), include_self)
        return found.reshape(())
    if index.numel() == 0:
        return x.clone()
    start = x if include_self else x.scatter(dim, index, 1)
    given = source[tuple(slice(size) for size in index.shape)].reshape(-1)
    flat = check_and_linearize_scatter_indices(x, dim, index).reshape(-1)
    return multiply_in_order(start.contiguous().reshape(-1), flat, given).reshape(x.shape)


def index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Tensor:
    """accumulate: sequential in ascending source index. Else the last of several values for a place stays."""
    chosen = torch.arange(x.numel(), device=x.device).reshape(x.shape)[to_subscript(indices)]
    given = values.to(x.device).broadcast_to(chosen.shape).reshape(-1).to(x.dtype)
    out = x.contiguous().clone().reshape(-1)
    flat = chosen.reshape(-1)
    if accumulate:
        return index_add_(out, 0, flat, given).reshape(x.shape)
    if library.is_off_cpu(x):
        return put_last_value_on_cuda_(out, flat, given).reshape(x.shape)
    order = torch.argsort(flat, stable=True)
    key = flat[order]
    last = torch.ones_like(key, dtype=torch.bool)
    last[:-1] = key[1:] != key[:-1]
    out[key[last]] = given[order[last]]
    return out.reshape(x.shape)


def to_subscript(indices: Sequence[Tensor | None]) -> tuple[Any, ...]:
    return tuple(slice(None) if index is None else index for index in indices)


def make_max_pool_backward_handler(num_dims: int) -> Callable[..., Tensor]:
    """The gradient of maximum pooling over the last num_dims dimensions; indices are places in such a volume."""

    def backward(grad: Tensor, x: Tensor, *settings: Any) -> Tensor:
        indices: Tensor = settings[-1]
        volume = x[(0,) * (x.dim() - num_dims)].numel() if x.numel() else 0
        planes = torch.arange(
            grad.numel() // max(1, grad[(0,) * (grad.dim() - num_dims)].numel()) if grad.numel() else 0,
            device=grad.device,
        )
        first = (planes * volume).reshape(*grad.shape[: grad.dim() - num_dims], *[1] * num_dims)
        return scatter_add_into_zeros(grad, indices + first, x.shape)

    return backward


def make_nearest_backward_handler(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def backward(grad: Tensor, output_size: Sequence[int], input_size: Sequence[int], *scales: float | None) -> Tensor:
        return scatter_add_into_zeros(
            grad,
            forward(make_flat_positions_as_float64(input_size, grad.device), output_size, *scales).to(torch.int64),
            input_size,
        )

    return backward
