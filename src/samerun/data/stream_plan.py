"""The tasks of an iterable dataset: one batch of one shard after the other."""

from __future__ import annotations

from collections.abc import Iterator

from samerun.data.progress import Progress
from samerun.data.task import Loaded, ShardTask


def tasks_of_stream(progress: Progress, own: list[int], num_workers: int) -> Iterator[ShardTask]:
    """Round after round, a batch of every shard of this rank, until all have ended.

    Torch deals tasks to workers in turn, so a shard stays with one worker if a round is a multiple of their
    number: it is filled up with tasks that ask for nothing.
    """
    workers = max(1, num_workers)
    slots: list[int | None] = [*own, *[None] * (-len(own) % workers)]
    skips, states = dict(progress.shards), dict(progress.states)
    begin = own.index(progress.following) if progress.following in own else 0
    while not progress.ended.issuperset(own):
        for slot, shard in enumerate(slots):
            asked = None if shard in progress.ended or slot < begin else shard
            skip = 0 if asked is None else skips.get(asked, 0)
            state = None if asked is None else states.pop(asked, None)  # its first task opens it
            yield ShardTask(progress.seed, progress.epoch, progress.turn, asked, skip, state)
        begin = 0


def arrived(progress: Progress, own: list[int], shard: int, loaded: Loaded) -> None:
    """A batch of `shard` was handed over."""
    progress.shards[shard] = progress.shards.get(shard, 0) + loaded.count
    progress.states.pop(shard, None)
    if loaded.state is not None:
        progress.states[shard] = loaded.state
    if loaded.ended:
        progress.ended.add(shard)
    progress.following = own[(own.index(shard) + 1) % len(own)]
