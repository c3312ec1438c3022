"""Torch's own two iterators, which also tell the loader what was handed over."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from torch.utils.data import _DatasetKind, get_worker_info
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

from samerun.base.errors import OwnGeneratorWarning
from samerun.data.keys import Realm
from samerun.data.progress import Plan
from samerun.data.stream_plan import arrived
from samerun.data.task import Loaded, Task


class _Counting:
    """Mixed into torch's iterators. Takes tasks from a `Plan`, and keeps `Progress` up to date."""

    _sampler_iter: Any

    def _next_data(self) -> Any:
        while True:
            issued = self._sampler_iter
            try:
                data = super()._next_data()  # type: ignore[misc]
            except StopIteration:
                issued.progress.finished = True
                raise
            except Exception:
                if issued.waiting:  # the batch that failed counts as seen: the next call gives the one behind it
                    self._note(issued.progress, issued.waiting.popleft(), None)
                raise
            task = issued.waiting.popleft()
            loaded = data if isinstance(data, Loaded) else None
            self._note(issued.progress, task, loaded)
            if loaded is None:
                return data
            for name in loaded.notes:
                warnings.warn(OwnGeneratorWarning(_own(name)), stacklevel=3)
            if not loaded.empty:
                return loaded.data

    def _note(self, progress: Any, task: Any, loaded: Loaded | None) -> None:
        if isinstance(task, Task):
            progress.seen, progress.batches = task.end, progress.batches + 1
        elif loaded is not None and loaded.shard is not None:
            progress.seen, progress.batches = progress.seen + loaded.count, progress.batches + (not loaded.empty)
            arrived(progress, progress.own, loaded.shard, loaded)


class Single(_Counting, _SingleProcessDataLoaderIter):
    """In this process."""


class Multi(_Counting, _MultiProcessingDataLoaderIter):
    """With workers."""

    _index_sampler: Any

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Begin an iteration. Workers that persist are handed the loader again, which has other progress by then."""
        self._index_sampler.loader._progress = loader._progress
        super()._reset(loader, first_iter)


class View:
    """A loader as torch's iterators see it: with keyed samples in the place of the dataset.

    It holds a copy: a loader holds the iterator over workers that persist, and in a circle neither would end before
    the garbage collector comes. That may be in the thread that feeds the workers, for whose end they then wait.
    """

    _auto_collation = False
    _dataset_kind = _DatasetKind.Map
    _IterableDataset_len_called = None

    def __init__(self, loader: Any, dataset: Any) -> None:
        loader = copy.copy(loader)
        loader.__dict__["_iterator"] = None
        self._loader = loader
        self.dataset = dataset
        self.collate_fn = as_it_is
        self.worker_init_fn = WorkerInit(loader.dataset, loader.worker_init_fn)
        self._index_sampler = Plan(loader)
        # Torch draws the workers' seeds from it. They decide on what `worker_init_fn` draws, and on no sample.
        self.generator = torch.Generator()
        progress = loader._progress
        self.generator.manual_seed(Realm(progress.seed, loader.name, progress.epoch, "workers").key64(0, 0) >> 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class WorkerInit:
    """What a worker does before its first task: sees to it that the user's dataset is found there."""

    def __init__(self, dataset: Any, own: Any) -> None:
        self.dataset, self.own = dataset, own

    def __call__(self, worker: int) -> None:
        info = get_worker_info()
        if info is not None:
            object.__setattr__(info, "dataset", self.dataset)
        if self.own is not None:
            self.own(worker)


def as_it_is(batch: Any) -> Any:
    """The batch is collated already, inside its key."""
    return batch


def _own(name: str) -> str:
    return (
        f"{name} is a generator of its own, which a sample has just drawn from. No key reaches it: what it gives"
        " depends on the number of workers, on the order and on interruptions. Draw from random, numpy.random or"
        ' torch, or from samerun.stream("name").numpy.'
    )
