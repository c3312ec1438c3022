"""Random tensors from a seed and a position, by the executable specification of Philox. Element i of a draw is made
from words that only its index names, so the numbers are the same on any device and for any launch shape.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from samerun.numerics.functions import cos, log, sin
from samerun.numerics.reference import philox

TWO_PI = 6.283185307179586


def uniform(seed: int, position: int, n: int) -> Tensor:
    """(word >> 8) * 2^-24: float32 in [0, 1), [n]."""
    words = philox.words(seed, position, n)
    return torch.from_numpy((words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24))


def normal(seed: int, position: int, n: int) -> Tensor:
    """Box-Muller on pairs of words: r = sqrt(-2 log(1 - u)), angle = 2 pi v; r * cos, r * sin. float32, [n]."""
    pairs = uniform(seed, position, n + n % 2).reshape(-1, 2)
    radius = torch.sqrt(torch.mul(log(torch.rsub(pairs[:, 0], 1)), -2))
    angle = torch.mul(pairs[:, 1], TWO_PI)
    both = torch.stack([torch.mul(radius, cos(angle)), torch.mul(radius, sin(angle))], 1)
    return both.reshape(-1)[:n]


def integers(seed: int, position: int, n: int, low: int, high: int) -> Tensor:
    """Whole numbers low <= i < high, int64, [n]: the high half of (64-bit word) * (high - low), words that would
    favour some numbers rejected. Try t of element i takes the two words at 2 * (i + t * n).
    """
    span = high - low
    limit = (1 << 64) % span
    found = np.zeros(n, np.int64)
    missing = np.arange(n)
    attempt = 0
    while missing.size:
        words = philox.words(seed, position, 2 * n * (attempt + 1)).reshape(-1, 2)[missing + attempt * n]
        wide = words[:, 0].astype(object) + (words[:, 1].astype(object) << 32)
        products = wide * span
        good = np.array([int(value) & 0xFFFFFFFFFFFFFFFF for value in products], dtype=np.uint64) >= np.uint64(limit)
        found[missing[good]] = np.array([(int(value) >> 64) + low for value in products[good]], dtype=np.int64)
        missing = missing[~good]
        attempt += 1
    return torch.from_numpy(found)


def permutation(seed: int, position: int, n: int) -> Tensor:
    """0 to n-1 sorted by 64-bit keys, ties by index; int64."""
    words = philox.words(seed, position, 2 * n).reshape(-1, 2)
    keys = words[:, 0].astype(np.uint64) | (words[:, 1].astype(np.uint64) << np.uint64(32))
    return torch.from_numpy(np.argsort(keys, kind="stable"))
