"""Tensor.index_reduce."""

from __future__ import annotations

import torch
from torch import Tensor

from samerun.control.operators.declare import Kernel, Operator, widened
from samerun.control.operators.segments import Combine, folded, grouped

COMBINE: dict[str, Combine] = {
    "prod": torch.mul, "mean": torch.add, "amax": torch.maximum, "amin": torch.minimum
}  # fmt: skip


def reduced(self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    """A new tensor: row i along `dim` reduced with the rows of `source` that `index` sends there."""
    out = self.clone()
    if not index.numel() or not source.numel():
        return out
    low, high = torch.aminmax(index)
    if int(low) < 0 or int(high) >= self.shape[dim]:
        raise IndexError(
            f"index_reduce(): index holds {int(low)} to {int(high)}, the tensor has {self.shape[dim]} rows."
        )
    groups = grouped(index.reshape(-1).to(torch.int64))
    rows = folded(source.movedim(dim, 0), groups, COMBINE[reduce])
    target = out.movedim(dim, 0)
    counts = groups.counts
    if include_self:
        rows = COMBINE[reduce](widened(target.index_select(0, groups.keys)), rows)
        counts = counts + 1
    if reduce == "mean":
        counts = counts.view(-1, *(1,) * (rows.dim() - 1))
        rows = rows / counts if rows.is_floating_point() else torch.div(rows, counts, rounding_mode="floor")
    target.index_put_((groups.keys,), rows.to(self.dtype))
    return out


def _applies(self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> bool:
    return reduce in COMBINE and self.dim() > 0 and source.dim() == self.dim() and source.shape[dim] == index.numel()


OPERATOR = Operator(
    "index_reduce",
    (),
    "Tensor.index_reduce (torch's list leaves it out).",
    "Rows are sorted by the row they go to, stably, and those of one row are combined in their order.",
    "A sort of the index, and copies of the tensor and of the source; the device is waited for.",
    (Kernel(reduced, ("index_reduce", "index_reduce_", "index_reduce.out"), applies=_applies),),
)
