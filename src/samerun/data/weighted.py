"""Samples drawn with probabilities of the user's own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from samerun.base.errors import DataError
from samerun.data.keys import mix64_array
from samerun.data.order import Order

_U = np.uint64


class Weighted(Order):
    """Draw samples with these weights: position by position with replacement, or without.

        DataLoader(dataset, sampler=samerun.data.Weighted(weights, num_samples=10_000, seed=1))

    weights: one number from 0 per sample (list, array or CPU tensor); not all 0. num_samples: how many are
    drawn in an epoch; None: as many as there are weights (without replacement: as there are that are not 0).
    replacement: True (default): each position is drawn by itself, asked for in any order, and a sample that
    comes again gets random numbers of its own. False: no sample twice; the whole epoch is worked out when its
    first position is asked for, and the logarithms in it are those of this machine's NumPy.

    Memory: 8 bytes a weight; without replacement 8 bytes a sample more.

    Raises DataError for weights that are none, negative, infinite or all 0, or too few without replacement.
    """

    def __init__(
        self,
        weights: Sequence[float] | Any,
        num_samples: int | None = None,
        *,
        replacement: bool = True,
        seed: int | None = None,
        name: str = "data",
    ) -> None:
        self.weights = _checked(weights)
        self.replacement = self.repeats = bool(replacement)
        most = self.weights.size if replacement else int(np.count_nonzero(self.weights))
        super().__init__(most if num_samples is None else num_samples, seed=seed, name=name)
        if not replacement and self.length > most:
            raise DataError(
                f"Weighted(num_samples={self.length}, replacement=False): only {most} weights are not 0.",
                "Draw fewer, or with replacement.",
            )
        self._total = np.cumsum(self.weights)
        self._drawn = lru_cache(maxsize=1)(self._without_replacement)

    def at(self, positions: Any, *, epoch: int, seed: int) -> Any:
        key = self.key(epoch, seed)
        if not self.replacement:
            return self._drawn(key)[positions.astype(np.int64)]
        # below the last total, so that no weight of 0 at the end is ever drawn
        points = _uniform(positions, key) * self._total[-1]
        found = np.searchsorted(self._total, points, side="right")
        last = int(np.flatnonzero(self.weights)[-1])
        return np.minimum(found, last).astype(np.uint64)

    def describe(self) -> str:
        digest = hashlib.blake2b(self.weights.tobytes(), digest_size=8).hexdigest()
        kind = f"replacement={self.replacement}, weights {digest}{self.own_seed()}"
        return f"Weighted({self.length} of {self.weights.size}, {kind})"

    def size(self) -> int:
        return int(self.weights.size)

    def _without_replacement(self, key: bytes) -> Any:
        """Each sample waits for an exponential time with its weight as rate: who comes first, comes first."""
        can = np.flatnonzero(self.weights)
        waits = -np.log1p(-_uniform(can.astype(np.uint64), key)) / self.weights[can]
        return can[np.argsort(waits, kind="stable")[: self.length]].astype(np.uint64)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_drawn"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._drawn = lru_cache(maxsize=1)(self._without_replacement)


def _uniform(numbers: Any, key: bytes) -> Any:
    """A number from [0, 1) for each of `numbers`, of 53 bits."""
    raw = hashlib.blake2b(key, digest_size=16).digest()
    first, second = (_U(int.from_bytes(raw[at : at + 8], "little")) for at in (0, 8))
    with np.errstate(over="ignore"):
        return (mix64_array(mix64_array(numbers + first) + second) >> _U(11)).astype(np.float64) * 2.0**-53


def _checked(weights: Any) -> Any:
    try:
        array = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"Weighted(): the weights are no list of numbers: {error}.") from error
    if array.ndim != 1 or not array.size:
        raise DataError(f"Weighted(): the weights are one number per sample; their shape is {array.shape}.")
    wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if wrong.size:
        at = int(wrong[0])
        raise DataError(f"Weighted(): weight {at} is {array[at]}: weights are finite and not negative.")
    if not array.any():
        raise DataError("Weighted(): all weights are 0.", "At least one sample must be possible.")
    return array
