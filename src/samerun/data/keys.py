"""Derive, from (seed, name, epoch, sample, repetition), the numbers that the random generators are seeded with.

The derivation is a compatibility promise: the same five values give the same numbers in every version of samerun.

NumPy and torch seed a Mersenne Twister from 32 bits by the same rule, so each gets bits of its own. Within an epoch
those bits are a bijection of the sample's number: no two of the first 2**32 samples share a stream. Python takes 64
bits.
"""

from __future__ import annotations

import functools
import hashlib
import json
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from samerun.base.errors import DataError

UInt64Array: TypeAlias = "np.ndarray[Any, Any]"
UInt32Array: TypeAlias = "np.ndarray[Any, Any]"
"""Their names say what they hold; NumPy's own types for that do not survive arithmetic in all its versions."""
MASK32 = 2**32 - 1
MASK64 = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_HIGH = 0xD1B54A32D192ED03
VECTORISED_FROM = 12
"""For fewer samples at once, Python integers are faster than NumPy arrays."""


class SampleKeys(NamedTuple):
    """The seeds of each sample, one column per generator; None for a generator that is not keyed."""

    python: Sequence[int] | None
    numpy: Sequence[int] | None
    torch: Sequence[int] | None


class SampleKeyArrays(NamedTuple):
    """`SampleKeys` as arrays: uint64 for Python, uint32 for NumPy and torch."""

    python: Any
    numpy: Any
    torch: Any


@dataclass(frozen=True)
class KeyContext:
    """Everything that a key depends on besides the sample. purpose: "sample", "batch", "sampler", ..."""

    seed: int
    name: str
    epoch: int
    purpose: str = "sample"

    def derive_keys(
        self, key_numbers: Sequence[int], repetitions: Sequence[int] | None, kinds: frozenset[str]
    ) -> SampleKeys:
        """Derive the keys of many samples at once. key_numbers: from 0 to 2**63-1, see `index_to_key_number`."""
        if len(key_numbers) >= VECTORISED_FROM:
            arrays = self.derive_key_arrays(key_numbers, repetitions, kinds)
            return SampleKeys(*(None if column is None else column.tolist() for column in arrays))
        words = self._derive_key_words()
        pairs = list(zip(key_numbers, repetitions or [0] * len(key_numbers), strict=True))
        return SampleKeys(
            [_mix_key64(n, r, words[0], words[1]) for n, r in pairs] if "python" in kinds else None,
            [_mix_key32(n, r, words[2]) for n, r in pairs] if "numpy" in kinds else None,
            [_mix_key32(n, r, words[3]) for n, r in pairs] if "torch" in kinds else None,
        )

    def derive_key_arrays(
        self, key_numbers: Sequence[int], repetitions: Sequence[int] | None, kinds: frozenset[str]
    ) -> SampleKeyArrays:
        """Derive the same keys as `derive_keys`, as arrays."""
        if len(key_numbers) < VECTORISED_FROM:
            keys = self.derive_keys(key_numbers, repetitions, kinds)
            widths = (np.uint64, np.uint32, np.uint32)
            return SampleKeyArrays(*(None if c is None else np.array(c, w) for c, w in zip(keys, widths, strict=True)))
        words = self._derive_key_words()
        array = np.asarray(key_numbers, dtype=np.uint64)
        salt = _mix_key32_salts(array, repetitions)
        return SampleKeyArrays(
            _mix_key64_array(array, repetitions, words[0], words[1]) if "python" in kinds else None,
            _mix_low32_of_keys_array(array, salt, words[2]) if "numpy" in kinds else None,
            _mix_low32_of_keys_array(array, salt, words[3]) if "torch" in kinds else None,
        )

    def derive_key64(self, key_number: int, repetition: int) -> int:
        """Derive 64 bits for one sample, to seed generators other than Python's, NumPy's and torch's."""
        words = self._derive_key_words()
        return _mix_key64(key_number, repetition, words[4], words[5])

    def _derive_key_words(self) -> tuple[int, ...]:
        return _derive_key_words(self.seed, self.name, self.epoch, self.purpose)


def index_to_key_number(index: Any) -> int:
    """Return the number that stands for a dataset index in keys: an integer itself, else a hash.

    Strings, bytes and tuples of these are hashed. Raises DataError for other objects: their text may contain a
    memory address, and then no two runs would agree.
    """
    try:
        number = operator.index(index)
    except TypeError:
        text = json.dumps(_index_to_json_value(index))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
    return number if 0 <= number < 2**63 else number & (2**63 - 1)


def indices_to_key_numbers(indices: list[Any]) -> Sequence[int]:
    """Apply `index_to_key_number` to each index; the result is an array where that is faster."""
    if len(indices) >= VECTORISED_FROM:
        try:
            array = np.asarray(indices)
        except (ValueError, TypeError, OverflowError, RuntimeError):  # an index may be any object
            array = _NOT_INTEGERS
        if array.dtype == np.int64 and array.ndim == 1 and array.min(initial=0) >= 0:
            return array.view(np.uint64)  # type: ignore[return-value]
    return [index if type(index) is int and index >= 0 else index_to_key_number(index) for index in indices]


_NOT_INTEGERS = np.empty(0)


def _index_to_json_value(index: Any) -> Any:
    """Return a sampler's index as what JSON can hold. Raises DataError for an index of another kind."""
    if isinstance(index, (str, int, float, type(None))):
        return index
    if isinstance(index, bytes):
        return ["bytes", index.hex()]
    if isinstance(index, (tuple, list)):
        return [_index_to_json_value(part) for part in index]
    try:
        return operator.index(index)
    except TypeError:
        raise DataError(
            f"The sampler gave {index!r}, a {type(index).__name__}, as the index of a sample.",
            "Random numbers are keyed by the index: give whole numbers, strings, or tuples of them.",
        ) from None


@functools.lru_cache(maxsize=4096)
def _derive_key_words(seed: int, name: str, epoch: int, purpose: str) -> tuple[int, ...]:
    text = json.dumps(["samerun/data", purpose, name, seed, epoch]).encode()
    raw = hashlib.blake2b(text, digest_size=48).digest()
    return tuple(int.from_bytes(raw[at : at + 8], "little") for at in range(0, 48, 8))


# Each mixing function exists twice, for one integer and for arrays (uint64, uint32, which wrap around silently). Both
# must give the same bits: a batch of fewer than VECTORISED_FROM samples has the keys it has in a larger batch.


def splitmix64_finalizer(x: int) -> int:
    """Apply the finalizer of splitmix64: a bijection of 64 bits that maps 0 to 0."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def _murmur3_finalizer(x: int) -> int:
    """Apply the finalizer of MurmurHash3: a bijection of 32 bits."""
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & MASK32
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & MASK32
    return x ^ (x >> 16)


def _mix_key64(key_number: int, repetition: int, first_word: int, second_word: int) -> int:
    inner = splitmix64_finalizer((key_number + first_word) & MASK64)
    return splitmix64_finalizer((inner + second_word + repetition * _GOLDEN) & MASK64)


def _mix_key32(key_number: int, repetition: int, word: int) -> int:
    if repetition or key_number > MASK32:
        word ^= splitmix64_finalizer((repetition * _GOLDEN + (key_number >> 32) * _HIGH) & MASK64)
    inner = _murmur3_finalizer((key_number ^ word) & MASK32)
    return _murmur3_finalizer((inner + (word >> 32)) & MASK32)


_uint64 = np.uint64


def splitmix64_finalizer_array(x: UInt64Array) -> UInt64Array:
    """`splitmix64_finalizer` of an array of uint64."""
    x = (x ^ (x >> _uint64(30))) * _uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _uint64(27))) * _uint64(0x94D049BB133111EB)
    mixed: UInt64Array = x ^ (x >> _uint64(31))
    return mixed


def _murmur3_finalizer_array(x: UInt32Array) -> UInt32Array:
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    mixed: UInt32Array = x ^ (x >> np.uint32(16))
    return mixed


def _mix_key64_array(
    key_numbers: UInt64Array, repetitions: Sequence[int] | None, first_word: int, second_word: int
) -> UInt64Array:
    inner = splitmix64_finalizer_array(key_numbers + _uint64(first_word)) + _uint64(second_word)
    if repetitions is not None:
        inner = inner + np.asarray(repetitions, dtype=np.uint64) * _uint64(_GOLDEN)
    return splitmix64_finalizer_array(inner)


def _mix_key32_salts(key_numbers: UInt64Array, repetitions: Sequence[int] | None) -> UInt64Array | None:
    """Return what is mixed into a 32-bit key besides the low half of the number; None where it would be 0."""
    if repetitions is None and int(key_numbers.max(initial=0)) <= MASK32:
        return None
    salt = (key_numbers >> _uint64(32)) * _uint64(_HIGH)
    if repetitions is not None:
        salt = salt + np.asarray(repetitions, dtype=np.uint64) * _uint64(_GOLDEN)
    return splitmix64_finalizer_array(salt)


def _mix_low32_of_keys_array(key_numbers: UInt64Array, salts: UInt64Array | None, word: int) -> UInt32Array:
    if salts is None:
        low, high = np.uint32(word & MASK32), np.uint32(word >> 32)
    else:
        words = salts ^ _uint64(word)
        low, high = words.astype(np.uint32), (words >> _uint64(32)).astype(np.uint32)
    return _murmur3_finalizer_array(_murmur3_finalizer_array(key_numbers.astype(np.uint32) ^ low) + high)
