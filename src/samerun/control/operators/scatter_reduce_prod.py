"""Tensor.scatter_reduce(reduce="prod")."""

from __future__ import annotations

import torch
from torch import Tensor

from samerun.control.operators.declare import Kernel, Operator, widened
from samerun.control.operators.segments import folded, grouped


def product(self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
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
    groups = grouped(_cells(out, dim, index).flatten())
    values = src[tuple(slice(0, length) for length in index.shape)].reshape(-1)
    rows = folded(values, groups, torch.mul)
    flat = out.view(-1)
    if include_self:
        rows = widened(flat.index_select(0, groups.keys)) * rows
    flat.index_put_((groups.keys,), rows.to(self.dtype))
    return out


def _cells(out: Tensor, dim: int, index: Tensor) -> Tensor:
    """The position in `out`, flattened, to which each value goes: int64 of the shape of `index`."""
    cells = torch.zeros_like(index)
    for axis, (length, stride) in enumerate(zip(index.shape, out.stride(), strict=True)):
        if axis == dim % out.dim():
            cells = cells + index * stride
        else:
            own = torch.arange(length, device=index.device) * stride
            cells = cells + own.view(-1, *(1,) * (index.dim() - 1 - axis))
    return cells


def _is_product(self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> bool:
    return reduce == "prod" and index.dim() == self.dim() == src.dim()


OPERATOR = Operator(
    "scatter_reduce_prod",
    ("torch.Tensor.scatter_reduce",),
    'Tensor.scatter_reduce(reduce="prod").',
    "Values are sorted by the cell they go to, stably, and those of one cell are multiplied in their order.",
    "A sort of as many 64-bit numbers as there are values, and a copy of the tensor; the device is waited for.",
    (Kernel(product, ("scatter_reduce.two", "scatter_reduce_.two", "scatter_reduce.two_out"), applies=_is_product),),
)
