"""Load the samples of one batch, each with generators seeded from its own key.

Some samples of a map-style dataset need no keys: those for which only Python's and torch's own code runs, which draws
nothing. These are recognized by construction and nothing else: tensors of a `TensorDataset`, plain values in a list, a
tuple or a range, and subsets of these, collated by torch's own `default_collate`. Subclasses of these may run the
user's code, and so may a mode around torch's operators: then samples are keyed.

An iterable dataset that has `state_dict` and `load_state_dict`, as torchdata defines them, or whose iterator has,
resumes from its own state. Others are read again up to where the loader's state stands.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.utils.data import Subset, TensorDataset, default_collate, default_convert, get_worker_info
from torch.utils.data._utils import worker as torch_worker
from torch.utils.data._utils.collate import default_collate_fn_map

from samerun.base.errors import DataError
from samerun.data.batch_tasks import BatchTask, LoadedBatch, ShardBatchTask
from samerun.data.draw_monitors import PrivateGeneratorMonitor, UnkeyedDrawMonitor
from samerun.data.keys import KeyContext, indices_to_key_numbers
from samerun.data.seeded_section import SeededSection


class KeyedDataset:
    """Wraps a map-style dataset for torch's fetcher: indexed with a `BatchTask`, it returns a whole collated batch.

    Samples are loaded one by one with `dataset[index]`, because each has its own random numbers.
    """

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], kinds: frozenset[str], name: str) -> None:
        self.dataset, self.collate, self.kinds, self.name = dataset, collate, kinds, name
        self._private_generators: PrivateGeneratorMonitor | None = None
        self._unkeyed_draws = UnkeyedDrawMonitor(kinds)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, task: BatchTask) -> Any:
        plain = try_load_without_seeding(self.dataset, self.collate, task.indices)
        if plain is not None:
            return self.collate(plain[0] if task.alone else plain)
        if self._private_generators is None:
            self._private_generators = PrivateGeneratorMonitor({"dataset": self.dataset, "collate_fn": self.collate})
        self._private_generators.snapshot_states()
        self._unkeyed_draws.snapshot_states()
        with SeededSection(task.seed, self.kinds, restore=get_worker_info() is None) as section:
            samples = self.load_samples(section, task)
            if self.collate not in TORCH_COLLATES:
                section.seed_for_batch_or_shard(KeyContext(task.seed, self.name, task.epoch, "batch"), task.position)
            batch = self.collate(samples[0] if task.alone else samples)
            self._unkeyed_draws.require_no_draws()
        notes = self._private_generators.take_names_of_newly_drawn_generators()
        return LoadedBatch(batch, notes) if notes else batch

    def load_samples(self, section: SeededSection, task: BatchTask) -> list[Any]:
        """Load the samples of a task inside `section`. An exception from a sample gets a note that names it."""
        dataset, indices = self.dataset, task.indices
        get = dataset.__getitem__ if hasattr(dataset, "__getitem__") else lambda index: dataset.__getitems__([index])[0]
        context, numbers = KeyContext(task.seed, self.name, task.epoch), indices_to_key_numbers(indices)
        samples: list[Any] = []
        try:
            section.load_samples(context, numbers, task.repetitions, get, indices, samples)
        except Exception as error:
            at = len(samples)
            _add_failed_sample_note(
                error, indices[at], task.epoch, 0 if task.repetitions is None else task.repetitions[at]
            )
            raise
        return samples

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_private_generators": None}


def _add_failed_sample_note(error: Exception, index: Any, epoch: int, repetition: int) -> None:
    """Add to an exception which sample raised it, and how to load that sample alone."""
    again = f", repetition={repetition}" if repetition else ""
    note = (
        f"samerun: raised by sample {index!r} in epoch {epoch}. To load it again with the same random numbers:"
        f" samerun.data.replay(loader, epoch={epoch}, index={index!r}{again})"
    )
    if hasattr(error, "add_note"):
        error.add_note(note)
    elif len(error.args) == 1 and isinstance(error.args[0], str):  # Python 3.10
        error.args = (f"{error.args[0]}\n{note}",)


TORCH_COLLATES = (default_collate, default_convert)
_PLAIN_TYPES = frozenset({torch.Tensor, int, float, bool, str, bytes})
_TORCH_GETITEMS = TensorDataset.__getitem__, Subset.__getitem__


def try_load_without_seeding(dataset: Any, collate: Any, indices: list[Any]) -> list[Any] | None:
    """Return `dataset[index]` for each index, or None if the samples must be keyed, also if one of them raises."""
    if collate not in TORCH_COLLATES or not all(type(index) is int for index in indices):
        return None
    patched = (TensorDataset.__getitem__, Subset.__getitem__) != _TORCH_GETITEMS
    if patched or _torch_modes_are_active() or _user_registered_collate_function():
        return None
    try:
        return _try_load_plain_samples(dataset, indices)
    except (IndexError, TypeError):
        return None


def _try_load_plain_samples(dataset: Any, indices: list[int]) -> list[Any] | None:
    kind = type(dataset)
    if kind is TensorDataset:
        tensors = dataset.tensors
        if not all(type(tensor) is torch.Tensor for tensor in tensors):
            return None
        return [tuple(tensor[index] for tensor in tensors) for index in indices]
    if kind is Subset and type(dataset.indices) in (list, tuple, range):
        inner = [dataset.indices[index] for index in indices]
        return _try_load_plain_samples(dataset.dataset, inner) if all(type(index) is int for index in inner) else None
    if kind in (list, tuple, range):
        samples = [dataset[index] for index in indices]
        return samples if all(_is_plain_sample(sample) for sample in samples) else None
    return None


def _is_plain_sample(sample: Any) -> bool:
    kind = type(sample)
    if kind is tuple or kind is list:
        return all(type(part) in _PLAIN_TYPES for part in sample)
    return kind in _PLAIN_TYPES


def _torch_modes_are_active() -> bool:
    """Return whether a torch function or dispatch mode is active."""
    inside: Any = torch._C
    return bool(inside._len_torch_function_stack() or inside._len_torch_dispatch_stack())


def _user_registered_collate_function() -> bool:
    """Return whether the user has registered a function with `default_collate`."""
    return any(function.__module__ != default_collate.__module__ for function in default_collate_fn_map.values())


# --- iterable datasets ---


_SKIP_CHUNK = 256
_worker_info_was_read = False


class _ShardWorkerInfo(torch_worker.WorkerInfo):  # type: ignore[misc, unused-ignore]
    """What `get_worker_info()` returns to a dataset: its shard in the place of the worker.

    It notes whether the dataset reads it: one that does not gives the same samples in every shard.
    """

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name in ("id", "num_workers"):
            global _worker_info_was_read
            _worker_info_was_read = True
        return super().__getattribute__(name)


@dataclass
class _OpenShard:
    """A shard that is being read. dataset: the copy it is read from. position: that of the next sample."""

    samples: Iterator[Any]
    dataset: Any
    position: int = 0


class KeyedIterableDataset:
    """Wraps an iterable dataset for torch's fetcher: indexed with a `ShardBatchTask`, it returns a collated batch."""

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
        self._iteration: tuple[int, int, int] | None = None
        self._open_shards: dict[int, _OpenShard] = {}
        self._private_generators: PrivateGeneratorMonitor | None = None
        self._unkeyed_draws = UnkeyedDrawMonitor(kinds)

    def __getitem__(self, task: ShardBatchTask) -> Any:
        if task.shard is None:
            return LoadedBatch(None, empty=True)
        if self._iteration != (task.seed, task.epoch, task.iteration):
            self._iteration, self._open_shards = (task.seed, task.epoch, task.iteration), {}
        if self._private_generators is None:
            self._private_generators = PrivateGeneratorMonitor({"dataset": self.dataset, "collate_fn": self.collate})
        self._private_generators.snapshot_states()
        self._unkeyed_draws.snapshot_states()
        with SeededSection(task.seed, self.kinds, restore=get_worker_info() is None) as section:
            loaded = self._load_batch(section, task, task.shard)
            self._unkeyed_draws.require_no_draws()
        loaded.notes = self._private_generators.take_names_of_newly_drawn_generators()
        return loaded

    def _load_batch(self, section: SeededSection, task: ShardBatchTask, shard: int) -> LoadedBatch:
        with _replaced_worker_info(self._make_worker_info(shard, task)):
            open_shard = self._open_shards.get(shard)
            if open_shard is None:
                open_shard = self._open_shards[shard] = self._open_shard(section, task, shard)
                self._reread_samples_to_resume_point(section, task, shard, open_shard)
            wanted = self.batch_size or 1
            samples = self._read_samples(section, task, shard, open_shard, wanted)
        ended, count = len(samples) < wanted, len(samples)
        if not samples or (ended and self.drop_last):
            return LoadedBatch(None, shard=shard, count=count, empty=True, ended=True)
        state = None if ended else copy_state_of_iterator_or_dataset(open_shard.samples, open_shard.dataset)
        if self.collate not in TORCH_COLLATES:
            section.seed_for_batch_or_shard(self._make_key_context(task, shard, "batch"), open_shard.position - count)
        data = self.collate(samples[0] if self.batch_size is None else samples)
        return LoadedBatch(data, shard=shard, count=count, ended=ended, state=state)

    def _open_shard(self, section: SeededSection, task: ShardBatchTask, shard: int) -> _OpenShard:
        """Open a shard.

        A dataset that never reads its worker info would give all samples in every shard: then the first shard gives
        them all, and the others are empty.
        """
        global _worker_info_was_read
        _worker_info_was_read = False
        dataset = copy_dataset_if_stateful(self.dataset, self.shards)
        section.seed_for_batch_or_shard(self._make_key_context(task, shard, "shard"), 0)
        samples = iterate_from_state(dataset, task.state)
        if task.state is not None:
            return _OpenShard(samples, dataset, task.skip)
        section.seed_for_batch_or_shard(self._make_key_context(task, shard), 0)
        first = next(samples, _END)
        if not _worker_info_was_read and self.shards > 1:
            if self.world > 1:
                raise DataError(
                    f"{type(self.dataset).__name__} does not ask get_worker_info() which part of the data it is to"
                    f" give, so it cannot be shared out to {self.world} ranks.",
                    "Give in __iter__ each info.num_workers-th sample from info.id on, or leave out shard=.",
                )
            if shard:
                return _OpenShard(iter(()), None)
        return _OpenShard(_PrependedIterator(first, samples), dataset)

    def _reread_samples_to_resume_point(
        self, section: SeededSection, task: ShardBatchTask, shard: int, open_shard: _OpenShard
    ) -> None:
        """Read up to where the loader's state stands, seeding each sample: draws may decide which samples follow."""
        report = RereadProgress(f"part {shard + 1} of {self.shards} of {type(self.dataset).__name__}", task.skip)
        while open_shard.position < task.skip:
            wanted = min(_SKIP_CHUNK, task.skip - open_shard.position)
            if len(self._read_samples(section, task, shard, open_shard, wanted)) < wanted:
                raise DataError(
                    f"The loader's state stands behind {task.skip} samples of part {shard + 1} of {self.shards}, and"
                    f" {type(self.dataset).__name__} gives {open_shard.position}.",
                    "It must give the same samples as in the run that saved the state.",
                )
            report.print_if_due(open_shard.position)

    def _read_samples(
        self, section: SeededSection, task: ShardBatchTask, shard: int, open_shard: _OpenShard, max_count: int
    ) -> list[Any]:
        """Return the next samples; fewer than `max_count` at the end of the shard."""
        numbers, samples = range(open_shard.position, open_shard.position + max_count), list[Any]()
        try:
            context, read_next = self._make_key_context(task, shard), lambda _: next(open_shard.samples)
            section.load_samples(context, numbers, None, read_next, numbers, samples)
        except StopIteration:
            pass
        finally:
            open_shard.position += len(samples)
        return samples

    def _make_key_context(self, task: ShardBatchTask, shard: int, purpose: str = "sample") -> KeyContext:
        return KeyContext(task.seed, self.name, task.epoch, f"{purpose} of shard {shard} of {self.shards}")

    def _make_worker_info(self, shard: int, task: ShardBatchTask) -> Any:
        seed = self._make_key_context(task, shard, "seed").derive_key64(0, 0) >> 1
        return _ShardWorkerInfo(id=shard, num_workers=self.shards, seed=seed, dataset=self.dataset)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_private_generators": None, "_open_shards": {}, "_iteration": None}


_END, _CONSUMED = object(), object()


class _PrependedIterator:
    """Yields a sample that was read ahead, and then the rest."""

    def __init__(self, first: Any, rest: Iterator[Any]) -> None:
        self.first, self.rest = first, rest

    def __iter__(self) -> _PrependedIterator:
        return self

    def __next__(self) -> Any:
        if self.first is _CONSUMED:
            return next(self.rest)
        first, self.first = self.first, _CONSUMED
        if first is _END:
            raise StopIteration
        return first


@contextmanager
def _replaced_worker_info(info: torch_worker.WorkerInfo) -> Iterator[None]:
    """Make `get_worker_info()` return `info` inside the block."""
    before = torch_worker._worker_info
    torch_worker._worker_info = info
    try:
        yield
    finally:
        torch_worker._worker_info = before


def copy_dataset_if_stateful(dataset: Any, num_shards: int) -> Any:
    """Return the dataset to read a shard from: a copy if it keeps a position, because shards are read in turn."""
    if not _is_stateful(dataset):
        return dataset
    try:
        return copy.deepcopy(dataset)
    except Exception as error:
        if num_shards == 1:
            return dataset
        raise DataError(
            f"{type(dataset).__name__} has state_dict() and is read in {num_shards} parts, each from a copy of its own,"
            f" and copying it failed: {error!r}.",
            "Let it be copied (copy.deepcopy), or pass virtual_shards=1.",
        ) from error


def iterate_from_state(dataset: Any, state: list[Any] | None) -> Iterator[Any]:
    """Return an iterator from a `state` of `copy_state_of_iterator_or_dataset`; None: from the beginning."""
    if state is None:
        return iter(dataset)
    owner, saved = state
    if owner == "dataset":
        dataset.load_state_dict(saved)
    samples: Any = iter(dataset)
    if owner == "iterator":
        samples.load_state_dict(saved)
    return cast(Iterator[Any], samples)


def copy_state_of_iterator_or_dataset(sample_iterator: Any, dataset: Any) -> list[Any] | None:
    """Return ["iterator" or "dataset", a copy of its state], whichever has one; None if neither has."""
    for owner, candidate in (("iterator", getattr(sample_iterator, "rest", sample_iterator)), ("dataset", dataset)):
        if _is_stateful(candidate):
            return [owner, copy.deepcopy(candidate.state_dict())]
    return None


def _is_stateful(candidate: Any) -> bool:
    """Return whether an iterator or a dataset can save and load its position."""
    return callable(getattr(candidate, "state_dict", None)) and callable(getattr(candidate, "load_state_dict", None))


FIRST_REPORT_SECONDS, REPORT_INTERVAL_SECONDS = 2.0, 10.0
"""Seconds until the first line, and from one line to the next."""


class RereadProgress:
    """Reports on standard error how far reading again has come. what: what is read."""

    def __init__(self, what_is_read: str, sample_count: int) -> None:
        self._what, self._sample_count = what_is_read, sample_count
        self._begin = time.monotonic()
        self._next = self._begin + FIRST_REPORT_SECONDS

    def print_if_due(self, samples_read: int) -> None:
        """Report `samples_read` samples if a report is due, or if these are all and it took long."""
        now = time.monotonic()
        if now < self._next and (samples_read < self._sample_count or now < self._begin + FIRST_REPORT_SECONDS):
            return
        self._next = now + REPORT_INTERVAL_SECONDS
        line = f"samerun: reading {self._what} again to resume: {samples_read:,} of {self._sample_count:,} samples"
        if self._sample_count == samples_read:
            line += f", {now - self._begin:.0f} s"
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
