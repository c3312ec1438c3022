"""One iteration over a loader: which epoch, from where, and how far the program has come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass
class Progress:
    """What `state_dict` tells.

    seen: samples of the epoch that were handed over, on all ranks together. batches: on this rank. begin: both
    where this iteration began. shards: of an iterable dataset, how many samples of each were handed over;
    `ended`: which of them have no more; states: where the dataset said it stands in those that go on; following:
    which comes next; own: those of this rank.
    """

    seed: int
    epoch: int
    turn: int = 0
    begin: int = 0
    begin_batches: int = 0
    seen: int = 0
    batches: int = 0
    finished: bool = False
    shards: dict[int, int] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    states: dict[int, Any] = field(default_factory=dict)
    following: int = 0
    own: list[int] = field(default_factory=list)

    def at_begin(self) -> Progress:
        """The same place, as the beginning of an iteration."""
        self.begin, self.begin_batches = self.seen, self.batches
        return self


class Issued(Generic[T]):
    """Iterates over tasks for torch's iterator, and remembers those whose batches are still to come."""

    def __init__(self, tasks: Iterator[T], progress: Progress) -> None:
        self.tasks, self.progress = tasks, progress
        self.waiting: deque[T] = deque()

    def __iter__(self) -> Issued[T]:
        return self

    def __next__(self) -> T:
        task = next(self.tasks)
        self.waiting.append(task)
        return task


class Plan:
    """In the place of torch's batch sampler. Iterated anew whenever an iteration over the loader begins."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Issued[Any]:
        return Issued(self.loader._tasks(self.loader._progress), self.loader._progress)

    def __len__(self) -> int:
        return len(self.loader)
