"""Sample orders as pure functions of (seed, epoch, position): the `Order` base class, `Sequential` and `Shuffle`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from samerun.base.errors import DataError
from samerun.control.random_source import validate_seed
from samerun.control.rng.seeding import seed_in_force
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

    def at(self, positions: Any, *, epoch: int, seed: int) -> Any:
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

    def at(self, positions: Any, *, epoch: int, seed: int) -> Any:
        return positions


def _require_length(length: Any, call: str) -> int:
    """Return a number of samples as an int. Raises DataError, naming the class called, unless it is in [0, 2**62]."""
    if isinstance(length, bool) or not isinstance(length, Integral):
        raise DataError(f"{call}({length!r}): the number of samples is a whole number, not a {type(length).__name__}.")
    if not 0 <= int(length) <= 2**62:
        raise DataError(f"{call}({length}): the number of samples is from 0 to 2**62.")
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

    def at(self, positions: Any, *, epoch: int, seed: int) -> Any:
        return permute_positions(positions, self.length, self.key(epoch, seed))

    def position_of(self, index: int) -> int:
        """Return the position of a sample in the current epoch. Raises IndexError if there is no such sample."""
        if not 0 <= index < self.length:
            raise IndexError(f"sample {index} of an order of {self.length} samples")
        key = self.key(self.epoch, self.seed_for())
        return int(invert_permutation(np.array([index], dtype=np.uint64), self.length, key)[0])
