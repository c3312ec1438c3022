"""A DataLoader whose order and random numbers are a function of (seed, epoch, sample), and which resumes exactly."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

import torch
import torch.utils.data
from torch.utils.data import IterableDataset

from samerun.base.errors import DataError
from samerun.control.random_source import validate_seed
from samerun.control.rng.seeding import seed_in_force
from samerun.data.batch_tasks import (
    BatchTask,
    LoaderProgress,
    Shard,
    count_rank_samples_left,
    generate_batch_sampler_tasks,
    generate_index_sampler_tasks,
    generate_order_tasks,
    generate_round_robin_shard_tasks,
    make_loader_state,
    parse_loader_state,
)
from samerun.data.iterators import LoaderView, MultiProcessIterator, SingleProcessIterator
from samerun.data.keyed_dataset import KeyedDataset, KeyedIterableDataset
from samerun.data.order import Order, Sequential, Shuffle
from samerun.data.seeded_section import GENERATOR_KINDS, SeededSection

T = TypeVar("T")


class DataLoader(torch.utils.data.DataLoader[T]):
    """A `torch.utils.data.DataLoader` whose batches do not depend on workers, ranks or interruptions.

        loader = samerun.data.DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4)

    Before each `dataset[index]`, Python's, NumPy's and torch's global generators, named streams
    (`samerun.stream`) and registered generators are seeded from a hash of (seed, name, epoch, index,
    repetition); before `collate_fn`, from a hash of the batch's position. So batches have the same bits for every
    `num_workers`, `prefetch_factor`, start method, and with persistent workers; samples also for every
    `batch_size`. In the main process all generators are restored: iterating does not move the program's random
    streams. Every `iter()` is a new epoch, as with torch; `set_epoch` selects one.

    Arguments are torch's, and:

    seed: an integer from 0 to 2**64-1. None: the seed of `generator` if one is given (it is never drawn from),
    else the one in force (`seed_everything`), else torch's (`torch.manual_seed`).
    name: loaders with different names draw different numbers and shuffle differently.
    keyed: "all", or the subset of "python", "numpy" and "torch" that samples draw from. Fewer cost less, and
    samples must not draw from the others.
    shard: None: every process iterates over everything, as with torch. (rank, ranks), or True: those of
    torch.distributed or of RANK and WORLD_SIZE. Then `batch_size` is that of one rank, and all ranks together
    see the global order, whatever their number; see `samerun.data.Order` and docs/data.md.
    virtual_shards: the number of parts an iterable dataset is read in. `get_worker_info()` returns the part in
    the place of the worker.

    shuffle=True uses `Shuffle`; `sampler` may be an `Order`. With these, `load_state_dict` is immediate; another
    sampler is run again, with its own seeded generators, up to where it was.

    Raises DataError for in_order=False, and for invalid values of `seed`, `keyed`, `shard` and `virtual_shards`;
    otherwise what torch raises.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: int | None = None,
        name: str = "data",
        keyed: str | Collection[str] = "all",
        shard: bool | Shard | None = None,
        virtual_shards: int = 8,
        **more: Any,
    ) -> None:
        if not in_order:
            hint = "Leave in_order=True: batches that come as they are ready come in another order every time."
            raise DataError("DataLoader(in_order=False): the order would depend on the speed of the workers.", hint)
        if not isinstance(name, str) or not name:
            raise DataError(f"DataLoader(name={name!r}): a name is a string that is not empty.")
        self.seed = None if seed is None else validate_seed(seed, "DataLoader")
        self.name, self.keyed, self.shard, self.virtual_shards = name, keyed, shard, virtual_shards
        self._keyed_kinds, self._shard = _parse_keyed_kinds(keyed), _resolve_shard_unsharded_if_none(shard)
        if isinstance(dataset, IterableDataset):
            _require_valid_virtual_shards(virtual_shards, self._shard[1])
        elif sampler is None and batch_sampler is None:
            count = len(dataset)
            sampler, shuffle = (Shuffle(count, name=name) if shuffle else Sequential(count)), None
        if self._shard[1] > 1 and not isinstance(dataset, IterableDataset) and not isinstance(sampler, Order):
            raise DataError(
                f"DataLoader(shard={shard!r}): a {type(sampler or batch_sampler).__name__} is not shared out to ranks.",
                "Pass shuffle=True or a samerun.data order, or let the sampler itself share out and leave out shard=.",
            )
        super().__init__(
            dataset, batch_size=batch_size, shuffle=shuffle, sampler=sampler, batch_sampler=batch_sampler,
            num_workers=num_workers, collate_fn=collate_fn, pin_memory=pin_memory, drop_last=drop_last,
            timeout=timeout, worker_init_fn=worker_init_fn, multiprocessing_context=multiprocessing_context,
            generator=generator, prefetch_factor=prefetch_factor, persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device, in_order=in_order, **more,
        )  # fmt: skip
        self._progress: LoaderProgress | None = None
        self._resume_progress: LoaderProgress | None = None  # where the next iteration begins, if that is known
        self._requested_epoch: int | None = None
        self._iterations = 0
        if isinstance(sampler, Order):
            sampler.loader_seed_ref = weakref.WeakMethod(self._resolve_seed)

    # --- epochs and positions --------------------------------------------------------------------
    @property
    def epoch(self) -> int:
        """The current epoch; after the last batch and the end of the loop, the next one."""
        progress = self._resume_progress or self._progress
        if self._requested_epoch is not None:
            return self._requested_epoch
        return 0 if progress is None else progress.epoch + progress.finished

    @property
    def ranks(self) -> int:
        """The number of ranks that share the order; 1: every process iterates over everything."""
        return self._shard[1]

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration this epoch: from the loaded state if that is in it, else from the beginning."""
        probe = Sequential(0)
        probe.set_epoch(epoch)
        self._requested_epoch = probe.epoch

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position as plain values of a few hundred bytes, at any point of an epoch.

        Only batches handed to the program count, not those that workers have prefetched.
        """
        progress = self._resume_progress or self._progress
        requested = self._requested_epoch
        if requested is not None and (progress is None or progress.epoch + progress.finished != requested):
            progress = LoaderProgress(self._resolve_seed(), requested)
        return make_loader_state(
            progress or LoaderProgress(self._resolve_seed(), 0), self._describe_dataset_and_sampler()
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next iteration continue from where `state_dict` was called.

        The number of workers and ranks and the batch size may differ: the position is the number of samples seen on
        all ranks together, or with a `batch_sampler` the number of batches. A seed that was neither passed nor set by
        `seed_everything` is adopted from the state.

        Raises DataError if `state` is not a loader state, or belongs to another dataset, order, name or seed.
        """
        known = self.seed if self.seed is not None else seed_in_force()
        progress = parse_loader_state(state, self._describe_dataset_and_sampler(), known)
        if isinstance(self.sampler, Order) and progress.seen > len(self.sampler):
            raise DataError(
                f"load_state_dict(): the state has seen {progress.seen} samples, and an epoch has {len(self.sampler)}.",
                "It is damaged, or was changed after state_dict().",
            )
        self._resume_progress, self._requested_epoch = progress, None

    def __iter__(self) -> Any:
        self._require_dataset_length_matches_order()
        self._progress, self._resume_progress, self._requested_epoch = self._begin_next_iteration(), None, None
        return super().__iter__()

    def _begin_next_iteration(self) -> LoaderProgress:
        self._iterations += 1
        asked = self._requested_epoch
        sampler = self.sampler
        if isinstance(sampler, Order) and sampler.requested_epoch is not None:
            asked = sampler.requested_epoch if asked is None else asked
            sampler.requested_epoch = None
        progress = self._resume_progress
        if progress is None or (asked is not None and asked != progress.epoch):
            epoch = 0 if self._progress is None else self._progress.epoch + 1
            progress = LoaderProgress(self._resolve_seed(), epoch if asked is None else asked)
        progress.iteration = self._iterations
        progress.rank_shards = self._list_virtual_shards_of_rank()
        return progress

    def _resolve_seed(self) -> int:
        if self.seed is not None:
            return self.seed
        if self.generator is not None:
            return int(self.generator.initial_seed()) & (2**64 - 1)
        in_force = seed_in_force()
        return int(torch.initial_seed()) & (2**64 - 1) if in_force is None else in_force

    # --- what torch's machinery asks for ---------------------------------------------------------
    def _get_iterator(self) -> Any:
        view = LoaderView(self, self._make_keyed_batch_dataset())
        if self.num_workers == 0:
            return SingleProcessIterator(view)
        self.check_worker_number_rationality()
        return MultiProcessIterator(view)

    def _make_keyed_batch_dataset(self) -> KeyedDataset | KeyedIterableDataset:
        if not self._is_iterable:
            return KeyedDataset(self.dataset, self.collate_fn, self._keyed_kinds, self.name)
        return KeyedIterableDataset(
            self.dataset, self.collate_fn, self._keyed_kinds, self.name, batch_size=self.batch_size,
            drop_last=self.drop_last, shards=self.virtual_shards, world=self._shard[1],
        )  # fmt: skip

    def _make_task_iterator(self, progress: LoaderProgress) -> Iterator[Any]:
        if self._is_iterable:
            return generate_round_robin_shard_tasks(progress, progress.rank_shards, self.num_workers)
        if isinstance(self.sampler, Order):
            return generate_order_tasks(self.sampler, progress, self.batch_size, self.drop_last, self._shard)
        if self.batch_size is None and self.batch_sampler is not None:
            return generate_batch_sampler_tasks(self.batch_sampler, progress, self.name)
        return generate_index_sampler_tasks(self.sampler, progress, self.batch_size, self.drop_last, self.name)

    def __len__(self) -> int:
        if self._is_iterable or not isinstance(self.sampler, Order):
            return super().__len__()
        size = self.batch_size or 1
        return -(-count_rank_samples_left(len(self.sampler), 0, size, self.drop_last, self._shard[1]) // size)

    @property
    def _is_iterable(self) -> bool:
        return isinstance(self.dataset, IterableDataset)

    def _list_virtual_shards_of_rank(self) -> list[int]:
        return list(range(self._shard[0], self.virtual_shards, self._shard[1])) if self._is_iterable else []

    def _require_dataset_length_matches_order(self) -> None:
        dataset: Any = self.dataset
        if isinstance(self.sampler, Order) and not self._is_iterable and len(dataset) != self.sampler.size():
            raise DataError(
                f"The dataset ({type(dataset).__name__}) has {len(dataset)} samples, and the loader's"
                f" order is of {self.sampler.size()}.",
                "Make a new DataLoader when the length of a dataset changes.",
            )

    def _describe_dataset_and_sampler(self) -> dict[str, Any]:
        dataset: Any = self.dataset
        kind = type(dataset)
        identity: dict[str, Any] = {"name": self.name, "dataset": f"{kind.__module__}.{kind.__qualname__}"}
        if self._is_iterable:
            return {**identity, "samples": None, "order": "stream", "virtual_shards": self.virtual_shards}
        own = self.sampler if self.batch_size is not None or self.batch_sampler is None else self.batch_sampler
        order = self.sampler.describe() if isinstance(self.sampler, Order) else type(own).__qualname__
        return {**identity, "samples": _try_dataset_length(dataset), "order": order}


def _try_dataset_length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):  # with a sampler, torch does not require a length
        return None


def _parse_keyed_kinds(keyed: str | Collection[str]) -> frozenset[str]:
    """Return the kinds of generators that the argument `keyed` names. Raises DataError for unknown ones."""
    if keyed == "all":
        return GENERATOR_KINDS
    kinds = frozenset([keyed] if isinstance(keyed, str) else keyed)
    if not kinds <= GENERATOR_KINDS:
        known = ", ".join(sorted(GENERATOR_KINDS))
        raise DataError(f"DataLoader(keyed={keyed!r}): there are {known}, or all of them: 'all'.")
    return kinds


def _resolve_shard_unsharded_if_none(shard: bool | Shard | None) -> Shard:
    """Return (rank, number of ranks) of the argument `shard`; of the distributed run if it is True."""
    if shard is None or shard is False:
        return 0, 1
    if shard is True:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        shard = _read_rank_variable_or_raise("RANK"), _read_rank_variable_or_raise("WORLD_SIZE")
    try:
        rank, world = shard
    except (TypeError, ValueError):
        rank, world = -1, 0
    if not (isinstance(rank, int) and isinstance(world, int) and 0 <= rank < world):
        hint = "Pass (rank, number of ranks), such as (0, 2), or True after init_process_group()."
        raise DataError(f"DataLoader(shard={shard!r}): a rank is from 0 to the number of ranks - 1.", hint)
    return rank, world


def _read_rank_variable_or_raise(variable: str) -> int:
    text = os.environ.get(variable, "")
    if not text.isdigit():
        raise DataError(
            f"DataLoader(shard=True): torch.distributed is not initialised, and {variable} is {text!r}.",
            "Call init_process_group() first, start with torchrun, or pass shard=(rank, ranks).",
        )
    return int(text)


def _require_valid_virtual_shards(virtual_shards: int, world_size: int) -> None:
    valid = isinstance(virtual_shards, int) and not isinstance(virtual_shards, bool) and 1 <= virtual_shards <= 1024
    if not valid or virtual_shards % world_size:
        raise DataError(
            f"DataLoader(virtual_shards={virtual_shards!r}): a whole number from 1 to 1024, a multiple of the number of"
            f" ranks ({world_size})."
        )


def replay(loader: DataLoader[Any], epoch: int, index: Any, repetition: int = 0) -> Any:
    """Return `loader.dataset[index]` as `loader` loads it in `epoch`: the sample alone, in this process, at once.

        sample = samerun.data.replay(loader, epoch=3, index=1234)

    repetition: for a sample that occurs more than once in an epoch, which occurrence; error notes name it. The
    program's generators do not move.

    Raises DataError if the loader is not samerun's, or its dataset is iterable; otherwise what the dataset raises.
    """
    if not isinstance(loader, DataLoader):
        hint = "Pass a samerun.data.DataLoader: others do not key their samples."
        raise DataError(f"replay(): the loader is a {type(loader).__module__}.{type(loader).__name__}.", hint)
    if isinstance(loader.dataset, IterableDataset):
        hint = "Its samples have no index: they can only be read in order."
        raise DataError(f"replay(): {type(loader.dataset).__name__} is an iterable dataset.", hint)
    keyed = KeyedDataset(loader.dataset, loader.collate_fn, loader._keyed_kinds, loader.name)
    seed = loader._resolve_seed() if loader._progress is None else loader._progress.seed
    task = BatchTask(seed, epoch, [index], [repetition] if repetition else None, 0, 0)
    with SeededSection(seed, loader._keyed_kinds, restore=True) as section:
        return keyed.load_samples(section, task)[0]
