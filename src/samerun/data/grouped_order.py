"""An order that groups samples of similar length, so that batches need little padding, and still shuffles."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from samerun.base.errors import DataError
from samerun.data.order import Order
from samerun.data.permutation import permute_positions


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

    def at(self, positions: Any, *, epoch: int, seed: int) -> Any:
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
