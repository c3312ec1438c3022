"""The seed from which this process derives its named streams, and the process's position among those that share it.

A process that was seeded itself has the path "". One that inherits a seed, by fork or with a pickled stream, has
the path of its parent with a part of its own appended, so that no two processes draw the same numbers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from samerun.base.errors import SeedError
from samerun.control.imported import find_imported_module


@dataclass(frozen=True)
class ProcessOrigin:
    """Where the seed of this process comes from, and what was true when it arrived.

    path: of the process that gave the seed. worker: the seed of the DataLoader worker that this process was
    then, or None. identity: its number among the processes of `multiprocessing`; None if that does not count,
    because the process was seeded itself. child: how many children its parent had started, this one included;
    None if it is no child. rank: the rank it knew of, or None.
    """

    path: str = ""
    worker: int | None = None
    identity: tuple[int, ...] | None = None
    child: int | None = None
    rank: int | None = None

    def current_path(self) -> str:
        """The path of the present process."""
        # A DataLoader worker and a multiprocessing child are forked or spawned by others: the first thing that
        # differs from the moment when the seed arrived tells which of the three this process has become.
        worker, identity = read_dataloader_worker_seed(), read_multiprocessing_identity()
        if worker is not None and worker != self.worker:
            return f"{self.path}/worker/{worker}"
        if self.identity is not None and identity != self.identity:
            return f"{self.path}/process/{'.'.join(map(str, identity))}"
        return self.path if self.child is None else f"{self.path}/child/{self.child}"

    def make_child_origin(self, child_number: int | None = None) -> ProcessOrigin:
        """The origin of a process that gets its seed from this one."""
        return ProcessOrigin(
            self.current_path(),
            read_dataloader_worker_seed(),
            read_multiprocessing_identity(),
            child_number,
            find_acting_rank(),
        )


def read_dataloader_worker_seed() -> int | None:
    """The seed of this DataLoader worker, another one for every worker and epoch; None outside of workers."""
    data = find_imported_module("torch.utils.data", "get_worker_info")
    info = None if data is None else data.get_worker_info()
    return None if info is None else int(info.seed)


def read_multiprocessing_identity() -> tuple[int, ...]:
    """(2, 1) in the first child of the second child that `multiprocessing` started; () in the main process."""
    process = sys.modules.get("multiprocessing.process")
    return () if process is None else tuple(getattr(process.current_process(), "_identity", ()))


def find_acting_rank() -> int | None:
    """torch.distributed's rank when it is initialised, else RANK of the environment, else None.

    Raises SeedError if RANK is not a whole number from 0.
    """
    if _acting_rank is not None:
        return _acting_rank
    distributed = find_imported_module("torch.distributed", "is_available", "is_initialized", "get_rank")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    rank = os.environ.get("RANK", "")
    if not rank:
        return None
    if not (rank.isascii() and rank.isdigit()):
        raise SeedError(
            f"RANK={rank!r} in the environment: a rank is a whole number from 0.",
            "Unset RANK, or start the program with torchrun, which sets it.",
        )
    return int(rank)


_acting_rank: int | None = None


@contextmanager
def acting_as_rank(rank: int) -> Iterator[None]:
    """A block in which named streams are those of another rank, whose step is computed here."""
    global _acting_rank
    before, _acting_rank = _acting_rank, rank
    try:
        yield
    finally:
        _acting_rank = before


_seed: int | None = None
_origin = ProcessOrigin()
_children = 0


def current_streams_seed() -> int | None:
    """The seed of all named streams; None if there is none yet."""
    return _seed


def current_origin() -> ProcessOrigin:
    """How this process got its seed."""
    return _origin


def set_streams_seed(seed: int | None, lineage_path: str = "") -> None:
    """Derive from `seed` from now on, as a process with this path; "": one that was seeded itself."""
    global _seed, _origin
    _seed, _origin = seed, ProcessOrigin(lineage_path, read_dataloader_worker_seed(), rank=_origin.rank)


def set_streams_seed_and_origin(seed: int | None, origin: ProcessOrigin) -> None:
    """Derive from `seed` from now on, as a process that got it as `origin` says."""
    global _seed, _origin
    _seed, _origin = seed, origin


def count_child_and_make_origin() -> ProcessOrigin:
    """The origin to be sent to a child that is being spawned."""
    global _children
    _children += 1
    return _origin.make_child_origin(_children)


def adopt_streams_seed_if_none(sender_seed: int | None, sender_origin: ProcessOrigin) -> None:
    """Take over the seed of another process, if this one has none."""
    global _seed, _origin
    if _seed is None and (sender_seed is not None or _origin == ProcessOrigin()):
        _seed, _origin = sender_seed, sender_origin


def _count_child_before_fork() -> None:
    global _children
    _children += 1


def _derive_child_origin_after_fork() -> None:
    global _children, _origin
    _children, _origin = 0, _origin.make_child_origin(_children)


os.register_at_fork(before=_count_child_before_fork, after_in_child=_derive_child_origin_after_fork)
