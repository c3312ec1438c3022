"""A pseudo-random permutation of 0..n-1 as a function: nothing is stored, any position can be asked for.

A Feistel network on as many bits as n-1 has, whose two halves take turns; what falls outside 0..n-1 goes
through it again (cycle walking: less than one more time on average). Up to 1024 elements it would be too
regular: there, keys are drawn and sorted. The rule is a promise: it never changes.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import numpy as np

from samerun.data.keys import mix64_array

LARGEST = 2**62
SORTED_UP_TO = 1024
ROUNDS = 8
_U = np.uint64


def permuted(positions: Any, n: int, key: bytes) -> Any:
    """Where the permutation of 0..n-1 that `key` names takes each position. Arrays of uint64."""
    if n <= SORTED_UP_TO:
        return _sorted_table(n, key)[positions.astype(np.int64)]
    return _walk(positions, n, lambda x: _forward(x, n, key))


def unpermuted(indices: Any, n: int, key: bytes) -> Any:
    """The position of each index: the inverse of `permuted`."""
    if n <= SORTED_UP_TO:
        return np.argsort(_sorted_table(n, key)).astype(np.uint64)[indices.astype(np.int64)]
    return _walk(indices, n, lambda x: _backward(x, n, key))


@lru_cache(maxsize=64)
def _words(key: bytes) -> tuple[int, ...]:
    raw = b"".join(hashlib.blake2b(key + bytes([part]), digest_size=64).digest() for part in range(ROUNDS // 8))
    return tuple(int.from_bytes(raw[at : at + 8], "little") for at in range(0, len(raw), 8))


@lru_cache(maxsize=16)
def _sorted_table(n: int, key: bytes) -> Any:
    first, second = _words(key)[:2]
    drawn = mix64_array(mix64_array(np.arange(n, dtype=np.uint64) + _U(first)) + _U(second))
    return np.argsort(drawn, kind="stable").astype(np.uint64)


def _walk(x: Any, n: int, step: Any) -> Any:
    with np.errstate(over="ignore"):
        out = step(x)
        outside = np.flatnonzero(out >= _U(n))
        while outside.size:
            out[outside] = step(out[outside])
            outside = outside[out[outside] >= _U(n)]
    return out


def _halves(n: int) -> tuple[int, int]:
    bits = (n - 1).bit_length()
    return bits - bits // 2, bits // 2


def _forward(x: Any, n: int, key: bytes) -> Any:
    high, low = _halves(n)
    for word in _words(key):
        right = x & _U((1 << low) - 1)
        left = (x >> _U(low)) ^ (mix64_array(right + _U(word)) >> _U(64 - high))
        x = (right << _U(high)) | left
        high, low = low, high
    return x


def _backward(x: Any, n: int, key: bytes) -> Any:
    high, low = _halves(n)
    if ROUNDS % 2:
        high, low = low, high
    for word in reversed(_words(key)):
        high, low = low, high
        left, right = x & _U((1 << high) - 1), x >> _U(high)
        x = ((left ^ (mix64_array(right + _U(word)) >> _U(64 - high))) << _U(low)) | right
    return x
