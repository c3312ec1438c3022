"""A pseudo-random permutation of 0..n-1 as a function: nothing is stored, and any position can be computed alone.

A balanced Feistel network on as many bits as n-1 has; results outside 0..n-1 go through it again (cycle walking:
less than one more round trip on average). Up to 1024 elements a Feistel network is too regular, so random keys are
sorted instead. Both rules are a compatibility promise: they never change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from samerun.data.keys import UInt64Array, splitmix64_finalizer_array

MAX_LENGTH = 2**62
MAX_SORTED_LENGTH = 1024
ROUNDS = 8
_uint64 = np.uint64


def permute_positions(positions: UInt64Array, n: int, key: bytes) -> UInt64Array:
    """Map positions (a uint64 array) through the permutation of 0..n-1 that `key` selects."""
    if n <= MAX_SORTED_LENGTH:
        return _make_permutation_by_sorting(n, key)[positions.astype(np.int64)]
    return _cycle_walk(positions, n, lambda x: _feistel_encrypt_without_cycle_walking(x, n, key))


def invert_permutation(indices: UInt64Array, n: int, key: bytes) -> UInt64Array:
    """Return the position of each index: the inverse of `permute_positions`."""
    if n <= MAX_SORTED_LENGTH:
        return np.argsort(_make_permutation_by_sorting(n, key)).astype(np.uint64)[indices.astype(np.int64)]
    return _cycle_walk(indices, n, lambda x: _feistel_decrypt(x, n, key))


@lru_cache(maxsize=64)
def _derive_round_keys(key: bytes) -> tuple[int, ...]:
    raw = b"".join(hashlib.blake2b(key + bytes([part]), digest_size=64).digest() for part in range(ROUNDS // 8))
    return tuple(int.from_bytes(raw[at : at + 8], "little") for at in range(0, len(raw), 8))


@lru_cache(maxsize=16)
def _make_permutation_by_sorting(n: int, key: bytes) -> UInt64Array:
    """Return the whole permutation of a small range, as an array."""
    first, second = _derive_round_keys(key)[:2]
    drawn = splitmix64_finalizer_array(
        splitmix64_finalizer_array(np.arange(n, dtype=np.uint64) + _uint64(first)) + _uint64(second)
    )
    return np.argsort(drawn, kind="stable").astype(np.uint64)


def _cycle_walk(x: UInt64Array, n: int, permute_once: Callable[[UInt64Array], UInt64Array]) -> UInt64Array:
    """Apply a permutation of a larger range to the values, again and again, until all are below n."""
    # A permutation of 0..2**bits-1, applied until the value is below n, is a permutation of 0..n-1: the cycle through
    # a value below n always comes back below n.
    with np.errstate(over="ignore"):
        out = permute_once(x)
        outside = np.flatnonzero(out >= _uint64(n))
        while outside.size:
            out[outside] = permute_once(out[outside])
            outside = outside[out[outside] >= _uint64(n)]
    return out


def _feistel_half_bit_widths(n: int) -> tuple[int, int]:
    """Return the bits of the high and the low half. They swap every round, so odd widths stay bijective."""
    bits = (n - 1).bit_length()
    return bits - bits // 2, bits // 2


def _feistel_encrypt_without_cycle_walking(x: UInt64Array, n: int, key: bytes) -> UInt64Array:
    high, low = _feistel_half_bit_widths(n)
    for word in _derive_round_keys(key):
        right = x & _uint64((1 << low) - 1)
        left = (x >> _uint64(low)) ^ (splitmix64_finalizer_array(right + _uint64(word)) >> _uint64(64 - high))
        x = (right << _uint64(high)) | left
        high, low = low, high
    return x


def _feistel_decrypt(x: UInt64Array, n: int, key: bytes) -> UInt64Array:
    high, low = _feistel_half_bit_widths(n)
    if ROUNDS % 2:
        high, low = low, high
    for word in reversed(_derive_round_keys(key)):
        high, low = low, high
        left, right = x & _uint64((1 << high) - 1), x >> _uint64(high)
        x = ((left ^ (splitmix64_finalizer_array(right + _uint64(word)) >> _uint64(64 - high))) << _uint64(low)) | right
    return x
