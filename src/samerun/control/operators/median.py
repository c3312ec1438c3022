"""torch.median and nanmedian with an index, which is any of several equal values."""

from __future__ import annotations

import torch
from torch import Tensor

from samerun.control.operators.declare import Kernel, Operator


def middle(self: Tensor, dim: int, keepdim: bool, skip_nan: bool) -> tuple[Tensor, Tensor]:
    """The lower middle value along `dim` and its index."""
    if self.dim() == 0:
        return self.clone(), torch.zeros((), dtype=torch.int64, device=self.device)
    size = self.shape[dim]
    if not size:
        raise IndexError(f"median(): dimension {dim} has no values.")
    values, indices = torch.sort(self, dim=dim, stable=True)  # NaN comes last
    nans = self.isnan().sum(dim, keepdim=True)
    if skip_nan:
        at = torch.div(size - nans - 1, 2, rounding_mode="floor").clamp_(min=0)
    else:
        at = torch.where(nans > 0, size - nans, (size - 1) // 2)
    values, indices = values.gather(dim, at), indices.gather(dim, at)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


def median(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return middle(self, dim, keepdim, skip_nan=False)


def nanmedian(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return middle(self, dim, keepdim, skip_nan=True)


OPERATOR = Operator(
    "median",
    ("torch.median",),
    "torch.median and torch.nanmedian along a dimension, which give an index.",
    "A stable sort; of equal values, those that come first count first.",
    "A sort of the whole tensor, with its indices.",
    (
        Kernel(median, ("median.dim", "median.dim_values")),
        Kernel(nanmedian, ("nanmedian.dim", "nanmedian.dim_values")),
    ),
)
