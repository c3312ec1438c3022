"""Random bits: Philox4x32-10. Key: the seed. Counter: the draw's position, and the block of four words."""

from __future__ import annotations

from typing import Any

import numpy as np

LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def blocks(seed: int, position: int, block: Any) -> Any:
    """Four words for each of the numbers in `block` (uint64, 1-D): uint32, [n, 4]."""
    block = np.asarray(block, np.uint64)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    c0 = np.full_like(block, position & 0xFFFFFFFF)
    c1 = np.full_like(block, position >> 32)
    c2, c3 = block & LOW, block >> HALF
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * c0
        p1 = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (p1 >> HALF) ^ c1 ^ np.uint64(k0), p1 & LOW, (p0 >> HALF) ^ c3 ^ np.uint64(k1), p0 & LOW
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], 1).astype(np.uint32)


def words(seed: int, position: int, n: int) -> Any:
    """Words 0 to n-1 of a draw: uint32, [n]. Word i lies in block i / 4 at place i % 4."""
    return blocks(seed, position, np.arange((n + 3) // 4, dtype=np.uint64)).reshape(-1)[:n]
