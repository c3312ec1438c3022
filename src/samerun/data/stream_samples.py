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
from samerun.data.passing import Passing
from samerun.data.plain_samples import DRAW_NOTHING
from samerun.data.stream_state import opened, own_dataset, state_now
from samerun.data.task import Loaded, ShardTask
from samerun.data.unkeyed import Unkeyed

_AT_ONCE = 256
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
    """A shard that is being read. dataset: the one that it is read from. position: of the next sample."""

    samples: Iterator[Any]
    dataset: Any
    position: int = 0


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
        with _standing_for(self._info(shard, task)):
            one = self._open.get(shard)
            if one is None:
                one = self._open[shard] = self._begin(section, task, shard)
                self._pass_over(section, task, shard, one)
            wanted = self.batch_size or 1
            samples = self._read(section, task, shard, one, wanted)
        ended, count = len(samples) < wanted, len(samples)
        if not samples or (ended and self.drop_last):
            return Loaded(None, shard=shard, count=count, empty=True, ended=True)
        state = None if ended else state_now(one.samples, one.dataset)
        if self.collate not in DRAW_NOTHING:
            section.start(self._realm(task, shard, "batch"), one.position - count)
        data = self.collate(samples[0] if self.batch_size is None else samples)
        return Loaded(data, shard=shard, count=count, ended=ended, state=state)

    def _begin(self, section: Section, task: ShardTask, shard: int) -> _Open:
        """Open a shard. A dataset that never asks which worker it is in would come whole from every one."""
        global _looked
        _looked = False
        dataset = own_dataset(self.dataset, self.shards)
        section.start(self._realm(task, shard, "shard"), 0)
        samples = opened(dataset, task.state)
        if task.state is not None:
            return _Open(samples, dataset, task.skip)
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
                return _Open(iter(()), None)
        return _Open(_First(first, samples), dataset)

    def _pass_over(self, section: Section, task: ShardTask, shard: int, one: _Open) -> None:
        """Read up to where the loader's state stands. The samples draw on the way: that may decide what comes."""
        said = Passing(f"part {shard + 1} of {self.shards} of {type(self.dataset).__name__}", task.skip)
        while one.position < task.skip:
            wanted = min(_AT_ONCE, task.skip - one.position)
            if len(self._read(section, task, shard, one, wanted)) < wanted:
                raise DataError(
                    f"The loader's state stands behind {task.skip} samples of part {shard + 1} of {self.shards}, and"
                    f" {type(self.dataset).__name__} gives {one.position}.",
                    "It must give the same samples as in the run that saved the state.",
                )
            said.at(one.position)

    def _read(self, section: Section, task: ShardTask, shard: int, one: _Open, wanted: int) -> list[Any]:
        """The next samples; fewer at the end."""
        numbers, samples = range(one.position, one.position + wanted), list[Any]()
        try:
            section.load(self._realm(task, shard), numbers, None, lambda _: next(one.samples), numbers, samples)
        except StopIteration:
            pass
        finally:
            one.position += len(samples)
        return samples

    def _realm(self, task: ShardTask, shard: int, what: str = "sample") -> Realm:
        return Realm(task.seed, self.name, task.epoch, f"{what} of shard {shard} of {self.shards}")

    def _info(self, shard: int, task: ShardTask) -> Any:
        seed = self._realm(task, shard, "seed").key64(0, 0) >> 1
        return _ShardInfo(id=shard, num_workers=self.shards, seed=seed, dataset=self.dataset)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_own": None, "_open": {}, "_turn": None}


_END, _GIVEN = object(), object()


class _First:
    """Gives a sample that was read ahead, and then the rest."""

    def __init__(self, first: Any, rest: Iterator[Any]) -> None:
        self.first, self.rest = first, rest

    def __iter__(self) -> _First:
        return self

    def __next__(self) -> Any:
        if self.first is _GIVEN:
            return next(self.rest)
        first, self.first = self.first, _GIVEN
        if first is _END:
            raise StopIteration
        return first


@contextmanager
def _standing_for(info: Any) -> Iterator[None]:
    before = torch_worker._worker_info
    torch_worker._worker_info = info
    try:
        yield
    finally:
        torch_worker._worker_info = before
