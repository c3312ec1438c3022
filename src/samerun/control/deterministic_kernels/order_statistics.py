"""torch.kthvalue, median and nanmedian, whose index is any of several equal values; torch.histc."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from samerun.control.deterministic_kernels.declare import DeterministicOperator, Kernel


def kthvalue(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The k-th smallest along `dim` and its index: of equal values, those that come first count first."""
    if self.dim() == 0:
        return self.clone(), torch.zeros((), dtype=torch.int64, device=self.device)
    size = self.shape[dim]
    if not 1 <= k <= size:
        raise RuntimeError(f"kthvalue(): k={k} is out of range for dimension {dim}, which has {size} values.")
    values, indices = torch.sort(self, dim=dim, stable=True)
    values, indices = values.narrow(dim, k - 1, 1), indices.narrow(dim, k - 1, 1)
    return (values.clone(), indices.clone()) if keepdim else (values.squeeze(dim).clone(), indices.squeeze(dim).clone())


KTHVALUE = DeterministicOperator(
    "kthvalue",
    (),
    "torch.kthvalue (torch's list leaves it out).",
    "A stable sort; of equal values, those that come first count first.",
    "A sort of the whole tensor, with its indices.",
    (Kernel(kthvalue, ("kthvalue", "kthvalue.values")),),
)


def _median_along(self: Tensor, dim: int, keepdim: bool, ignore_nan: bool) -> tuple[Tensor, Tensor]:
    """The lower middle value along `dim` and its index."""
    if self.dim() == 0:
        return self.clone(), torch.zeros((), dtype=torch.int64, device=self.device)
    size = self.shape[dim]
    if not size:
        raise IndexError(f"median(): dimension {dim} has no values.")
    values, indices = torch.sort(self, dim=dim, stable=True)  # NaN comes last
    nans = self.isnan().sum(dim, keepdim=True)
    if ignore_nan:
        rank = torch.div(size - nans - 1, 2, rounding_mode="floor").clamp_(min=0)
    else:
        rank = torch.where(nans > 0, size - nans, (size - 1) // 2)
    values, indices = values.gather(dim, rank), indices.gather(dim, rank)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


def median(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _median_along(self, dim, keepdim, ignore_nan=False)


def nanmedian(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _median_along(self, dim, keepdim, ignore_nan=True)


MEDIAN = DeterministicOperator(
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


def histc(self: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:  # torch's own names
    """How many values lie in each of `bins` equal parts of [min, max]; of the values' type."""
    if bins <= 0:
        raise RuntimeError(f"histc(): bins={bins}, but it must be above 0.")
    low, high = min, max
    if low == high and self.numel():
        low, high = self.amin().item(), self.amax().item()
    if not (math.isfinite(low) and math.isfinite(high)) or low > high:
        raise RuntimeError(f"histc(): the range from {low} to {high} is not finite, or empty.")
    if low == high:
        low, high = low - 1, high + 1
    inside = (self >= low) & (self <= high)
    values = torch.where(inside, self, low).reshape(-1)
    if self.is_floating_point():
        part = ((values - low) * bins / (high - low)).to(torch.int64)
    else:
        part = torch.div((values.to(torch.int64) - int(low)) * bins, int(high) - int(low), rounding_mode="floor")
    part = torch.where(inside.reshape(-1), part.clamp_(max=bins - 1), bins)
    return torch.bincount(part, minlength=bins + 1)[:bins].to(self.dtype)


HISTC = DeterministicOperator(
    "histc",
    ("torch.histc",),
    "torch.histc.",
    "The number of each value's bin is computed, and whole numbers are counted.",
    "A few passes over the input, and eight bytes for each of its values; where min and max are not given, the"
    " device is waited for.",
    (Kernel(histc, ("histc", "histc.out")),),
)
