"""Operators that add to, multiply into or overwrite the cells that an index names."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from samerun.control.deterministic_kernels.declare import DeterministicOperator, Kernel, upcast_half_to_float32
from samerun.control.deterministic_kernels.ordered_sums import (
    Combine,
    group_rows_by_key,
    reduce_rows_of_each_group,
    sum_rows_by_key,
    take_last_row_of_each_group,
)


def put_(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Write into `self`; of several values for one cell, the last one stays."""
    cells = self.numel()
    if index.dtype is not torch.int64 or source.dtype is not self.dtype or index.numel() != source.numel():
        raise RuntimeError(
            f"put_(): index must be int64 and is {index.dtype}; source must be {self.dtype} and is {source.dtype}, and"
            f" has {source.numel()} values for {index.numel()} indices."
        )
    if not index.numel():
        return self
    groups = group_rows_by_key(torch.where(index < 0, index + cells, index).reshape(-1))
    if int(groups.keys[0]) < 0 or int(groups.keys[-1]) >= cells:
        raise IndexError(f"put_(): an index lies outside of a tensor with {cells} elements.")
    where = torch.unravel_index(groups.keys, self.shape) if self.dim() else (groups.keys,)
    target = self if self.dim() else self.view(1)
    values = source.reshape(-1)
    rows = (
        upcast_half_to_float32(target[where]) + reduce_rows_of_each_group(values, groups)
        if accumulate
        else take_last_row_of_each_group(values, groups)
    )
    target.index_put_(where, rows.to(self.dtype))
    return self


def _is_put_without_accumulate(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> bool:
    return not accumulate  # torch adds one after the other on the CPU in deterministic mode


PUT = DeterministicOperator(
    "put",
    ("torch.Tensor.put_",),
    "Tensor.put_: with accumulate=True on CUDA, and without it everywhere.",
    "Values are sorted by the cell they go to, stably; the last one of each cell is written, or their sum, added in"
    " the order of the values.",
    "A sort of as many 64-bit numbers as there are indices; the device is waited for.",
    (Kernel(put_, ("put_",)), Kernel(put_, ("put_",), ("CPU",), _is_put_without_accumulate)),
)


def bincount_weighted(self: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """The sum of the weights of each number: float32 for float32 weights, else float64."""
    assert weights is not None
    if self.dim() != 1 or self.is_floating_point() or weights.shape != self.shape or minlength < 0:
        raise RuntimeError(
            f"bincount(): the input must be one row of whole numbers, is {self.dtype} and of the shape"
            f" {tuple(self.shape)}; weights must have its shape, have {tuple(weights.shape)}; minlength={minlength}."
        )
    if not self.numel():
        return torch.zeros(minlength, dtype=torch.int64, device=self.device)
    low, high = torch.aminmax(self)
    if int(low) < 0:
        raise RuntimeError(f"bincount(): the input has the negative number {int(low)}.")
    float_weights = weights if weights.dtype is torch.float32 else weights.to(torch.float64)
    return sum_rows_by_key(self.to(torch.int64), float_weights, max(int(high) + 1, minlength))


def _has_weights(self: Tensor, weights: Tensor | None = None, minlength: int = 0) -> bool:
    return weights is not None


BINCOUNT = DeterministicOperator(
    "bincount",
    ("torch.bincount",),
    "torch.bincount with weights.",
    "Weights are sorted by their number, stably, and those of one number are added in their order.",
    "A sort of as many 64-bit numbers as the input has; the device is waited for.",
    (Kernel(bincount_weighted, ("bincount",), applies=_has_weights),),
)


def scatter_reduce_prod(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: Literal["prod"], *, include_self: bool = True
) -> Tensor:
    """A new tensor: each cell (times itself, where `include_self`) times the values that `index` sends there."""
    out = self.clone(memory_format=torch.contiguous_format)
    if not index.numel():
        return out
    low, high = torch.aminmax(index)
    size = self.shape[dim] if self.dim() else 1
    if int(low) < 0 or int(high) >= size:
        raise RuntimeError(
            f"scatter_reduce(): index holds {int(low)} to {int(high)}, dimension {dim} has {size} cells."
        )
    groups = group_rows_by_key(_scatter_flat_indices(out, dim, index).flatten())
    values = src[tuple(slice(0, length) for length in index.shape)].reshape(-1)
    rows = reduce_rows_of_each_group(values, groups, torch.mul)
    flat = out.view(-1)
    if include_self:
        rows = upcast_half_to_float32(flat.index_select(0, groups.keys)) * rows
    flat.index_put_((groups.keys,), rows.to(self.dtype))
    return out


def _scatter_flat_indices(out: Tensor, dim: int, index: Tensor) -> Tensor:
    """The position in `out`, flattened, to which each value goes: int64 of the shape of `index`."""
    cells = torch.zeros_like(index)
    for axis, (length, stride) in enumerate(zip(index.shape, out.stride(), strict=True)):
        if axis == dim % out.dim():
            cells = cells + index * stride
        else:
            offset = torch.arange(length, device=index.device) * stride
            cells = cells + offset.view(-1, *(1,) * (index.dim() - 1 - axis))
    return cells


def _is_scatter_reduce_prod(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: Literal["prod"], *, include_self: bool = True
) -> bool:
    return reduce == "prod" and index.dim() == self.dim() == src.dim()


SCATTER_REDUCE_PROD = DeterministicOperator(
    "scatter_reduce_prod",
    ("torch.Tensor.scatter_reduce",),
    'Tensor.scatter_reduce(reduce="prod").',
    "Values are sorted by the cell they go to, stably, and those of one cell are multiplied in their order.",
    "A sort of as many 64-bit numbers as there are values, and a copy of the tensor; the device is waited for.",
    (
        Kernel(
            scatter_reduce_prod,
            ("scatter_reduce.two", "scatter_reduce_.two", "scatter_reduce.two_out"),
            applies=_is_scatter_reduce_prod,
        ),
    ),
)


COMBINE: dict[str, Combine] = {
    "prod": torch.mul, "mean": torch.add, "amax": torch.maximum, "amin": torch.minimum
}  # fmt: skip


def index_reduce(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A new tensor: row i along `dim` reduced with the rows of `source` that `index` sends there."""
    out = self.clone()
    if not index.numel() or not source.numel():
        return out
    low, high = torch.aminmax(index)
    if int(low) < 0 or int(high) >= self.shape[dim]:
        raise IndexError(
            f"index_reduce(): index holds {int(low)} to {int(high)}, the tensor has {self.shape[dim]} rows."
        )
    groups = group_rows_by_key(index.reshape(-1).to(torch.int64))
    rows = reduce_rows_of_each_group(source.movedim(dim, 0), groups, COMBINE[reduce])
    target = out.movedim(dim, 0)
    counts = groups.counts
    if include_self:
        rows = COMBINE[reduce](upcast_half_to_float32(target.index_select(0, groups.keys)), rows)
        counts = counts + 1
    if reduce == "mean":
        counts = counts.view(-1, *(1,) * (rows.dim() - 1))
        rows = rows / counts if rows.is_floating_point() else torch.div(rows, counts, rounding_mode="floor")
    target.index_put_((groups.keys,), rows.to(self.dtype))
    return out


def _can_index_reduce(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> bool:
    return reduce in COMBINE and self.dim() > 0 and source.dim() == self.dim() and source.shape[dim] == index.numel()


INDEX_REDUCE = DeterministicOperator(
    "index_reduce",
    (),
    "Tensor.index_reduce (torch's list leaves it out).",
    "Rows are sorted by the row they go to, stably, and those of one row are combined in their order.",
    "A sort of the index, and copies of the tensor and of the source; the device is waited for.",
    (Kernel(index_reduce, ("index_reduce", "index_reduce_", "index_reduce.out"), applies=_can_index_reduce),),
)


MAX_MODE = 2


def embedding_bag_max_backward(
    grad: Tensor, indices: Tensor, offset2bag: Tensor, bag_size: Tensor, maximum_indices: Tensor, num_weights: int,
    *others: object, **named: object,
) -> Tensor:  # fmt: skip
    """maximum_indices: int[bags, features], the row that each bag took in each feature."""
    features = grad.shape[1]
    taken = maximum_indices >= 0  # CUDA writes -1 for an empty bag, the CPU 0
    if not grad.is_cuda:
        taken = taken & (bag_size > 0).unsqueeze(1)
    cells = maximum_indices.to(torch.int64) * features + torch.arange(features, device=grad.device)
    rows = taken.reshape(-1).nonzero().flatten()
    keys, values = cells.reshape(-1).index_select(0, rows), grad.reshape(-1).index_select(0, rows)
    return sum_rows_by_key(keys, values, num_weights * features).view(num_weights, features)


def _is_max_mode_embedding_bag(
    grad: Tensor, indices: Tensor, offset2bag: Tensor, bag_size: Tensor, maximum_indices: Tensor, num_weights: int,
    scale_grad_by_freq: bool, mode: int, *others: object, **named: object,
) -> bool:  # fmt: skip
    return mode == MAX_MODE


EMBEDDING_BAG_MAX = DeterministicOperator(
    "embedding_bag_max",
    ("torch.nn.EmbeddingBag",),
    'The gradient of nn.EmbeddingBag(mode="max").',
    "Gradients are sorted by the weight that they belong to, stably, and those of one weight are added in the order"
    " of the bags.",
    "A sort of as many 64-bit numbers as there are outputs; the device is waited for.",
    (Kernel(embedding_bag_max_backward, ("_embedding_bag_dense_backward",), applies=_is_max_mode_embedding_bag),),
)
