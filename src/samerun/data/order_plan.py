"""The tasks of an epoch whose order is a function: any position, any number of ranks, at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from samerun.data.order import Order
from samerun.data.progress import Progress
from samerun.data.task import Task

_CHUNK = 1 << 14
"""Positions at a time: the fixed cost of computing them is about 0.5 ms."""

Shard = tuple[int, int]
"""(rank, how many ranks)."""


def tasks_of_order(
    order: Order, progress: Progress, batch_size: int | None, drop_last: bool, shard: Shard
) -> Iterator[Task]:
    """The tasks from `progress` to the end of the epoch, for one rank.

    The global order is one; rank r of w takes positions r, r + w, r + 2w, ... behind what was seen. So the
    batches of all ranks together are a piece of the global order, for every w. At the end the order is filled
    up from its beginning to a multiple of w; with drop_last, what does not fill a batch on every rank is left
    out.
    """
    rank, world = shard
    size = batch_size or 1
    count = samples_of_rank(order.length, progress.begin, size, drop_last, world)
    seed = order.seed_for(progress.seed)
    chunk = max(size, _CHUNK // size * size)
    for begin in range(0, count, chunk):
        inside = np.arange(begin, min(begin + chunk, count), dtype=np.uint64)
        positions = inside * np.uint64(world) + np.uint64(progress.begin + rank)
        indices = order.at(positions % np.uint64(order.length), epoch=progress.epoch, seed=seed).tolist()
        repetitions = None
        if order.repeats:
            repetitions = positions.tolist()
        elif int(positions[-1]) >= order.length:
            repetitions = (positions // np.uint64(order.length)).tolist()
        for at in range(0, len(indices), size):
            own = indices[at : at + size]
            first = progress.begin + world * (begin + at)
            end = min(first + world * len(own), order.length)
            again = None if repetitions is None else repetitions[at : at + size]
            yield Task(progress.seed, progress.epoch, own, again, first + rank, end, batch_size is None)


def samples_of_rank(length: int, seen: int, size: int, drop_last: bool, world: int) -> int:
    """How many samples are still to come on each rank."""
    left = max(0, length - seen)
    return left // (size * world) * size if drop_last else -(-left // world)
