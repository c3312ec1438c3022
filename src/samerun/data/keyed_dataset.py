"""Load the samples of one batch of a map-style dataset, each with generators seeded from its own key.

Some samples need no keys: those for which only Python's and torch's own code runs, which draws nothing. These are
recognized by construction and nothing else: tensors of a `TensorDataset`, plain values in a list, a tuple or a range,
and subsets of these, collated by torch's own `default_collate`. Subclasses of these may run the user's code, and so
may a mode around torch's operators: then samples are keyed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import Subset, TensorDataset, default_collate, default_convert, get_worker_info
from torch.utils.data._utils.collate import default_collate_fn_map

from samerun.data.batch_tasks import BatchTask, LoadedBatch
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
        plain = try_load_without_keys(self.dataset, self.collate, task.indices)
        if plain is not None:
            return self.collate(plain[0] if task.alone else plain)
        if self._private_generators is None:
            self._private_generators = PrivateGeneratorMonitor({"dataset": self.dataset, "collate_fn": self.collate})
        self._private_generators.start_batch()
        self._unkeyed_draws.start_batch()
        with SeededSection(task.seed, self.kinds, restore=get_worker_info() is None) as section:
            samples = self.load_samples(section, task)
            if self.collate not in TORCH_COLLATES:
                section.seed_for(KeyContext(task.seed, self.name, task.epoch, "batch"), task.position)
            batch = self.collate(samples[0] if task.alone else samples)
            self._unkeyed_draws.finish_batch()
        notes = self._private_generators.finish_batch()
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


def try_load_without_keys(dataset: Any, collate: Any, indices: list[Any]) -> list[Any] | None:
    """Return `dataset[index]` for each index, or None if the samples must be keyed, also if one of them raises."""
    if collate not in TORCH_COLLATES or not all(type(index) is int for index in indices):
        return None
    patched = (TensorDataset.__getitem__, Subset.__getitem__) != _TORCH_GETITEMS
    if patched or _torch_modes_are_active() or _user_changed_default_collate():
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


def _user_changed_default_collate() -> bool:
    """Return whether the user has registered a function with `default_collate`."""
    return any(function.__module__ != default_collate.__module__ for function in default_collate_fn_map.values())
