"""An order that draws samples with the user's weights."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from samerun.base.errors import DataError
from samerun.data.keys import mix64_array
from samerun.data.order import Order

_uint64 = np.uint64


class Weighted(Order):
    """Draw samples with these weights, with replacement (each position independently) or without.

        DataLoader(dataset, sampler=samerun.data.Weighted(weights, num_samples=10_000, seed=1))

    weights: one non-negative number per sample (list, array or CPU tensor), not all 0. num_samples: how many
    are drawn in an epoch; None: as many as there are weights (without replacement: as there are nonzero weights).
    replacement: True (default): each position is drawn independently, positions can be asked for in any order,
    and a repeated sample gets its own random numbers. False: no sample occurs twice; the whole epoch is computed
    when its first position is asked for, with the logarithms of this machine's NumPy.

    Memory: 8 bytes per weight; without replacement another 8 bytes per sample.

    Raises DataError for weights that are not numbers, negative, infinite or all 0, and if num_samples exceeds
    the number of nonzero weights without replacement.
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
        self.weights = _validate_weights(weights)
        self.replacement = self.repeats = bool(replacement)
        most = self.weights.size if replacement else int(np.count_nonzero(self.weights))
        super().__init__(most if num_samples is None else num_samples, seed=seed, name=name)
        if not replacement and self.length > most:
            raise DataError(
                f"Weighted(num_samples={self.length}, replacement=False): only {most} weights are not 0.",
                "Draw fewer, or with replacement.",
            )
        self._total = np.cumsum(self.weights)
        self._drawn = lru_cache(maxsize=1)(self._draw_without_replacement)

    def at(self, positions: Any, *, epoch: int, seed: int) -> Any:
        key = self.key(epoch, seed)
        if not self.replacement:
            return self._drawn(key)[positions.astype(np.int64)]
        # Rounding can lift a point to the total itself, behind the last weight: clamp to the last nonzero weight, so
        # that a weight of 0 at the end is never drawn.
        points = _hash_to_uniform(positions, key) * self._total[-1]
        found = np.searchsorted(self._total, points, side="right")
        last = int(np.flatnonzero(self.weights)[-1])
        return np.minimum(found, last).astype(np.uint64)

    def describe(self) -> str:
        digest = hashlib.blake2b(self.weights.tobytes(), digest_size=8).hexdigest()
        kind = f"replacement={self.replacement}, weights {digest}{self.describe_seed()}"
        return f"Weighted({self.length} of {self.weights.size}, {kind})"

    def size(self) -> int:
        return int(self.weights.size)

    def _draw_without_replacement(self, key: bytes) -> Any:
        """Draw an exponential waiting time per sample, with its weight as rate, and take the shortest waits.

        This is Efraimidis and Spirakis' reservoir sampling: the same distribution as drawing one by one.
        """
        can = np.flatnonzero(self.weights)
        waits = -np.log1p(-_hash_to_uniform(can.astype(np.uint64), key)) / self.weights[can]
        return can[np.argsort(waits, kind="stable")[: self.length]].astype(np.uint64)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_drawn"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._drawn = lru_cache(maxsize=1)(self._draw_without_replacement)


def _hash_to_uniform(numbers: Any, key: bytes) -> Any:
    """Return a float64 in [0, 1) with 53 random bits for each of `numbers`."""
    raw = hashlib.blake2b(key, digest_size=16).digest()
    first, second = (_uint64(int.from_bytes(raw[at : at + 8], "little")) for at in (0, 8))
    with np.errstate(over="ignore"):
        return (mix64_array(mix64_array(numbers + first) + second) >> _uint64(11)).astype(np.float64) * 2.0**-53


def _validate_weights(weights: Any) -> Any:
    """Return the weights as a float64 array. Raises DataError unless they are finite, non-negative and not all 0."""
    try:
        array = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"Weighted(): the weights are not a list of numbers: {error}.") from error
    if array.ndim != 1 or not array.size:
        raise DataError(f"Weighted(): the weights are one number per sample; their shape is {array.shape}.")
    wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if wrong.size:
        at = int(wrong[0])
        raise DataError(f"Weighted(): weight {at} is {array[at]}: weights are finite and not negative.")
    if not array.any():
        raise DataError("Weighted(): all weights are 0.", "At least one sample must be possible.")
    return array
