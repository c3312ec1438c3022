"""From (seed, name, epoch, sample, repetition) to the numbers that the generators are started from.

The derivation is a promise: the same five give the same numbers in every version of samerun.

NumPy and torch start a Mersenne Twister from 32 bits, by the same rule. So each gets bits of its own, and
within an epoch they are a bijection of the sample's number: no two of the first 2**32 samples share a stream.
Python takes 64 bits.
"""

from __future__ import annotations

import functools
import hashlib
import json
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from samerun.base.errors import DataError

MASK32 = 2**32 - 1
MASK64 = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_HIGH = 0xD1B54A32D192ED03
VECTORISED_FROM = 12
"""With fewer samples at once, Python's own whole numbers are faster than NumPy's arrays."""


class Keys(NamedTuple):
    """What the generators are started from, for each sample; None for those that are not keyed."""

    python: Sequence[int] | None
    numpy: Sequence[int] | None
    torch: Sequence[int] | None


class KeyArrays(NamedTuple):
    """The same as arrays: of uint64 for Python, of uint32 for NumPy and torch."""

    python: Any
    numpy: Any
    torch: Any


@dataclass(frozen=True)
class Realm:
    """All that a key depends on but the sample: the run's seed, the loader's name, the epoch, and what for."""

    seed: int
    name: str
    epoch: int
    what: str = "sample"

    def keys(self, numbers: Sequence[int], repetitions: Sequence[int] | None, kinds: frozenset[str]) -> Keys:
        """The keys of samples, all at once. numbers: from 0 to 2**63-1, see `number_of`."""
        if len(numbers) >= VECTORISED_FROM:
            arrays = self.arrays(numbers, repetitions, kinds)
            return Keys(*(None if column is None else column.tolist() for column in arrays))
        words = self._words()
        pairs = list(zip(numbers, repetitions or [0] * len(numbers), strict=True))
        return Keys(
            [_key64(n, r, words[0], words[1]) for n, r in pairs] if "python" in kinds else None,
            [_key32(n, r, words[2]) for n, r in pairs] if "numpy" in kinds else None,
            [_key32(n, r, words[3]) for n, r in pairs] if "torch" in kinds else None,
        )

    def arrays(self, numbers: Sequence[int], repetitions: Sequence[int] | None, kinds: frozenset[str]) -> KeyArrays:
        """The same as `keys`, as arrays."""
        if len(numbers) < VECTORISED_FROM:
            keys = self.keys(numbers, repetitions, kinds)
            widths = (np.uint64, np.uint32, np.uint32)
            return KeyArrays(*(None if c is None else np.array(c, w) for c, w in zip(keys, widths, strict=True)))
        words = self._words()
        array = np.asarray(numbers, dtype=np.uint64)
        salt = _salts(array, repetitions)
        return KeyArrays(
            _keys64(array, repetitions, words[0], words[1]) if "python" in kinds else None,
            _keys32(array, salt, words[2]) if "numpy" in kinds else None,
            _keys32(array, salt, words[3]) if "torch" in kinds else None,
        )

    def key64(self, number: int, repetition: int) -> int:
        """64 bits for one sample, for what is neither Python's, NumPy's nor torch's generator."""
        words = self._words()
        return _key64(number, repetition, words[4], words[5])

    def _words(self) -> tuple[int, ...]:
        return _words(self.seed, self.name, self.epoch, self.what)


def number_of(index: Any) -> int:
    """The number by which a dataset's index goes into keys: itself if it is a whole number.

    Taken too: strings, bytes, and tuples of all these. Raises DataError for others: their text may hold an
    address, and then no two runs are alike.
    """
    try:
        number = operator.index(index)
    except TypeError:
        text = json.dumps(_plain(index))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
    return number if 0 <= number < 2**63 else number & (2**63 - 1)


def numbers_of(indices: list[Any]) -> Sequence[int]:
    """`number_of` each; an array where that is quicker."""
    if len(indices) >= VECTORISED_FROM:
        try:
            array = np.asarray(indices)
        except (ValueError, TypeError, OverflowError, RuntimeError):  # all kinds of things may be an index
            array = _NONE
        if array.dtype == np.int64 and array.ndim == 1 and array.min(initial=0) >= 0:
            return array.view(np.uint64)  # type: ignore[return-value]
    return [index if type(index) is int and index >= 0 else number_of(index) for index in indices]


_NONE = np.empty(0)


def _plain(index: Any) -> Any:
    if isinstance(index, (str, int, float, type(None))):
        return index
    if isinstance(index, bytes):
        return ["bytes", index.hex()]
    if isinstance(index, (tuple, list)):
        return [_plain(part) for part in index]
    try:
        return operator.index(index)
    except TypeError:
        raise DataError(
            f"The sampler gave {index!r}, a {type(index).__name__}, as the index of a sample.",
            "Random numbers are keyed by the index: give whole numbers, strings, or tuples of them.",
        ) from None


@functools.lru_cache(maxsize=4096)
def _words(seed: int, name: str, epoch: int, what: str) -> tuple[int, ...]:
    text = json.dumps(["samerun/data", what, name, seed, epoch]).encode()
    raw = hashlib.blake2b(text, digest_size=48).digest()
    return tuple(int.from_bytes(raw[at : at + 8], "little") for at in range(0, 48, 8))


# The same twice: for one number, and for arrays of them (uint64, uint32; NumPy wraps around silently).


def mix64(x: int) -> int:
    """The finaliser of splitmix64: a bijection of 64 bits that keeps 0."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def _mix32(x: int) -> int:
    """The finaliser of MurmurHash3: a bijection of 32 bits."""
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & MASK32
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & MASK32
    return x ^ (x >> 16)


def _key64(number: int, repetition: int, first: int, second: int) -> int:
    inner = mix64((number + first) & MASK64)
    return mix64((inner + second + repetition * _GOLDEN) & MASK64)


def _key32(number: int, repetition: int, word: int) -> int:
    if repetition or number > MASK32:
        word ^= mix64((repetition * _GOLDEN + (number >> 32) * _HIGH) & MASK64)
    inner = _mix32((number ^ word) & MASK32)
    return _mix32((inner + (word >> 32)) & MASK32)


_U = np.uint64


def mix64_array(x: Any) -> Any:
    """`mix64` of an array of uint64."""
    x = (x ^ (x >> _U(30))) * _U(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _U(27))) * _U(0x94D049BB133111EB)
    return x ^ (x >> _U(31))


def _mix32_array(x: Any) -> Any:
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def _keys64(numbers: Any, repetitions: Sequence[int] | None, first: int, second: int) -> Any:
    inner = mix64_array(numbers + _U(first)) + _U(second)
    if repetitions is not None:
        inner = inner + np.asarray(repetitions, dtype=np.uint64) * _U(_GOLDEN)
    return mix64_array(inner)


def _salts(numbers: Any, repetitions: Sequence[int] | None) -> Any:
    """What is mixed into a key of 32 bits beside the low half of the number; None where that is nothing."""
    if repetitions is None and int(numbers.max(initial=0)) <= MASK32:
        return None
    salt = (numbers >> _U(32)) * _U(_HIGH)
    if repetitions is not None:
        salt = salt + np.asarray(repetitions, dtype=np.uint64) * _U(_GOLDEN)
    return mix64_array(salt)


def _keys32(numbers: Any, salt: Any, word: int) -> Any:
    if salt is None:
        low, high = np.uint32(word & MASK32), np.uint32(word >> 32)
    else:
        words = salt ^ _U(word)
        low, high = words.astype(np.uint32), (words >> _U(32)).astype(np.uint32)
    return _mix32_array(_mix32_array(numbers.astype(np.uint32) ^ low) + high)
