"""Which inputs each output of `interpolate` reads along one dimension, and with what weight."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from samerun.control.operators.windows import Readers, readers

CUBIC = -0.75
CUBIC_SMOOTH = -0.5
"""The free parameter of the cubic kernel: torch takes another one when it smooths (antialias)."""


@lru_cache(maxsize=256)
def taps(
    mode: str, inputs: int, outputs: int, align: bool, factor: float | None, dtype: torch.dtype, device: torch.device
) -> Readers:
    """The readers of each input. mode: "linear", "cubic", and both with " smooth".

    align: whether the corners are aligned. factor: the scale that the user gave, if any. dtype: float32 or float64,
    in which torch's forward kernels compute positions.
    """
    scale = _scale(inputs, outputs, align, factor, dtype)
    out = torch.arange(outputs, dtype=dtype, device="cpu")
    if inputs == outputs and scale == 1 and not mode.endswith("smooth"):  # as it is, and no NaN beside a NaN
        return readers(torch.arange(inputs, device="cpu").unsqueeze(1), None, inputs, device)
    if mode.endswith("smooth"):
        sources, weights = _smooth(mode, out, scale, inputs)
    else:
        position = out * scale if align else (out + 0.5) * scale - 0.5
        sources, weights = (_linear if mode == "linear" else _cubic)(position, inputs)
    return readers(sources, weights, inputs, device)


def _scale(inputs: int, outputs: int, align: bool, factor: float | None, dtype: torch.dtype) -> Tensor:
    if align:
        above, below = (float(inputs - 1), float(outputs - 1)) if outputs > 1 else (0.0, 1.0)
    else:
        above, below = (1.0, factor) if factor is not None and factor > 0 else (float(inputs), float(outputs))
    top, bottom = (torch.tensor(value, dtype=torch.float64, device="cpu") for value in (above, below))
    if factor is not None and factor > 0 and not align:
        return (top / bottom).to(dtype)
    return top.to(dtype) / bottom.to(dtype)


def _linear(position: Tensor, inputs: int) -> tuple[Tensor, Tensor]:
    position = position.clamp(min=0)
    low = position.to(torch.int64).clamp(max=inputs - 1)
    upper = (position - low).clamp(0, 1)
    return torch.stack([low, (low + 1).clamp(max=inputs - 1)], 1), torch.stack([1 - upper, upper], 1)


def _cubic(position: Tensor, inputs: int) -> tuple[Tensor, Tensor]:
    low = position.floor()
    t = position - low
    sources = low.to(torch.int64).unsqueeze(1) + torch.arange(-1, 3, device="cpu")
    weights = torch.stack([_kernel(t + 1, CUBIC), _kernel(t, CUBIC), _kernel(1 - t, CUBIC), _kernel(2 - t, CUBIC)], 1)
    return sources.clamp(0, inputs - 1), weights


def _kernel(x: Tensor, a: float) -> Tensor:
    """The cubic convolution kernel at distance x >= 0."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return torch.where(x < 1, near, torch.where(x < 2, far, 0))


def _smooth(mode: str, out: Tensor, scale: Tensor, inputs: int) -> tuple[Tensor, Tensor]:
    """A kernel as wide as an output is: every input under it counts, and the weights add up to one."""
    half = 1.0 if mode.startswith("linear") else 2.0
    support = half * scale.clamp(min=1)
    center = scale * (out + 0.5)
    start = (center - support + 0.5).to(torch.int64).clamp(min=0)
    end = (center + support + 0.5).to(torch.int64).clamp(max=inputs)
    step = torch.arange(max(int((end - start).max()), 1), device="cpu")
    sources = start.unsqueeze(1) + step
    distance = ((sources - center.unsqueeze(1) + 0.5) / scale.clamp(min=1)).abs()
    weights = (1 - distance).clamp(min=0) if mode.startswith("linear") else _kernel(distance, CUBIC_SMOOTH)
    inside = sources < end.unsqueeze(1)
    weights = torch.where(inside, weights, 0)
    total = weights.sum(1, keepdim=True)
    return torch.where(inside, sources, -1), weights / torch.where(total == 0, 1, total)
