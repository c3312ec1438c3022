"""Values that go to places named by an index, in ascending order of where they stand: sums, and the last of several.

On the CPU torch's own operators take them one after the other. On a CUDA device they do not, so places are sorted
(stably, which is exact) and each is finished by one thread.
"""

from __future__ import annotations

import torch
from torch import Tensor

from samerun.base.errors import SamerunError
from samerun.numerics.cuda import segments
from samerun.numerics.kernels import library, sums
from samerun.numerics.kernels.tensors import around


def in_order(index: Tensor, places: int) -> tuple[Tensor, Tensor]:
    """The indices sorted, and where each stood; int64. Raises (on CUDA: when the device comes to it) where one is
    below 0 or not below `places`.
    """
    flat = index.reshape(-1).to(torch.int64)
    torch._assert_async(((flat >= 0) & (flat < places)).all(), "an index is out of bounds")
    key, order = torch.sort(flat, stable=True)
    return key, order


def add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """x with source[.., i, ..] added at index[i] along `dim`, in ascending i. `index` is 1-D."""
    if not library.elsewhere(x) or not x.is_floating_point():
        return torch.index_add(x, dim, index, source)
    if x.dtype not in (torch.float32, torch.float64):
        raise SamerunError(f"sums into places: {x.dtype} has no portable kernel on CUDA.", "Use float32: x.float().")
    if source.dtype is not x.dtype or x.dim() != source.dim() or index.dim() > 1:
        return torch.index_add(x.cpu(), dim, index.cpu(), source.cpu())  # torch's own words for what is wrong
    out = x.contiguous().clone()
    outer, places, inner = around(x, dim % max(x.dim(), 1))
    key, order = in_order(index, places)
    given = source.contiguous().view(outer, key.numel(), inner)
    segments.add(out.view(outer, places, inner), given, key, order)
    return out


def add_(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """The same, in place."""
    if library.elsewhere(x):
        return x.copy_(add(x, dim, index, source))
    return x.index_add_(dim, index, source)


def sum_rows(
    source: Tensor, index: Tensor, rows: int, lines: Tensor | None = None, factors: Tensor | None = None
) -> Tensor:
    """[rows, width]: class S over the rows of source [n, width] with each index, in ascending n; 0 where none has it.
    float32 or float64. `lines`: row i is source[lines[i]]; `factors`: each is multiplied first.
    """
    if library.elsewhere(source):
        source = source if lines is None else source.index_select(0, lines)
        source = source if factors is None else torch.mul(source, factors[:, None])
    out = torch.zeros(rows, source.shape[1], dtype=source.dtype, device=source.device)
    if library.elsewhere(source):  # nothing is asked of the device, so that it can be captured in a graph
        key, order = in_order(index, rows)
        segments.sum(out, source.contiguous(), key, order, torch.searchsorted(key, key, right=True))
        return out
    in_turn = bool((index[1:] >= index[:-1]).all())
    order = torch.arange(index.numel()) if in_turn else torch.argsort(index, stable=True)
    found, counts = torch.unique_consecutive(index if in_turn else index[order], return_counts=True)
    starts = torch.cumsum(counts, 0) - counts
    for size in torch.unique(counts).tolist():  # rows that occur equally often, together
        chosen = counts == size
        where = order[starts[chosen][:, None] + torch.arange(size)].reshape(-1)
        terms = source.index_select(0, where if lines is None else lines[where])
        terms = terms if factors is None else torch.mul(terms, factors[where, None])
        out[found[chosen]] = sums.sum(terms.reshape(-1, size, source.shape[1]), 1)
    return out


def frequencies(index: Tensor, rows: int) -> Tensor:
    """How often each of `rows` places is named by a 1-D index; 1 for those that never are. int64."""
    counts = torch.zeros(rows, dtype=torch.int64, device=index.device)
    return torch.clamp(counts.index_add_(0, index, torch.ones_like(index, dtype=torch.int64)), min=1)


def put_last(x: Tensor, places: Tensor, values: Tensor) -> Tensor:
    """x (1-D, contiguous) with values[i] at places[i], in place; of several for one the last stays. CUDA alone."""
    key, order = in_order(places, x.numel())
    segments.last(x, values.reshape(-1).to(x.dtype).contiguous(), key, order)
    return x


def places(x: Tensor, dim: int, index: Tensor) -> Tensor:
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
    if library.elsewhere(x):
        torch._assert_async(outside.logical_not(), "scatter: an index is out of bounds")
    elif bool(outside):
        raise RuntimeError(f"scatter: an index is out of bounds for dimension {dim} with size {x.shape[dim]}")
    return flat
