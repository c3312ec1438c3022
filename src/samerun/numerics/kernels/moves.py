"""Gradients of operators that only move values: what was moved out of one place is added there, in ascending order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from samerun.numerics.kernels import ordered


def to_places(g: Tensor, flat: Tensor, shape: Sequence[int]) -> Tensor:
    """Zeros of `shape` with g added at its flat places, in ascending order of g."""
    out = torch.zeros(tuple(shape), dtype=g.dtype, device=g.device).reshape(-1)
    return ordered.add_(out, 0, flat.reshape(-1), g.reshape(-1)).reshape(tuple(shape))


def numbered(shape: Sequence[int], device: torch.device) -> Tensor:
    """The place of every value, as float64, which operators that move values take."""
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float64, device=device).reshape(tuple(shape))


def of_padding(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The gradient of a padding that repeats values of the tensor."""

    def backward(g: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor:
        return to_places(g, forward(numbered(x.shape, x.device), padding).to(torch.int64), x.shape)

    return backward
