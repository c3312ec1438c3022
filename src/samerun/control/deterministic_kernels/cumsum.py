"""torch.cumsum of floating-point and complex numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from samerun.control.deterministic_kernels.declare import HALF_TYPES, DeterministicOperator, Kernel

BLOCK = 16


def cumsum(self: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    result_dtype = dtype or self.dtype
    values = self.to(torch.float32 if result_dtype in HALF_TYPES else result_dtype)
    if not self.dim() or not self.numel():
        return values.to(result_dtype, copy=True)
    return _cumsum_last_dim(values.movedim(dim, -1)).movedim(-1, dim).to(result_dtype)


def _cumsum_last_dim(values: Tensor) -> Tensor:
    """The running sum along the last dimension: inside blocks from left to right, then over the blocks."""
    size = values.shape[-1]
    blocks = -(-size // BLOCK)
    padded = torch.zeros((*values.shape[:-1], blocks * BLOCK), dtype=values.dtype, device=values.device)
    padded[..., :size] = values
    parts = padded.unflatten(-1, (blocks, BLOCK))  # type: ignore[no-untyped-call]
    for step in range(1, min(BLOCK, size)):
        parts[..., step] += parts[..., step - 1]
    if blocks > 1:
        parts[..., 1:, :] += _cumsum_last_dim(parts[..., :-1, -1]).unsqueeze(-1)
    return padded[..., :size]


def _is_float_or_complex_cumsum(self: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> bool:
    result_dtype = dtype or (self.dtype if self.is_floating_point() or self.is_complex() else torch.int64)
    return result_dtype.is_floating_point or result_dtype.is_complex


OPERATOR = DeterministicOperator(
    "cumsum",
    ("torch.cumsum",),
    "torch.cumsum of floating-point and complex numbers.",
    f"Blocks of {BLOCK} values are added up from left to right, then the ends of the blocks in the same way, and each"
    " block gets the sum of those before it.",
    f"About two passes over the input, in {BLOCK} strided steps for each factor of {BLOCK} of its length; its size"
    " again in memory.",
    (Kernel(cumsum, ("cumsum", "cumsum_", "cumsum.out"), applies=_is_float_or_complex_cumsum),),
)
