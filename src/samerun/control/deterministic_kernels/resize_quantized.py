"""Tensor.resize_ of a quantized tensor, whose new cells hold what was in memory before."""

from __future__ import annotations

import torch
from torch import Tensor

from samerun.control.deterministic_kernels.declare import DeterministicOperator, Kernel


def resize_(self: Tensor, size: list[int], *, memory_format: torch.memory_format | None = None) -> Tensor:
    """Resize `self`; the integers of new cells are 0."""
    storage = self.untyped_storage()
    before, needed = storage.nbytes(), (self.storage_offset() + torch.Size(size).numel()) * self.element_size()
    if needed > before:
        storage.resize_(int(needed))
        torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage)[before:] = 0
    stride = torch.empty(size, device="meta").stride()
    return self.set_(storage, self.storage_offset(), size, stride)


def _is_resize_without_memory_format(
    self: Tensor, size: list[int], *, memory_format: torch.memory_format | None = None
) -> bool:
    return memory_format is None  # torch refuses all others


OPERATOR = DeterministicOperator(
    "resize_quantized",
    ("torch.Tensor.resize_",),
    "Tensor.resize_ of a quantized tensor.",
    "The integers of new cells are set to 0.",
    "One pass over the new cells.",
    (Kernel(resize_, ("resize_",), ("QuantizedCPU",), _is_resize_without_memory_format),),
)
