"""In which order samples come: a pure function of (seed, epoch, position), asked for any position."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from samerun.base.errors import DataError
from samerun.control.rng.seeding import seed_in_force
from samerun.control.seed_derivation import validate_seed

_CHUNK = 4096


class Order(Sampler[int]):
    """The order of an epoch: `len(order)` positions, `order[position]` the index of the sample there.

    A sampler too: torch's DataLoader takes it, and iterates the epoch that `set_epoch` named, 0 at first.
    `samerun.data.DataLoader` takes it as `sampler=`, counts epochs itself, and resumes at any position.

    seed: a whole number from 0 to 2**64-1. None: that of the loader, else the one in force
    (`seed_everything`). name: another name is another order.
    """

    repeats = False
    """Whether a sample can come more than once in an epoch."""

    def __init__(self, length: int, *, seed: int | None, name: str) -> None:
        self.length = _length(length, type(self).__name__)
        self.seed = None if seed is None else validate_seed(seed, type(self).__name__)
        self.name = name
        self.epoch = 0
        self.asked_for: int | None = None
        """The epoch that `set_epoch` named, until a loader has taken notice of it."""
        self.seed_of_loader: Callable[[], Callable[[], int] | None] | None = None
        """A weak reference, for whoever iterates over `loader.sampler` or `loader.batch_sampler` (accelerate does)."""

    def at(self, positions: Any, *, epoch: int, seed: int) -> Any:
        """The indices at these positions. Arrays of uint64, positions below `len(self)`."""
        raise NotImplementedError

    def describe(self) -> str:
        """What decides on the order besides seed and epoch: goes into a loader's state, to be compared."""
        return f"{type(self).__name__}({self.length}{self.own_seed()})"

    def own_seed(self) -> str:
        return "" if self.seed is None else f", seed={self.seed}"

    def size(self) -> int:
        """How many samples the dataset must have."""
        return self.length

    def set_epoch(self, epoch: int) -> None:
        """Go on with this epoch. Raises DataError for anything but a whole number from 0."""
        if isinstance(epoch, bool) or not isinstance(epoch, Integral) or epoch < 0:
            raise DataError(f"set_epoch({epoch!r}): an epoch is a whole number from 0.")
        self.epoch = self.asked_for = int(epoch)

    def seed_for(self, otherwise: int | None = None) -> int:
        """The seed in use. Raises DataError if there is none."""
        if otherwise is None and self.seed_of_loader is not None:
            of_loader = self.seed_of_loader()
            otherwise = None if of_loader is None else of_loader()
        for seed in (self.seed, otherwise, seed_in_force()):
            if seed is not None:
                return seed
        hint = "Call seed_everything(seed) first, or pass one: seed=0."
        raise DataError(f"{type(self).__name__}: no seed is in force.", hint)

    def key(self, epoch: int, seed: int) -> bytes:
        """Different for every seed, epoch, name and class of orders."""
        return json.dumps(["samerun/order", type(self).__name__, self.name, seed, epoch]).encode()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "seed_of_loader": None}

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, position: int) -> int:
        number = int(position) + (self.length if position < 0 else 0)
        if not 0 <= number < self.length:
            raise IndexError(f"position {position} of an order of {self.length} samples")
        return int(self.at(np.array([number], dtype=np.uint64), epoch=self.epoch, seed=self.seed_for())[0])

    def __iter__(self) -> Iterator[int]:
        epoch, seed = self.epoch, self.seed_for()
        for begin in range(0, self.length, _CHUNK):
            positions = np.arange(begin, min(begin + _CHUNK, self.length), dtype=np.uint64)
            yield from self.at(positions, epoch=epoch, seed=seed).tolist()


class Sequential(Order):
    """0, 1, 2, ...: the same in every epoch."""

    def __init__(self, n: int) -> None:
        super().__init__(n, seed=None, name="")

    def seed_for(self, otherwise: int | None = None) -> int:
        return 0

    def at(self, positions: Any, *, epoch: int, seed: int) -> Any:
        return positions


def _length(length: Any, call: str) -> int:
    if isinstance(length, bool) or not isinstance(length, Integral):
        raise DataError(f"{call}({length!r}): the number of samples is a whole number, not a {type(length).__name__}.")
    if not 0 <= int(length) <= 2**62:
        raise DataError(f"{call}({length}): the number of samples is from 0 to 2**62.")
    return int(length)
