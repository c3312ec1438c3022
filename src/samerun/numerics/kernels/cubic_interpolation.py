"""Cubic convolution, of four neighbours (Keys 1981): their weights at a fraction t, and the weights' slopes.

Each step rounds once, in the type of t, left to right; a is -0.75, or -0.5 where values are smoothed.
"""

from __future__ import annotations

import torch
from torch import Tensor


def inner_cubic_weight(x: Tensor, a: float) -> Tensor:
    """((a + 2) * x - (a + 3)) * x * x + 1, for distances up to 1."""
    inner = torch.mul(torch.sub(torch.mul(x, a + 2), a + 3), x)
    return torch.add(torch.mul(inner, x), 1)


def outer_cubic_weight(x: Tensor, a: float) -> Tensor:
    """((a * x - 5a) * x + 8a) * x - 4a, for distances from 1 to 2."""
    inner = torch.add(torch.mul(torch.sub(torch.mul(x, a), 5 * a), x), 8 * a)
    return torch.sub(torch.mul(inner, x), 4 * a)


def _inner_cubic_slope(x: Tensor, a: float) -> Tensor:
    """(3(a + 2) * x - 2(a + 3)) * x."""
    return torch.mul(torch.sub(torch.mul(x, 3 * (a + 2)), 2 * (a + 3)), x)


def _outer_cubic_slope(x: Tensor, a: float) -> Tensor:
    """(3a * x - 10a) * x + 8a."""
    return torch.add(torch.mul(torch.sub(torch.mul(x, 3 * a), 10 * a), x), 8 * a)


def cubic_weights(fraction: Tensor, a: float) -> list[Tensor]:
    """Of the neighbours at -1, 0, 1 and 2, for a fraction in [0, 1)."""
    other = torch.rsub(fraction, 1)
    return [
        outer_cubic_weight(torch.add(fraction, 1), a),
        inner_cubic_weight(fraction, a),
        inner_cubic_weight(other, a),
        outer_cubic_weight(torch.add(other, 1), a),
    ]


def cubic_weight_slopes(fraction: Tensor, a: float) -> list[Tensor]:
    """The derivatives of the weights by t."""
    other = torch.rsub(fraction, 1)
    return [
        _outer_cubic_slope(torch.add(fraction, 1), a), _inner_cubic_slope(fraction, a),
        torch.neg(_inner_cubic_slope(other, a)), torch.neg(_outer_cubic_slope(torch.add(other, 1), a)),
    ]  # fmt: skip
