"""Load the samples of one batch, each with generators started from its own key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import get_worker_info

from samerun.data.generators import Section
from samerun.data.keys import Realm, numbers_of
from samerun.data.own_generators import OwnGenerators
from samerun.data.plain_samples import DRAW_NOTHING, samples_without_keys
from samerun.data.task import Loaded, Task
from samerun.data.unkeyed import Unkeyed


class KeyedDataset:
    """Stands before a map-style dataset: torch's machinery asks it for tasks, and gets whole batches.

    Samples come one by one, by `dataset[index]`, for each has random numbers of its own.
    """

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], kinds: frozenset[str], name: str) -> None:
        self.dataset, self.collate, self.kinds, self.name = dataset, collate, kinds, name
        self._own: OwnGenerators | None = None
        self._unkeyed = Unkeyed(kinds)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, task: Task) -> Any:
        plain = samples_without_keys(self.dataset, self.collate, task.indices)
        if plain is not None:
            return self.collate(plain[0] if task.alone else plain)
        if self._own is None:
            self._own = OwnGenerators({"dataset": self.dataset, "collate_fn": self.collate})
        self._own.before()
        self._unkeyed.before()
        with Section(task.seed, self.kinds, restore=get_worker_info() is None) as section:
            samples = self.samples(section, task)
            if self.collate not in DRAW_NOTHING:
                section.start(Realm(task.seed, self.name, task.epoch, "batch"), task.position)
            batch = self.collate(samples[0] if task.alone else samples)
            self._unkeyed.after()
        notes = self._own.after()
        return Loaded(batch, notes) if notes else batch

    def samples(self, section: Section, task: Task) -> list[Any]:
        """The samples of a task, inside `section`. What a sample raises names it."""
        dataset, indices = self.dataset, task.indices
        get = dataset.__getitem__ if hasattr(dataset, "__getitem__") else lambda index: dataset.__getitems__([index])[0]
        realm, numbers = Realm(task.seed, self.name, task.epoch), numbers_of(indices)
        samples: list[Any] = []
        try:
            section.load(realm, numbers, task.repetitions, get, indices, samples)
        except Exception as error:
            at = len(samples)
            _name(error, indices[at], task.epoch, 0 if task.repetitions is None else task.repetitions[at])
            raise
        return samples

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_own": None}


def _name(error: Exception, index: Any, epoch: int, repetition: int) -> None:
    """Add to an error which sample it was, and how to load just that one again."""
    again = f", repetition={repetition}" if repetition else ""
    note = (
        f"samerun: raised by sample {index!r} in epoch {epoch}. To load it again with the same random numbers:"
        f" samerun.data.replay(loader, epoch={epoch}, index={index!r}{again})"
    )
    if hasattr(error, "add_note"):
        error.add_note(note)
    elif len(error.args) == 1 and isinstance(error.args[0], str):  # Python 3.10
        error.args = (f"{error.args[0]}\n{note}",)
