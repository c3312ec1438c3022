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
from samerun.control.rng.seeding import seed_in_force
from samerun.control.seed_derivation import validate_seed
from samerun.data.generators import KINDS
from samerun.data.iterators import Multi, Single, View
from samerun.data.order import Order, Sequential
from samerun.data.order_plan import Shard, samples_of_rank, tasks_of_order
from samerun.data.position import progress_of, state_of
from samerun.data.progress import Progress
from samerun.data.sampler_plan import tasks_of_batches, tasks_of_sampler
from samerun.data.samples import KeyedDataset
from samerun.data.shuffle import Shuffle
from samerun.data.stream_plan import tasks_of_stream
from samerun.data.stream_samples import KeyedStream

T = TypeVar("T")


class DataLoader(torch.utils.data.DataLoader[T]):
    """`torch.utils.data.DataLoader` whose batches do not depend on workers, ranks or interruptions.

        loader = samerun.data.DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4)

    Before each `dataset[index]`, Python's, NumPy's and torch's global generators, named streams
    (`samerun.stream`) and registered generators are started from a hash of (seed, name, epoch, index,
    repetition); before `collate_fn`, from one of the batch's position. So batches are the same bits for every
    `num_workers`, `prefetch_factor`, start method, and with persistent workers; samples are for every
    `batch_size` too. In the main process all generators are put back: no iteration moves a stream of the
    program. Every `iter()` is a new epoch, as with torch; `set_epoch` names one.

    Arguments are torch's, and:

    seed: a whole number from 0 to 2**64-1. None: that of `generator` if one is given (it is never drawn
    from), else the one in force (`seed_everything`), else torch's (`torch.manual_seed`).
    name: loaders of another name draw other numbers and shuffle otherwise.
    keyed: "all", or those of "python", "numpy", "torch" that samples draw from: fewer cost less, and from the
    others nothing may be drawn.
    shard: None: every process iterates over everything, as with torch. (rank, ranks), or True: those of
    torch.distributed or of RANK and WORLD_SIZE. Then `batch_size` is that of one rank, and all ranks together
    see the global order, whatever their number; see `samerun.data.Order` and docs/data.md.
    virtual_shards: of an iterable dataset: into how many parts it comes. `get_worker_info()` tells the dataset
    its part in the place of the worker.

    shuffle=True takes `Shuffle`; `sampler` may be an `Order`. With these, `load_state_dict` is immediate;
    another sampler is run again, inside a key of its own, up to where it was.

    Raises DataError for in_order=False, and for what `seed`, `keyed`, `shard` and `virtual_shards` do not
    take; else what torch raises.
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
        self._kinds, self._shard = _kinds(keyed), _shard(shard)
        if isinstance(dataset, IterableDataset):
            _check_shards(virtual_shards, self._shard[1])
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
        self._progress: Progress | None = None
        self._next: Progress | None = None  # where the next iteration begins, if that is settled
        self._asked: int | None = None
        self._turn = 0
        if isinstance(sampler, Order):
            sampler.seed_of_loader = weakref.WeakMethod(self._seed)

    # --- epochs and positions --------------------------------------------------------------------
    @property
    def epoch(self) -> int:
        """The epoch that the loader is in; after its last batch and the end of the loop, the next one."""
        progress = self._next or self._progress
        if self._asked is not None:
            return self._asked
        return 0 if progress is None else progress.epoch + progress.finished

    @property
    def ranks(self) -> int:
        """To how many ranks the order is shared out; 1: every process iterates over everything."""
        return self._shard[1]

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be this epoch. If a loaded state is in it, from there; else from its beginning."""
        probe = Sequential(0)
        probe.set_epoch(epoch)
        self._asked = probe.epoch

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is: plain values, a few hundred bytes. Between batches, or in the middle of an epoch.

        What was handed over counts, not what workers have prefetched.
        """
        progress = self._next or self._progress
        if self._asked is not None and (progress is None or progress.epoch + progress.finished != self._asked):
            progress = Progress(self._seed(), self._asked)
        return state_of(progress or Progress(self._seed(), 0), self._identity())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on from where `state_dict` was called.

        Any number of workers, ranks and any batch size will do: what counts is how many samples were seen, on
        all ranks together. With a `batch_sampler` it is how many batches. A seed that was neither given nor
        set by `seed_everything` is taken over from the state.

        Raises DataError for what is no state, and for one of another dataset, order, name or seed.
        """
        known = self.seed if self.seed is not None else seed_in_force()
        progress = progress_of(state, self._identity(), known)
        if isinstance(self.sampler, Order) and progress.seen > len(self.sampler):
            raise DataError(
                f"load_state_dict(): the state has seen {progress.seen} samples, and an epoch has {len(self.sampler)}.",
                "It is damaged, or was changed after state_dict().",
            )
        self._next, self._asked = progress, None

    def __iter__(self) -> Any:
        self._check_length()
        self._progress, self._next, self._asked = self._following(), None, None
        return super().__iter__()

    def _following(self) -> Progress:
        self._turn += 1
        asked = self._asked
        sampler = self.sampler
        if isinstance(sampler, Order) and sampler.asked_for is not None:
            asked = sampler.asked_for if asked is None else asked
            sampler.asked_for = None
        progress = self._next
        if progress is None or (asked is not None and asked != progress.epoch):
            epoch = 0 if self._progress is None else self._progress.epoch + 1
            progress = Progress(self._seed(), epoch if asked is None else asked)
        progress.turn = self._turn
        progress.own = self._own_shards()
        return progress

    def _seed(self) -> int:
        if self.seed is not None:
            return self.seed
        if self.generator is not None:
            return int(self.generator.initial_seed()) & (2**64 - 1)
        in_force = seed_in_force()
        return int(torch.initial_seed()) & (2**64 - 1) if in_force is None else in_force

    # --- what torch's machinery asks for ---------------------------------------------------------
    def _get_iterator(self) -> Any:
        view = View(self, self._keyed())
        if self.num_workers == 0:
            return Single(view)
        self.check_worker_number_rationality()
        return Multi(view)

    def _keyed(self) -> KeyedDataset | KeyedStream:
        if not self._iterable:
            return KeyedDataset(self.dataset, self.collate_fn, self._kinds, self.name)
        return KeyedStream(
            self.dataset, self.collate_fn, self._kinds, self.name, batch_size=self.batch_size,
            drop_last=self.drop_last, shards=self.virtual_shards, world=self._shard[1],
        )  # fmt: skip

    def _tasks(self, progress: Progress) -> Iterator[Any]:
        if self._iterable:
            return tasks_of_stream(progress, progress.own, self.num_workers)
        if isinstance(self.sampler, Order):
            return tasks_of_order(self.sampler, progress, self.batch_size, self.drop_last, self._shard)
        if self.batch_size is None and self.batch_sampler is not None:
            return tasks_of_batches(self.batch_sampler, progress, self.name)
        return tasks_of_sampler(self.sampler, progress, self.batch_size, self.drop_last, self.name)

    def __len__(self) -> int:
        if self._iterable or not isinstance(self.sampler, Order):
            return super().__len__()
        size = self.batch_size or 1
        return -(-samples_of_rank(len(self.sampler), 0, size, self.drop_last, self._shard[1]) // size)

    @property
    def _iterable(self) -> bool:
        return isinstance(self.dataset, IterableDataset)

    def _own_shards(self) -> list[int]:
        return list(range(self._shard[0], self.virtual_shards, self._shard[1])) if self._iterable else []

    def _check_length(self) -> None:
        dataset: Any = self.dataset
        if isinstance(self.sampler, Order) and not self._iterable and len(dataset) != self.sampler.size():
            raise DataError(
                f"The dataset ({type(dataset).__name__}) has {len(dataset)} samples, and the loader's"
                f" order is of {self.sampler.size()}.",
                "Make a new DataLoader when the length of a dataset changes.",
            )

    def _identity(self) -> dict[str, Any]:
        dataset: Any = self.dataset
        kind = type(dataset)
        identity: dict[str, Any] = {"name": self.name, "dataset": f"{kind.__module__}.{kind.__qualname__}"}
        if self._iterable:
            return {**identity, "samples": None, "order": "stream", "virtual_shards": self.virtual_shards}
        own = self.sampler if self.batch_size is not None or self.batch_sampler is None else self.batch_sampler
        order = self.sampler.describe() if isinstance(self.sampler, Order) else type(own).__qualname__
        return {**identity, "samples": _count(dataset), "order": order}


def _count(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):  # with a sampler, torch asks for no length
        return None


def _kinds(keyed: str | Collection[str]) -> frozenset[str]:
    if keyed == "all":
        return KINDS
    kinds = frozenset([keyed] if isinstance(keyed, str) else keyed)
    if not kinds <= KINDS:
        known = ", ".join(sorted(KINDS))
        raise DataError(f"DataLoader(keyed={keyed!r}): there are {known}, or all of them: 'all'.")
    return kinds


def _shard(shard: bool | Shard | None) -> Shard:
    if shard is None or shard is False:
        return 0, 1
    if shard is True:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        shard = _whole("RANK"), _whole("WORLD_SIZE")
    try:
        rank, world = shard
    except (TypeError, ValueError):
        rank, world = -1, 0
    if not (isinstance(rank, int) and isinstance(world, int) and 0 <= rank < world):
        hint = "Pass (rank, number of ranks), such as (0, 2), or True after init_process_group()."
        raise DataError(f"DataLoader(shard={shard!r}): a rank is from 0 to the number of ranks - 1.", hint)
    return rank, world


def _whole(variable: str) -> int:
    text = os.environ.get(variable, "")
    if not text.isdigit():
        raise DataError(
            f"DataLoader(shard=True): torch.distributed is not initialised, and {variable} is {text!r}.",
            "Call init_process_group() first, start with torchrun, or pass shard=(rank, ranks).",
        )
    return int(text)


def _check_shards(shards: int, world: int) -> None:
    if isinstance(shards, bool) or not isinstance(shards, int) or not 1 <= shards <= 1024 or shards % world:
        raise DataError(
            f"DataLoader(virtual_shards={shards!r}): a whole number from 1 to 1024, a multiple of the number of"
            f" ranks ({world})."
        )
