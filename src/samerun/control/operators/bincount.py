"""torch.bincount with weights."""

from __future__ import annotations

import torch
from torch import Tensor

from samerun.control.operators.declare import Kernel, Operator
from samerun.control.operators.segments import summed


def weighted(self: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
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
    kept = weights if weights.dtype is torch.float32 else weights.to(torch.float64)
    return summed(self.to(torch.int64), kept, max(int(high) + 1, minlength))


def _has_weights(self: Tensor, weights: Tensor | None = None, minlength: int = 0) -> bool:
    return weights is not None


OPERATOR = Operator(
    "bincount",
    ("torch.bincount",),
    "torch.bincount with weights.",
    "Weights are sorted by their number, stably, and those of one number are added in their order.",
    "A sort of as many 64-bit numbers as the input has; the device is waited for.",
    (Kernel(weighted, ("bincount",), applies=_has_weights),),
)
