"""index_put_(accumulate=True) and the gradient of tensor[indices], on the CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from samerun.control.operators.declare import Kernel, Operator

WORTHWHILE = 4096
"""Below so many values, torch's own loop takes less time than deciding."""
Indices = list[Tensor | None]


def accumulated(
    self: Tensor, indices: Indices, values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Tensor:
    """Add into `self`, whose first dimensions are indexed by `indices`."""
    rows = _rows(self, indices)
    count = len(indices)
    wide = values.expand(*rows.shape, *self.shape[count:]).reshape(rows.numel(), -1)
    target = self.view(-1, wide.shape[1])
    target.scatter_add_(0, rows.reshape(-1, 1).expand_as(wide), wide)
    return self


def _rows(self: Tensor, indices: Indices) -> Tensor:
    """The row of `self`, with the indexed dimensions made one, that each index names."""
    together = torch.broadcast_tensors(*indices)  # type: ignore[no-untyped-call]
    out: Tensor | None = None
    for index, size in zip(together, self.shape, strict=False):
        wrapped = torch.where(index < 0, index + size, index)
        out = wrapped if out is None else out * size + wrapped
    assert out is not None
    return out


def _applies(self: Tensor, indices: Indices, values: Tensor, accumulate: bool = False, unsafe: bool = False) -> bool:
    """Only where the bits are those of torch's own loop: of float32 and float64, with whole numbers in range."""
    if not accumulate or values.numel() < WORTHWHILE or self.dtype not in (torch.float32, torch.float64):
        return False
    if not indices or not self.is_contiguous() or values.dtype is not self.dtype or not values.is_cpu:
        return False
    for index, size in zip(indices, self.shape, strict=False):
        if index is None or index.dtype is not torch.int64 or not index.is_cpu or not index.numel():
            return False
        low, high = torch.aminmax(index)
        if int(low) < -size or int(high) >= size:
            return False  # torch says which
    return values.untyped_storage().data_ptr() != self.untyped_storage().data_ptr()


OPERATOR = Operator(
    "index_put",
    ("torch.Tensor.__getitem__", "torch.Tensor.index_put"),
    "index_put_(accumulate=True) and the gradient of tensor[indices] on the CPU, for float32 and float64.",
    "scatter_add of whole rows, in the order of the values; the bits are those of torch's deterministic loop, which"
    " one thread does alone.",
    "Less time than torch's loop for large inputs; small ones are left to it.",
    (Kernel(accumulated, ("_index_put_impl_",), ("CPU",), _applies),),
)
