"""Load one sample again, with the random numbers it had."""

from __future__ import annotations

from typing import Any

from torch.utils.data import IterableDataset

from samerun.base.errors import DataError
from samerun.data.generators import Section
from samerun.data.loader import DataLoader
from samerun.data.samples import KeyedDataset
from samerun.data.task import Task


def replay(loader: DataLoader[Any], epoch: int, index: Any, repetition: int = 0) -> Any:
    """`loader.dataset[index]` as `loader` loads it in `epoch`: the sample alone, in this process, at once.

        sample = samerun.data.replay(loader, epoch=3, index=1234)

    repetition: of a sample that comes more than once in an epoch, which one; an error names it. No generator
    of the program moves.

    Raises DataError if the loader is none of samerun's, or its dataset is iterable; else what the dataset
    raises.
    """
    if not isinstance(loader, DataLoader):
        hint = "Pass a samerun.data.DataLoader: others do not key their samples."
        raise DataError(f"replay(): the loader is a {type(loader).__module__}.{type(loader).__name__}.", hint)
    if isinstance(loader.dataset, IterableDataset):
        hint = "Its samples have no index: they can only be read in order."
        raise DataError(f"replay(): {type(loader.dataset).__name__} is an iterable dataset.", hint)
    keyed = KeyedDataset(loader.dataset, loader.collate_fn, loader._kinds, loader.name)
    seed = loader._seed() if loader._progress is None else loader._progress.seed
    task = Task(seed, epoch, [index], [repetition] if repetition else None, 0, 0)
    with Section(seed, loader._kinds, restore=True) as section:
        return keyed.samples(section, task)[0]
