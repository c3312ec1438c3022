"""Load the batches of an iterable dataset's shards, each sample with generators started from its own key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch.utils.data import get_worker_info
from torch.utils.data._utils import worker as torch_worker

from samerun.base.errors import DataError
from samerun.data.generators import Section
from samerun.data.keys import Realm
from samerun.data.own_generators import OwnGenerators
from samerun.data.plain_samples import DRAW_NOTHING
from samerun.data.task import Loaded, ShardTask
from samerun.data.unkeyed import Unkeyed

_looked = False


class _ShardInfo(torch_worker.WorkerInfo):  # type: ignore[misc, unused-ignore]
    """What `get_worker_info()` gives to a dataset: its shard in the place of the worker."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name in ("id", "num_workers"):
            global _looked
            _looked = True
        return super().__getattribute__(name)


@dataclass
class _Open:
    """A shard that is being read. held: a sample read ahead, to learn whether the dataset shards itself."""

    samples: Iterator[Any]
    position: int = 0
    batches: int = 0


class KeyedStream:
    """Stands before an iterable dataset: torch's machinery asks it for tasks, and gets whole batches."""

    def __init__(
        self,
        dataset: Any,
        collate: Callable[[Any], Any],
        kinds: frozenset[str],
        name: str,
        *,
        batch_size: int | None,
        drop_last: bool,
        shards: int,
        world: int,
    ) -> None:
        self.dataset, self.collate, self.kinds, self.name = dataset, collate, kinds, name
        self.batch_size, self.drop_last, self.shards, self.world = batch_size, drop_last, shards, world
        self._turn: tuple[int, int, int] | None = None
        self._open: dict[int, _Open] = {}
        self._own: OwnGenerators | None = None
        self._unkeyed = Unkeyed(kinds)

    def __getitem__(self, task: ShardTask) -> Any:
        if task.shard is None:
            return Loaded(None, empty=True)
        if self._turn != (task.seed, task.epoch, task.turn):
            self._turn, self._open = (task.seed, task.epoch, task.turn), {}
        if self._own is None:
            self._own = OwnGenerators({"dataset": self.dataset, "collate_fn": self.collate})
        self._own.before()
        self._unkeyed.before()
        with Section(task.seed, self.kinds, restore=get_worker_info() is None) as section:
            loaded = self._load(section, task, task.shard)
            self._unkeyed.after()
        loaded.notes = self._own.after()
        return loaded

    def _load(self, section: Section, task: ShardTask, shard: int) -> Loaded:
        info = self._info(shard, task)
        one = self._open.get(shard)
        if one is None:
            one = self._open[shard] = self._begin(section, task, shard, info)
            while one.position < task.skip and self._next(section, task, shard, one, info) is not _END:
                pass
        wanted = self.batch_size or 1
        samples: list[Any] = []
        while len(samples) < wanted:
            sample = self._next(section, task, shard, one, info)
            if sample is _END:
                break
            samples.append(sample)
        ended, count = len(samples) < wanted, len(samples)
        if not samples or (ended and self.drop_last):
            return Loaded(None, shard=shard, count=count, empty=True, ended=True)
        if self.collate not in DRAW_NOTHING:
            section.start(self._realm(task, shard, "batch"), one.position - count)
        data = self.collate(samples[0] if self.batch_size is None else samples)
        return Loaded(data, shard=shard, count=count, ended=ended)

    def _begin(self, section: Section, task: ShardTask, shard: int, info: Any) -> _Open:
        """Open a shard. A dataset that never asks which worker it is in would come whole from every one."""
        global _looked
        _looked = False
        section.start(self._realm(task, shard, "shard"), 0)
        with _standing_for(info):
            samples = iter(self.dataset)
            section.start(self._realm(task, shard), 0)
            first = next(samples, _END)
        if not _looked and self.shards > 1:
            if self.world > 1:
                raise DataError(
                    f"{type(self.dataset).__name__} does not ask get_worker_info() which part of the data it is to"
                    f" give, so it cannot be shared out to {self.world} ranks.",
                    "Give in __iter__ each info.num_workers-th sample from info.id on, or leave out shard=.",
                )
            if shard:
                return _Open(iter(()))
        return _Open(_with_first(first, samples))

    def _next(self, section: Section, task: ShardTask, shard: int, one: _Open, info: Any) -> Any:
        if one.position:  # the first is read already
            section.start(self._realm(task, shard), one.position)
        with _standing_for(info):
            sample = next(one.samples, _END)
        if sample is not _END:
            one.position += 1
        return sample

    def _realm(self, task: ShardTask, shard: int, what: str = "sample") -> Realm:
        return Realm(task.seed, self.name, task.epoch, f"{what} of shard {shard} of {self.shards}")

    def _info(self, shard: int, task: ShardTask) -> Any:
        seed = self._realm(task, shard, "seed").key64(0, 0) >> 1
        return _ShardInfo(id=shard, num_workers=self.shards, seed=seed, dataset=self.dataset)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_own": None, "_open": {}, "_turn": None}


_END = object()


def _with_first(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    if first is not _END:
        yield first
        yield from rest


@contextmanager
def _standing_for(info: Any) -> Iterator[None]:
    before = torch_worker._worker_info
    torch_worker._worker_info = info
    try:
        yield
    finally:
        torch_worker._worker_info = before
