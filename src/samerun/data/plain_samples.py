"""Samples that need no keys: those for which nothing runs but Python's and torch's own code, which draws nothing.

What is known by construction, and nothing else: tensors of a `TensorDataset`, plain values in a list, a tuple or a
range, and subsets of these, put together by torch's own `default_collate`. Classes that derive from these may run
code of the user's, and so may a mode that stands around torch's operators: then samples are keyed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import Subset, TensorDataset, default_collate, default_convert
from torch.utils.data._utils.collate import default_collate_fn_map

DRAW_NOTHING = (default_collate, default_convert)
_PLAIN = frozenset({torch.Tensor, int, float, bool, str, bytes})
_OF_TORCH = TensorDataset.__getitem__, Subset.__getitem__


def samples_without_keys(dataset: Any, collate: Any, indices: list[Any]) -> list[Any] | None:
    """`dataset[index]` for each, or None if they are to be keyed: also where one of them raises."""
    if collate not in DRAW_NOTHING or not all(type(index) is int for index in indices):
        return None
    if (TensorDataset.__getitem__, Subset.__getitem__) != _OF_TORCH or _modes() or _own_collate():
        return None
    try:
        return _samples(dataset, indices)
    except (IndexError, TypeError):
        return None


def _samples(dataset: Any, indices: list[int]) -> list[Any] | None:
    kind = type(dataset)
    if kind is TensorDataset:
        tensors = dataset.tensors
        if not all(type(tensor) is torch.Tensor for tensor in tensors):
            return None
        return [tuple(tensor[index] for tensor in tensors) for index in indices]
    if kind is Subset and type(dataset.indices) in (list, tuple, range):
        inner = [dataset.indices[index] for index in indices]
        return _samples(dataset.dataset, inner) if all(type(index) is int for index in inner) else None
    if kind in (list, tuple, range):
        samples = [dataset[index] for index in indices]
        return samples if all(_plain(sample) for sample in samples) else None
    return None


def _plain(sample: Any) -> bool:
    kind = type(sample)
    if kind is tuple or kind is list:
        return all(type(part) in _PLAIN for part in sample)
    return kind in _PLAIN


def _modes() -> bool:
    """Whether something stands around torch's operators here, as far as this torch tells."""
    inside: Any = torch._C
    return bool(inside._len_torch_function_stack() or inside._len_torch_dispatch_stack())


def _own_collate() -> bool:
    """Whether the user has told `default_collate` how to put some values together."""
    return any(function.__module__ != default_collate.__module__ for function in default_collate_fn_map.values())
