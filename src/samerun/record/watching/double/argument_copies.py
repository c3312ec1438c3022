"""The arguments of an operator once more, on other memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from samerun.record.digests import digest as d

ALIGNMENT = 64
"""Kernels may go another way where memory lies otherwise: copies lie on the same address modulo this."""


def view_in_storage(tensor: Any, storage: Any, shift: int = 0) -> Any:
    """A tensor like the given one, but `shift` bytes further on in other memory."""
    offset = tensor.storage_offset() + shift // tensor.element_size()
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    made.set_(storage, offset, tensor.size(), tensor.stride())
    if tensor.is_conj():
        made = torch.conj(made)
    return torch._neg_view(made) if tensor.is_neg() else made


def byte_span(tensor: Any) -> tuple[int, int]:
    """First byte of its memory that a tensor touches, and the one behind the last."""
    first = tensor.storage_offset() * tensor.element_size()
    last = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    return first, first + (last + 1) * tensor.element_size()


def view_bytes(storage: Any, first: int, size: int) -> Any:
    """Bytes of some memory as a tensor, without a copy."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, first, (size,), (1,))


def copy_tensors(tensors: Iterable[Any]) -> dict[int, Any]:
    """A copy of each tensor, by its `id`. Tensors that share memory share it in their copies too."""
    copies: dict[int, Any] = {}
    groups: dict[int, list[Any]] = {}
    for tensor in tensors:
        if d.is_readable(tensor) and tensor.numel():
            groups.setdefault(tensor.untyped_storage()._cdata, []).append(tensor)
        else:
            copies[id(tensor)] = tensor.clone()
    for group in groups.values():
        copies.update(_copy_sharing_tensors(group))
    return copies


def _copy_sharing_tensors(group: list[Any]) -> dict[int, Any]:
    """Copies of tensors that lie in one piece of memory: the part that they touch, once."""
    storage = group[0].untyped_storage()
    spans = [byte_span(tensor) for tensor in group]
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    room = (storage.data_ptr() + first) % ALIGNMENT
    if any((room - first) % tensor.element_size() for tensor in group):
        room = first % ALIGNMENT  # memory that is not even aligned to its elements: keep offsets whole
    copy = torch.UntypedStorage(last - first + room, device=storage.device)  # type: ignore[no-untyped-call]
    view_bytes(copy, room, last - first).copy_(view_bytes(storage, first, last - first))
    return {id(tensor): view_in_storage(tensor, copy, room - first) for tensor in group}


def substitute_tensors(arguments: Any, replacements: Mapping[int, Any]) -> Any:
    """Arguments with some tensors replaced, by their `id`, through lists, tuples and dicts."""
    kind = type(arguments)
    if kind in (list, tuple):
        return kind(substitute_tensors(item, replacements) for item in arguments)
    if kind is dict:
        return {name: substitute_tensors(item, replacements) for name, item in arguments.items()}
    return replacements.get(id(arguments), arguments)
