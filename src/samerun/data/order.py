"""Sample orders, each a pure function of (seed, epoch, position): sequential, shuffled, grouped by length, weighted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from numbers import Integral
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from samerun.base.errors import DataError
from samerun.control.random_source import validate_seed
from samerun.control.rng.seeding import seed_in_force
from samerun.data.keys import UInt64Array, splitmix64_finalizer_array
from samerun.data.permutation import invert_permutation, permute_positions

_CHUNK_LENGTH = 4096


class Order(Sampler[int]):
    """The order of an epoch: `len(order)` positions; `order[position]` is the index of the sample at that position.

    It is also a sampler: torch's DataLoader accepts it and iterates over the epoch that `set_epoch` named (0 at
    first). `samerun.data.DataLoader` accepts it as `sampler=`, counts epochs itself, and resumes at any position.

    seed: an integer from 0 to 2**64-1. None: the loader's seed, else the one in force (`seed_everything`).
    name: orders with different names are independent.
    """

    repeats = False
    """Whether a sample can occur more than once in an epoch."""

    def __init__(self, length: int, *, seed: int | None, name: str) -> None:
        self.length = _require_length(length, type(self).__name__)
        self.seed = None if seed is None else validate_seed(seed, type(self).__name__)
        self.name = name
        self.epoch = 0
        self.requested_epoch: int | None = None
        """The epoch passed to `set_epoch`, until a loader picks it up."""
        self.loader_seed_ref: Callable[[], Callable[[], int] | None] | None = None
        """Returns the loader's seed, for code that iterates over `loader.sampler` directly (accelerate does).

        Weak, because the loader holds the order: a strong reference would keep both alive until a full collection.
        """

    def at(self, positions: UInt64Array, *, epoch: int, seed: int) -> UInt64Array:
        """Return the sample indices at `positions` (both uint64 arrays; positions are below `len(self)`)."""
        raise NotImplementedError

    def describe(self) -> str:
        """Describe everything but seed and epoch that the order depends on; stored in a loader's state and compared."""
        return f"{type(self).__name__}({self.length}{self.describe_seed()})"

    def describe_seed(self) -> str:
        """Return the part of `describe()` for a seed of its own; empty if the seed comes from elsewhere."""
        return "" if self.seed is None else f", seed={self.seed}"

    def size(self) -> int:
        """Return how many samples the dataset must have."""
        return self.length

    def set_epoch(self, epoch: int) -> None:
        """Continue with this epoch. Raises DataError unless it is a non-negative integer."""
        if isinstance(epoch, bool) or not isinstance(epoch, Integral) or epoch < 0:
            raise DataError(f"set_epoch({epoch!r}): an epoch is a whole number from 0.")
        self.epoch = self.requested_epoch = int(epoch)

    def seed_for(self, loader_seed: int | None = None) -> int:
        """Return the seed in use: its own, the loader's, or the one in force. Raises DataError if there is none."""
        if loader_seed is None and self.loader_seed_ref is not None:
            of_loader = self.loader_seed_ref()
            loader_seed = None if of_loader is None else of_loader()
        for seed in (self.seed, loader_seed, seed_in_force()):
            if seed is not None:
                return seed
        hint = "Call seed_everything(seed) first, or pass one: seed=0."
        raise DataError(f"{type(self).__name__}: no seed is in force.", hint)

    def key(self, epoch: int, seed: int) -> bytes:
        """Return a key that differs for every seed, epoch, name and class of order."""
        return json.dumps(["samerun/order", type(self).__name__, self.name, seed, epoch]).encode()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "loader_seed_ref": None}

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, position: int) -> int:
        number = int(position) + (self.length if position < 0 else 0)
        if not 0 <= number < self.length:
            raise IndexError(f"position {position} of an order of {self.length} samples")
        return int(self.at(np.array([number], dtype=np.uint64), epoch=self.epoch, seed=self.seed_for())[0])

    def __iter__(self) -> Iterator[int]:
        epoch, seed = self.epoch, self.seed_for()
        for begin in range(0, self.length, _CHUNK_LENGTH):
            positions = np.arange(begin, min(begin + _CHUNK_LENGTH, self.length), dtype=np.uint64)
            yield from self.at(positions, epoch=epoch, seed=seed).tolist()


class Sequential(Order):
    """0, 1, 2, ...: the same in every epoch."""

    def __init__(self, n: int) -> None:
        super().__init__(n, seed=None, name="")

    def seed_for(self, loader_seed: int | None = None) -> int:
        return 0

    def at(self, positions: UInt64Array, *, epoch: int, seed: int) -> UInt64Array:
        return positions


def _require_length(length: Any, class_name: str) -> int:
    """Return a number of samples as an int. Raises DataError, naming the class called, unless it is in [0, 2**62]."""
    if isinstance(length, bool) or not isinstance(length, Integral):
        raise DataError(
            f"{class_name}({length!r}): the number of samples is a whole number, not a {type(length).__name__}."
        )
    if not 0 <= int(length) <= 2**62:
        raise DataError(f"{class_name}({length}): the number of samples is from 0 to 2**62.")
    return int(length)


class Shuffle(Order):
    """A permutation of 0..n-1 for each epoch, computed per position: no memory, any position at once.

        order = samerun.data.Shuffle(10**12, seed=1)
        order[7]                      # the index of the eighth sample of epoch 0
        order.position_of(order[7])   # 7
        DataLoader(dataset, sampler=samerun.data.Shuffle(len(dataset), seed=1))

    n: from 0 to 2**62. seed, name: see `Order`. The order depends on (seed, name, epoch) only: not on ranks,
    workers, other random draws, nor the version of samerun, NumPy or torch.

    Raises DataError if n is not an integer in [0, 2**62], and SeedError for an invalid seed.
    """

    def __init__(self, n: int, seed: int | None = None, *, name: str = "data") -> None:
        super().__init__(n, seed=seed, name=name)

    def at(self, positions: UInt64Array, *, epoch: int, seed: int) -> UInt64Array:
        return permute_positions(positions, self.length, self.key(epoch, seed))

    def position_of(self, index: int) -> int:
        """Return the position of a sample in the current epoch. Raises IndexError if there is no such sample."""
        if not 0 <= index < self.length:
            raise IndexError(f"sample {index} of an order of {self.length} samples")
        key = self.key(self.epoch, self.seed_for())
        return int(invert_permutation(np.array([index], dtype=np.uint64), self.length, key)[0])


class GroupedByLength(Order):
    """A shuffle cut into windows; within a window the longest samples come first.

        DataLoader(dataset, batch_size=32, sampler=samerun.data.GroupedByLength(lengths, window=32 * 50, seed=1))

    lengths: one integer per sample. window: how many samples are sorted together, at least 1; 50 batches are
    usual (batch size times ranks times 50). The window is part of the order, the batch size is not: with the
    same window, every batch size and every number of ranks sees the same order. Samples of equal length keep
    their shuffled order.

    Memory: 8 bytes per sample. Computing one position sorts its window.

    Raises DataError unless lengths is a list of integers and window is a positive integer.
    """

    def __init__(
        self, lengths: Sequence[int] | Any, window: int, *, seed: int | None = None, name: str = "data"
    ) -> None:
        try:
            self.lengths = np.array(lengths, dtype=np.int64)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(f"GroupedByLength(): the lengths are not a list of integers: {error}.") from error
        if self.lengths.ndim != 1:
            shape = self.lengths.shape
            raise DataError(f"GroupedByLength(): the lengths are one number per sample; their shape is {shape}.")
        if isinstance(window, bool) or not isinstance(window, int) or window < 1:
            raise DataError(f"GroupedByLength(window={window!r}): a window is a whole number from 1.")
        super().__init__(self.lengths.size, seed=seed, name=name)
        self.window = window

    def at(self, positions: UInt64Array, *, epoch: int, seed: int) -> UInt64Array:
        key = self.key(epoch, seed)
        # A window is a range of positions of the plain shuffle, so it can be computed without the windows before it.
        windows = positions // np.uint64(self.window)
        out = np.empty_like(positions)
        for number in np.unique(windows).tolist():
            here = windows == np.uint64(number)
            begin = number * self.window
            inside = np.arange(begin, min(begin + self.window, self.length), dtype=np.uint64)
            members = permute_positions(inside, self.length, key)
            ordered = members[np.argsort(-self.lengths[members.astype(np.int64)], kind="stable")]
            out[here] = ordered[(positions[here] - np.uint64(begin)).astype(np.int64)]
        return out

    def describe(self) -> str:
        digest = hashlib.blake2b(self.lengths.tobytes(), digest_size=8).hexdigest()
        return f"GroupedByLength({self.length}, window={self.window}, lengths {digest}{self.describe_seed()})"


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

    def at(self, positions: UInt64Array, *, epoch: int, seed: int) -> UInt64Array:
        key = self.key(epoch, seed)
        if not self.replacement:
            drawn: UInt64Array = self._drawn(key)[positions.astype(np.int64)]
            return drawn
        # Rounding can lift a point to the total itself, behind the last weight: clamp to the last nonzero weight, so
        # that a weight of 0 at the end is never drawn.
        points = _hash_to_uniform(positions, key) * self._total[-1]
        found = np.searchsorted(self._total, points, side="right")
        last = int(np.flatnonzero(self.weights)[-1])
        indices: UInt64Array = np.minimum(found, last).astype(np.uint64)
        return indices

    def describe(self) -> str:
        digest = hashlib.blake2b(self.weights.tobytes(), digest_size=8).hexdigest()
        kind = f"replacement={self.replacement}, weights {digest}{self.describe_seed()}"
        return f"Weighted({self.length} of {self.weights.size}, {kind})"

    def size(self) -> int:
        return int(self.weights.size)

    def _draw_without_replacement(self, key: bytes) -> UInt64Array:
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


def _hash_to_uniform(numbers: UInt64Array, key: bytes) -> np.ndarray[Any, Any]:
    """Return a float64 in [0, 1) with 53 random bits for each of `numbers`."""
    raw = hashlib.blake2b(key, digest_size=16).digest()
    first, second = (_uint64(int.from_bytes(raw[at : at + 8], "little")) for at in (0, 8))
    with np.errstate(over="ignore"):
        bits: Any = splitmix64_finalizer_array(splitmix64_finalizer_array(numbers + first) + second) >> _uint64(11)
        uniform: np.ndarray[Any, Any] = bits.astype(np.float64) * 2.0**-53
    return uniform


def _validate_weights(weights: Any) -> np.ndarray[Any, Any]:
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
