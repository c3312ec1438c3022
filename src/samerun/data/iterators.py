"""Subclasses of torch's two DataLoader iterators that also record how far the program has come."""

from __future__ import annotations

import copy
import warnings
from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import torch
from torch.utils.data import _DatasetKind, get_worker_info
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

from samerun.base.errors import OwnGeneratorWarning
from samerun.data.batch_tasks import BatchTask, LoadedBatch, LoaderProgress, record_batch_and_rotate_to_next_shard
from samerun.data.keys import KeyContext

T = TypeVar("T")


class PendingTasks(Generic[T]):
    """Iterates over tasks for torch's iterator, and keeps those whose batches have not been handed over yet.

    torch prefetches: the tasks it has taken are ahead of the batches that the program has seen, and only the latter
    count in the loader's state.
    """

    def __init__(self, tasks: Iterator[T], progress: LoaderProgress) -> None:
        self.tasks, self.progress = tasks, progress
        self.pending: deque[T] = deque()

    def __iter__(self) -> PendingTasks[T]:
        return self

    def __next__(self) -> T:
        task = next(self.tasks)
        self.pending.append(task)
        return task


class TaskSampler:
    """Stands in for torch's batch sampler: iterating over it generates the tasks of the loader's current epoch."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> PendingTasks[Any]:
        return PendingTasks(self.loader._make_task_iterator(self.loader._progress), self.loader._progress)

    def __len__(self) -> int:
        return len(self.loader)


class _ProgressTracking:
    """Mixin for torch's iterators: takes tasks from a `TaskSampler`, and keeps `LoaderProgress` up to date."""

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
                if issued.pending:  # the batch that failed counts as seen: the next call gives the one behind it
                    self._advance_progress(issued.progress, issued.pending.popleft(), None)
                raise
            task = issued.pending.popleft()
            loaded = data if isinstance(data, LoadedBatch) else None
            self._advance_progress(issued.progress, task, loaded)
            if loaded is None:
                return data
            for name in loaded.notes:
                warnings.warn(OwnGeneratorWarning(_format_own_generator_warning(name)), stacklevel=3)
            if not loaded.empty:
                return loaded.data

    def _advance_progress(self, progress: LoaderProgress, task: Any, loaded: LoadedBatch | None) -> None:
        """Count the batch of a task as handed over."""
        if isinstance(task, BatchTask):
            progress.seen, progress.batches = task.end, progress.batches + 1
        elif loaded is not None and loaded.shard is not None:
            progress.seen, progress.batches = progress.seen + loaded.count, progress.batches + (not loaded.empty)
            record_batch_and_rotate_to_next_shard(progress, progress.rank_shards, loaded.shard, loaded)


class SingleProcessIterator(_ProgressTracking, _SingleProcessDataLoaderIter):
    """Loads batches in this process."""


class MultiProcessIterator(_ProgressTracking, _MultiProcessingDataLoaderIter):
    """Loads batches in worker processes."""

    _index_sampler: Any

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Begin an iteration. Persistent workers keep the old view, so its progress is replaced by the loader's."""
        self._index_sampler.loader._progress = loader._progress
        super()._reset(loader, first_iter)


class LoaderView:
    """A loader as torch's iterators see it: with the keyed dataset in the place of the dataset.

    It holds a copy of the loader. The loader holds the iterator over persistent workers; if that held the loader in
    turn, only the garbage collector would free the two. It may run in the thread that feeds the workers, and would
    deadlock there: the iterator's finalizer waits for that thread to end.
    """

    _auto_collation = False
    _dataset_kind = _DatasetKind.Map
    _IterableDataset_len_called = None

    def __init__(self, loader: Any, dataset: Any) -> None:
        loader = copy.copy(loader)
        loader.__dict__["_iterator"] = None
        self._loader = loader
        self.dataset = dataset
        self.collate_fn = return_unchanged
        self.worker_init_fn = WorkerSetup(loader.dataset, loader.worker_init_fn)
        self._index_sampler = TaskSampler(loader)
        # torch draws the workers' seeds from it. Only `worker_init_fn` draws with these; samples are keyed.
        self.generator = torch.Generator()
        progress = loader._progress
        context = KeyContext(progress.seed, loader.name, progress.epoch, "workers")
        self.generator.manual_seed(context.derive_key64(0, 0) >> 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class WorkerSetup:
    """Runs in a worker before its first task: makes `get_worker_info().dataset` the user's dataset."""

    def __init__(self, dataset: Any, user_init: Any) -> None:
        self.dataset, self.user_init = dataset, user_init

    def __call__(self, worker: int) -> None:
        info = get_worker_info()
        if info is not None:
            object.__setattr__(info, "dataset", self.dataset)
        if self.user_init is not None:
            self.user_init(worker)


def return_unchanged(batch: Any) -> Any:
    """Return the batch: it has been collated already, with the generators seeded for it."""
    return batch


def _format_own_generator_warning(generator_path: str) -> str:
    return (
        f"{generator_path} is a generator of its own, which a sample has just drawn from. No key reaches it: what it"
        " gives depends on the number of workers, on the order and on interruptions. Draw from random, numpy.random or"
        ' torch, or from samerun.stream("name").numpy.'
    )
