"""Philox4x32-10, and random numbers made of its words: one rounding an operation.

Key: the seed. Counter: the draw's number, and the block of four words.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from samerun.numerics.reference import Array
from samerun.numerics.reference.elementwise import apply_correctly_rounded

F = np.float32
STEP = F(2.0**-24)
TURN = F(6.2831853071795865)
EIGHT = np.uint32(8)


def uniform(seed: int, draw_number: int, n: int) -> Array:
    """float32 [n]: (word >> 8) * 2^-24; exact."""
    return (philox_words(seed, draw_number, n) >> EIGHT).astype(F) * STEP


def normal(seed: int, draw_number: int, n: int) -> Array:
    """float32 [n]: of the words a and b of values 2i and 2i+1."""
    pairs = (philox_words(seed, draw_number, n + n % 2) >> EIGHT).reshape(-1, 2)
    u = (pairs[:, 0] + np.uint32(1)).astype(F) * STEP
    v = pairs[:, 1].astype(F) * STEP
    r = np.sqrt(F(-2) * apply_correctly_rounded("log", u))
    angle = TURN * v
    both = np.stack([r * apply_correctly_rounded("cos", angle), r * apply_correctly_rounded("sin", angle)], 1)
    return both.reshape(-1)[:n]


def philox_words64(seed: int, draw_number: int, n: int, attempt: int = 0) -> Array:
    """uint64 [n]: value i has two words of block i / 2, the low one first; later attempts count in the high byte."""
    block = np.arange((n + 1) // 2, dtype=np.uint64) | np.uint64(attempt << 56)
    four = philox_blocks(seed, draw_number, block).astype(np.uint64).reshape(-1, 2)
    whole: Any = (four[:, 0] | four[:, 1] << np.uint64(32))[:n]
    return whole


def philox_block_words(seed: int, draw_number: int, block_indices: Array) -> Array:
    """int64 [n, 2]: the bits of each block_indices's four words, two by two, the low one first."""
    four = philox_blocks(seed, draw_number, block_indices.view(np.uint64)).astype(np.uint64)
    two: Any = (four[:, 0::2] | four[:, 1::2] << np.uint64(32)).view(np.int64)
    return two


def randint(low: int, high: int, seed: int, draw_number: int, n: int) -> Array:
    """int64 [n]: the high half of word * range; words that would make it uneven are drawn again."""
    span = high - low
    uneven = (1 << 64) % span
    out = np.zeros(n, np.int64)
    left, attempt = list(range(n)), 0
    while left:
        drawn = philox_words64(seed, draw_number, n, attempt)
        again = []
        for i in left:
            product = int(drawn[i]) * span
            if product % (1 << 64) < uneven:
                again.append(i)
            else:
                out[i] = low + (product >> 64)
        left, attempt = again, (attempt + 1) % 256
    return out


def randperm(n: int, seed: int, draw_number: int) -> Array:
    """int64 [n]"""
    return np.argsort(philox_words64(seed, draw_number, n), kind="stable").astype(np.int64)


LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def philox_blocks(seed: int, draw_number: int, block_indices: Array) -> Array:
    """Four words for each of the numbers in `block_indices` (uint64, 1-D): uint32, [n, 4]."""
    block_indices = np.asarray(block_indices, np.uint64)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    c0 = np.full_like(block_indices, draw_number & 0xFFFFFFFF)
    c1 = np.full_like(block_indices, draw_number >> 32)
    c2, c3 = block_indices & LOW, block_indices >> HALF
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * c0
        p1 = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (p1 >> HALF) ^ c1 ^ np.uint64(k0), p1 & LOW, (p0 >> HALF) ^ c3 ^ np.uint64(k1), p0 & LOW
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], 1).astype(np.uint32)


def philox_words(seed: int, draw_number: int, n: int) -> Array:
    """Words 0 to n-1 of a draw: uint32, [n]. Word i lies in block i / 4 at place i % 4."""
    return philox_blocks(seed, draw_number, np.arange((n + 3) // 4, dtype=np.uint64)).reshape(-1)[:n]
