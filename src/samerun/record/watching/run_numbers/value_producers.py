"""Which operator of a step made the value that a tensor holds. Imports torch."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from samerun.record.digests.digest import is_readable
from samerun.record.watching import stack_frames
from samerun.record.watching.run_numbers.tensor_numbers import geometry_key, storage_key
from samerun.record.watching.watched_operator import flatten_to_tensors_and_stable_values

Producer = tuple[int, int]
"""The number of an operator in its step, and that of its result."""
UserLines = tuple[tuple[str, int], ...]
"""File and line of one place in the program, or none."""
NOT_OF_THIS_STEP: Producer = (-1, 0)
OVERWRITING = ("aten.copy_.", "aten.fill_.", "aten.zero_.", "aten.normal_.", "aten.uniform_.", "aten.bernoulli_.")
"""How operators begin that write a whole tensor, of whose old value nothing is left."""


def move_producer(producer: Producer, cut: int) -> Producer:
    """The producer where the first operators of its list are cut off."""
    at, number = producer
    return (at - cut, number) if at >= cut else NOT_OF_THIS_STEP


class DetachedOperand(NamedTuple):
    """An operand that requires no gradients, though they are recorded, and the line that detached it, if one did."""

    producer: Producer
    detached_at: UserLines


REORDERING = frozenset(("aten::permute", "aten::transpose"))


def fills_its_memory(tensor: Any) -> bool:
    """Whether the elements are all that the memory of a tensor holds: a part that is written leaves the rest."""
    if not is_readable(tensor):
        return False
    return bool(tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes())


class ValueProducers:
    """By memory; of what `as_strided` lays over memory, which is a value of its own, by memory and geometry."""

    def __init__(self) -> None:
        self._by_storage: dict[int, Producer] = {}
        self._of_views: dict[tuple[Any, ...], Producer] = {}
        self._detached_at: dict[int, UserLines] = {}
        """By memory, the user's line that last detached what it holds."""
        self._reordered: dict[int, dict[tuple[Any, ...], tuple[Any, ...]]] = {}
        """By memory, the geometry of views with their dimensions in another order, and that which they are views of."""
        self._storages: dict[int, StorageWeakRef] = {}
        """Whose memory may be freed, but whose addresses, which the keys above are, no other storage gets meanwhile."""

    def _hold_key(self, tensor: Any) -> int:
        key = storage_key(tensor)
        if key not in self._storages and is_readable(tensor):
            self._storages[key] = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
        return key

    def find(self, tensor: Any) -> Producer:
        made = self._of_views.get(geometry_key(tensor)) if self._of_views else None
        return made or self._by_storage.get(storage_key(tensor), NOT_OF_THIS_STEP)

    def find_attached_and_detached(self, operands: list[Any]) -> tuple[list[Producer], list[DetachedOperand]]:
        """Operands of this step that require gradients, and floating ones that do not; none where gradients are not
        recorded.
        """
        if not torch.is_grad_enabled():
            return [], []
        attached = {self.find(t) for t in operands if t.requires_grad}
        detached = {DetachedOperand(self.find(t), self._detached_at.get(storage_key(t), ())) for t in operands
                    if not t.requires_grad and t.is_floating_point()}  # fmt: skip
        return sorted(attached - {NOT_OF_THIS_STEP}), sorted(x for x in detached if x.producer != NOT_OF_THIS_STEP)

    def note(self, tensor: Any, producer: Producer, is_view: bool) -> None:
        storage = self._hold_key(tensor)
        if is_view:
            self._of_views[geometry_key(tensor)] = producer
            return
        self._by_storage[storage] = producer
        self._detached_at.pop(storage, None)
        self._reordered.pop(storage, None)
        if self._of_views:  # it was written into
            self._of_views = {key: made for key, made in self._of_views.items() if key[0] != storage}

    def note_further_views(self, schema_name: str, base: Any, views: Any) -> bool:
        """Views of what `as_strided` gave hold what it made.

        Returns whether a view is a value of its own: dimensions that were put into another order become one.
        """
        if schema_name == "aten::detach" and base.requires_grad and torch.is_grad_enabled():
            self._detached_at[self._hold_key(base)] = stack_frames.list_user_lines()[:1]
        made = self._of_views.get(geometry_key(base)) if self._of_views and base is not None else None
        if made is not None:
            tensors: list[Any] = []
            flatten_to_tensors_and_stable_values((views,), torch.Tensor, tensors, [])
            self._of_views.update((geometry_key(each), made) for each in tensors)
        if base is None or not is_readable(base):
            return False
        reordered, key = self._reordered.setdefault(self._hold_key(base), {}), geometry_key(base)
        origin = reordered.get(key, key)
        if schema_name in REORDERING and geometry_key(views) != origin:
            reordered[geometry_key(views)] = origin
        return schema_name == "aten::view" and origin != key and count_dimensions(views) < count_dimensions(base)

    def cut_off(self, count: int) -> None:
        """Forget what the first operators made: the next one is number 0."""
        self._by_storage = {key: (at - count, n) for key, (at, n) in self._by_storage.items() if at >= count}
        self._of_views = {key: (at - count, n) for key, (at, n) in self._of_views.items() if at >= count}
        if not self._by_storage and not self._of_views:
            self._detached_at.clear()
            self._reordered.clear()
            self._storages.clear()


def count_dimensions(tensor: Any) -> int:
    return sum(size != 1 for size in tensor.shape)
