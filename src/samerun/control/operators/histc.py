"""torch.histc."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from samerun.control.operators.declare import Kernel, Operator


def counts(self: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:  # torch's own names
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


OPERATOR = Operator(
    "histc",
    ("torch.histc",),
    "torch.histc.",
    "The number of each value's bin is computed, and whole numbers are counted.",
    "A few passes over the input, and eight bytes for each of its values; where min and max are not given, the"
    " device is waited for.",
    (Kernel(counts, ("histc", "histc.out")),),
)
