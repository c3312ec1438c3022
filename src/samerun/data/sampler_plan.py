"""The tasks of an epoch whose order a sampler of the user's gives: torch's samplers, or one of his own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from samerun.base.errors import DataError
from samerun.control.rng.snapshot import RNGSnapshot, restore_snapshot, take_snapshot
from samerun.data.generators import KINDS, Section
from samerun.data.keys import Realm
from samerun.data.progress import Progress
from samerun.data.task import Task

_DRAW_AT_ONCE = (RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)
"""Those of torch draw from global generators when they are asked for their first index, if at all."""


def tasks_of_sampler(
    sampler: Any, progress: Progress, batch_size: int | None, drop_last: bool, name: str
) -> Iterator[Task]:
    """The tasks from `progress` on, of a sampler that gives one index after the other."""
    seen, size = 0, batch_size or 1
    again = _Repetitions(sampler)
    indices: list[Any] = []
    repetitions: list[int] = []
    for index in _drawn(sampler, progress, name):
        repetition = again.of(index)
        seen += 1
        if seen <= progress.begin:
            continue
        indices.append(index)
        repetitions.append(repetition)
        if len(indices) == size:
            yield _task(progress, indices, repetitions, seen, batch_size is None)
            indices, repetitions = [], []
    if seen < progress.begin:
        raise _too_short(progress.begin, f"samples, and the sampler gives {seen}")
    if indices and not drop_last:
        yield _task(progress, indices, repetitions, seen, False)


def tasks_of_batches(sampler: Any, progress: Progress, name: str) -> Iterator[Task]:
    """The tasks from `progress` on, of a sampler that gives lists of indices."""
    seen, batches = 0, 0
    again = _Repetitions(getattr(sampler, "sampler", sampler) if isinstance(sampler, BatchSampler) else sampler)
    for batch in _drawn(sampler, progress, name):
        indices = list(batch)
        repetitions = [again.of(index) for index in indices]
        seen, batches = seen + len(indices), batches + 1
        if batches > progress.begin_batches:
            yield _task(progress, indices, repetitions, seen, False)
    if batches < progress.begin_batches:
        raise _too_short(progress.begin_batches, f"batches, and the sampler gives {batches}")


def _task(progress: Progress, indices: list[Any], repetitions: list[int], seen: int, alone: bool) -> Task:
    counted = repetitions if any(repetitions) else None
    return Task(progress.seed, progress.epoch, indices, counted, seen - len(indices), seen, alone)


class _Repetitions:
    """Counts how often each sample has come, where a sampler may give one twice."""

    def __init__(self, sampler: Any) -> None:
        once = isinstance(sampler, (SequentialSampler, SubsetRandomSampler, DistributedSampler))
        once = once or (isinstance(sampler, RandomSampler) and not sampler.replacement)
        self._seen: dict[Any, int] | None = None if once else {}

    def of(self, index: Any) -> int:
        if self._seen is None:
            return 0
        key = index if isinstance(index, int) else repr(index)
        before = self._seen.get(key, 0)
        self._seen[key] = before + 1
        return before


def _drawn(sampler: Any, progress: Progress, name: str) -> Iterator[Any]:
    """What the sampler gives, drawn from streams that the epoch names: those of the program do not move."""
    inner = getattr(sampler, "sampler", None) if type(sampler) is BatchSampler else sampler
    at_once = type(inner) in _DRAW_AT_ONCE
    inside: RNGSnapshot | None = None
    with Section(progress.seed, KINDS, restore=True) as section:
        section.start(Realm(progress.seed, name, progress.epoch, "sampler"), 0)
        items = iter(sampler)
        first = next(items, _END)
        inside = None if at_once else take_snapshot(start_devices=False)
    item = first
    while item is not _END:
        yield item
        if inside is None:
            item = next(items, _END)
            continue
        outside = take_snapshot(start_devices=False)
        try:
            restore_snapshot(inside)
            item = next(items, _END)
            inside = take_snapshot(start_devices=False)
        finally:
            restore_snapshot(outside)


_END = object()


def _too_short(begin: int, what: str) -> DataError:
    return DataError(
        f"The loader's state stands behind {begin} {what}.",
        "The sampler must give the same samples as in the run that saved the state.",
    )
