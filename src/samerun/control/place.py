"""Which process is this: its rank, and its place among the processes that share one seed.

A process that seeds itself has the place "". One that inherits a seed, by fork or with a pickled stream, has
the place of its parent and a part of its own behind it, so that no two draw the same.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from samerun.base.errors import SeedError
from samerun.control.imported import find_imported


@dataclass(frozen=True)
class Origin:
    """Where the seed of this process comes from, and what was true there.

    place: the place of the process that gave the seed. worker: the seed of the DataLoader worker that it was,
    or None. identity: its number among the processes of `multiprocessing`; None if that does not count, for
    the process was seeded itself. child: how many children it had had, this one included; None if this is
    none of them. rank: the rank it knew of, or None.
    """

    place: str = ""
    worker: int | None = None
    identity: tuple[int, ...] | None = None
    child: int | None = None
    rank: int | None = None

    def here(self) -> str:
        """The place of the present process."""
        worker, identity = worker_seed(), process_identity()
        if worker is not None and worker != self.worker:
            return f"{self.place}/worker/{worker}"
        if self.identity is not None and identity != self.identity:
            return f"{self.place}/process/{'.'.join(map(str, identity))}"
        return self.place if self.child is None else f"{self.place}/child/{self.child}"

    def handed_on(self, child: int | None = None) -> Origin:
        """The origin of a process that gets its seed from this one."""
        return Origin(self.here(), worker_seed(), process_identity(), child, known_rank())


def seeded_here() -> Origin:
    """The origin of a process that has just been seeded itself."""
    return Origin(worker=worker_seed())


def worker_seed() -> int | None:
    """The seed of this DataLoader worker, another one for every worker and epoch; None outside of workers."""
    data = find_imported("torch.utils.data", "get_worker_info")
    info = None if data is None else data.get_worker_info()
    return None if info is None else int(info.seed)


def process_identity() -> tuple[int, ...]:
    """(2, 1) in the first child of the second child that `multiprocessing` started; () in the main process."""
    process = sys.modules.get("multiprocessing.process")
    return () if process is None else tuple(getattr(process.current_process(), "_identity", ()))


def known_rank() -> int | None:
    """torch.distributed's rank when it is initialised, else RANK of the environment, else None.

    Raises SeedError if RANK is no whole number from 0.
    """
    distributed = find_imported("torch.distributed", "is_available", "is_initialized", "get_rank")
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
