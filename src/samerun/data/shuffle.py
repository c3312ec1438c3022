"""Every sample once, in an order that is another one in every epoch."""

from __future__ import annotations

from typing import Any

import numpy as np

from samerun.data.order import Order
from samerun.data.permutation import permuted, unpermuted


class Shuffle(Order):
    """A permutation of 0..n-1 for each epoch, as a function: no memory, any position at once.

        order = samerun.data.Shuffle(10**12, seed=1)
        order[7]                      # the index of the eighth sample of epoch 0
        order.position_of(order[7])   # 7
        DataLoader(dataset, sampler=samerun.data.Shuffle(len(dataset), seed=1))

    n: from 0 to 2**62. seed, name: see `Order`. The order depends on (seed, name, epoch) alone: not on ranks,
    workers, what else is drawn, nor on the release of samerun, NumPy or torch.

    Raises DataError for an n that is none, SeedError for a seed that is none.
    """

    def __init__(self, n: int, seed: int | None = None, *, name: str = "data") -> None:
        super().__init__(n, seed=seed, name=name)

    def at(self, positions: Any, *, epoch: int, seed: int) -> Any:
        return permuted(positions, self.length, self.key(epoch, seed))

    def position_of(self, index: int) -> int:
        """The position of a sample in the present epoch. Raises IndexError if there is no such sample."""
        if not 0 <= index < self.length:
            raise IndexError(f"sample {index} of an order of {self.length} samples")
        key = self.key(self.epoch, self.seed_for())
        return int(unpermuted(np.array([index], dtype=np.uint64), self.length, key)[0])
