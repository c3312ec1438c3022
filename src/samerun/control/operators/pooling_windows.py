"""Which inputs each output of a pooling layer reads, along one dimension."""

from __future__ import annotations

from functools import lru_cache

import torch

from samerun.control.operators.windows import Readers, readers


@lru_cache(maxsize=256)
def adaptive(inputs: int, outputs: int, device: torch.device) -> tuple[Readers, torch.Tensor]:
    """Adaptive pooling: the readers of each input, and int64[outputs], how many inputs each output reads."""
    out = torch.arange(outputs, device="cpu")
    start = torch.div(out * inputs, outputs, rounding_mode="floor")
    end = -torch.div(-(out + 1) * inputs, outputs, rounding_mode="floor")
    return readers(_between(start, end), None, inputs, device), (end - start).to(device)


@lru_cache(maxsize=256)
def sliding(inputs: int, outputs: int, size: int, stride: int, pad: int, device: torch.device) -> Readers:
    """Windows of `size` inputs, `stride` apart, over an input with `pad` more on either side."""
    start = torch.arange(outputs, device="cpu") * stride - pad
    return readers(_between(start.clamp(min=0), (start + size).clamp(max=inputs)), None, inputs, device)


def _between(start: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
    """int64[outputs, taps]: start, start + 1, ... up to before end; then -1."""
    most = max(int((end - start).max()), 1) if start.numel() else 1
    taps = start.unsqueeze(1) + torch.arange(most, device="cpu")
    return torch.where(taps < end.unsqueeze(1), taps, -1)
