"""Tensor.put_, which writes into, or adds to, the cells of a flattened tensor."""

from __future__ import annotations

import torch
from torch import Tensor

from samerun.control.operators.declare import Kernel, Operator, widened
from samerun.control.operators.segments import folded, grouped, last


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
    groups = grouped(torch.where(index < 0, index + cells, index).reshape(-1))
    if int(groups.keys[0]) < 0 or int(groups.keys[-1]) >= cells:
        raise IndexError(f"put_(): an index lies outside of a tensor with {cells} elements.")
    where = torch.unravel_index(groups.keys, self.shape) if self.dim() else (groups.keys,)
    target = self if self.dim() else self.view(1)
    values = source.reshape(-1)
    rows = widened(target[where]) + folded(values, groups) if accumulate else last(values, groups)
    target.index_put_(where, rows.to(self.dtype))
    return self


def _assigns(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> bool:
    return not accumulate  # torch adds one after the other on the CPU in deterministic mode


OPERATOR = Operator(
    "put",
    ("torch.Tensor.put_",),
    "Tensor.put_: with accumulate=True on CUDA, and without it everywhere.",
    "Values are sorted by the cell they go to, stably; the last one of each cell is written, or their sum, added in"
    " the order of the values.",
    "A sort of as many 64-bit numbers as there are indices; the device is waited for.",
    (Kernel(put_, ("put_",)), Kernel(put_, ("put_",), ("CPU",), _assigns)),
)
