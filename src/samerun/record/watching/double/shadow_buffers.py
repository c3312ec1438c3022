"""Shadow buffers: a second copy of fresh memory that holds other values, to find what is computed from garbage.

Memory made by `empty` gets a shadow buffer with other values. The second execution of each operator reads and writes
the shadow. What was written is then the same in both; what differs was never written. When nothing differs any more,
the shadow is dropped. Results that only move elements get shadows of their own, so that copying memory that is not
completely written yet is not reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from xxhash import xxh3_64_intdigest

from samerun.record.digests import digest as d
from samerun.record.watching import memory_fill
from samerun.record.watching.double.argument_copies import view_bytes, view_in_storage
from samerun.record.watching.double.memory_registry import weak_reference

OTHER_BYTE = 3
LARGE = 1 << 20
"""Bytes. Larger shadows are compared only at the 1st, 2nd, 4th, 8th, ... operator that touches them."""
_MOVING_NAMES = """
_chunk_cat _conj_copy _foreach_clone _foreach_copy_ _index_put_impl_ _neg_view_copy _pin_memory _reshape_copy
_to_copy _unsafe_index _unsafe_index_put alias_copy as_strided_copy as_strided_scatter cat channel_shuffle clone
constant_pad_nd copy copy_ detach_copy diagonal_copy diagonal_scatter embedding expand_copy fill_ flip gather
index index_copy index_copy_ index_fill index_fill_ index_put index_put_ index_select lift_fresh_copy masked_fill
masked_fill_ masked_scatter masked_scatter_ masked_select narrow_copy permute_copy pixel_shuffle pixel_unshuffle
put put_ repeat reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
replication_pad3d roll rot90 scatter scatter_ select_backward select_copy select_scatter slice_backward
slice_copy slice_scatter split_copy split_with_sizes_copy squeeze_copy stack t_copy take transpose_copy tril
tril_ triu triu_ unbind_copy unfold_copy unsafe_split unsafe_split_with_sizes unsqueeze_copy view_as_complex_copy
view_as_real_copy view_copy where
"""
_MOVING = frozenset(_MOVING_NAMES.split())
"""Operators whose results are made of elements of their inputs."""


def only_moves_elements(func: Any, args: Any, kwargs: Any) -> bool:
    """True if an operator only moves elements. (Accumulating where they are put is computing.)"""
    name = func._schema.name.split("::", 1)[1]
    if name not in _MOVING or kwargs.get("reduce") is not None or "reduce" in func._schema.overload_name:
        return False
    at = next((i for i, argument in enumerate(func._schema.arguments) if argument.name == "accumulate"), -1)
    return at < 0 or not (args[at] if at < len(args) else kwargs.get("accumulate", False))


@dataclass(frozen=True)
class UnwrittenOrigin:
    """Which operator left memory unwritten, and at which place. `inside`: in a result that it should have written."""

    made: int
    how: str
    inside: bool = False


class ShadowBuffer:
    """Other values for one piece of memory, and which operator left that memory unwritten."""

    __slots__ = ("last_digest", "origin", "storage", "touch_count", "weak")

    def __init__(self, storage: Any, other: Any, origin: UnwrittenOrigin) -> None:
        self.weak, self.storage, self.origin = weak_reference(storage), other, origin
        self.touch_count = 0
        self.last_digest = 0
        """Digest of the program's own memory when an operator had last touched it."""


class ShadowBuffers:
    """The shadow buffers of all fresh memory that is not completely written."""

    def __init__(self) -> None:
        self.shadows: dict[int, ShadowBuffer] = {}
        self._drop_above = 64

    def add_for_fresh(self, tensor: Any, made: int, how: str, known_bytes: int = 0) -> None:
        """Give memory that was just made a shadow. The first `known_bytes` bytes of it are known already."""
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        if not size or not d.is_readable(tensor) or not may_hold_other_values(tensor):
            return
        other = torch.UntypedStorage(size, device=storage.device)  # type: ignore[no-untyped-call]
        view_bytes(other, 0, size).fill_(OTHER_BYTE)
        width = tensor.element_size()
        whole = torch.empty(0, dtype=tensor.dtype, device=storage.device).set_(other, 0, (size // width,), (1,))
        memory_fill.fill_in_place(whole, "pattern")
        if known_bytes:
            view_bytes(other, 0, known_bytes).copy_(view_bytes(storage, 0, known_bytes))
        self.add_shadow(storage, other, UnwrittenOrigin(made, how))

    def add_shadow(self, storage: Any, other: Any, origin: UnwrittenOrigin) -> None:
        if len(self.shadows) > self._drop_above:
            for key, each in list(self.shadows.items()):
                if each.weak.expired():
                    self.shadows.pop(key, None)
            self._drop_above = max(64, 2 * len(self.shadows))
        shadow = self.shadows[storage._cdata] = ShadowBuffer(storage, other, origin)
        shadow.last_digest = _digest_storage(storage)

    def find_shadow(self, tensor: Any) -> ShadowBuffer | None:
        """The shadow of a tensor's memory. Dropped where another than torch has written to the memory."""
        if not self.shadows or not d.is_readable(tensor):
            return None
        storage = tensor.untyped_storage()
        shadow = self.shadows.get(storage._cdata)
        if shadow is None:
            return None
        changed = storage.nbytes() != shadow.storage.nbytes()
        if not changed and _should_compare(shadow, storage.nbytes()):
            changed = _digest_storage(storage) != shadow.last_digest
        if changed:
            self.drop(storage)
            return None
        return shadow

    def drop(self, storage: Any) -> None:
        self.shadows.pop(storage._cdata, None)

    def drop_if_written(self, tensor: Any, shadow: ShadowBuffer) -> None:
        """After an operator: drop the shadow if everything was written by now."""
        storage = tensor.untyped_storage()
        shadow.touch_count += 1
        if not _should_compare(shadow, storage.nbytes()):
            return
        shadow.last_digest = _digest_storage(storage)
        if shadow.last_digest == _digest_storage(shadow.storage):
            self.shadows.pop(storage._cdata, None)

    def add_for_moved_result(self, result: Any, other: Any, origin: UnwrittenOrigin) -> None:
        """A result holds elements that were never written: `other`, of the other execution, becomes its shadow."""
        mine, others = result.untyped_storage(), other.untyped_storage()
        if mine._cdata not in self.shadows and mine.nbytes() == others.nbytes():
            self.add_shadow(mine, others, origin)


def may_hold_other_values(tensor: Any) -> bool:
    """False for integers on a GPU: an index out of range would end the program."""
    return bool(tensor.is_cpu or tensor.is_floating_point() or tensor.is_complex())


def differs_only_where_fresh(tensor: Any, shadow: ShadowBuffer) -> bool:
    """True if all that differs from the shadow is still the initial fill; else something other than operators wrote."""
    if shadow.origin.inside:
        return True
    mine, other = (each.contiguous().flatten().view(torch.uint8) for each in (tensor, shadow_view(tensor, shadow)))
    return not bool(((mine != other) & (mine != 0)).any())


def shadow_view(tensor: Any, shadow: ShadowBuffer) -> Any:
    return view_in_storage(tensor, shadow.storage)


def _should_compare(shadow: ShadowBuffer, size: int) -> bool:
    return size <= LARGE or not shadow.touch_count & (shadow.touch_count - 1)


def _digest_storage(storage: Any) -> int:
    return xxh3_64_intdigest(d.digest(view_bytes(storage, 0, storage.nbytes())))


def used_unwritten_elements(before: Any, after: Any, after_in_shadow: Any) -> bool:
    """True if an operator that writes into fresh memory computed with elements that were never written.

    `before` and `after`: what it wrote into, in the program; `after_in_shadow`: in the shadow. An element that
    differs but was left as it was is merely not written yet.
    """
    a, b, c = (tensor.contiguous().flatten().view(torch.uint8) for tensor in (before, after, after_in_shadow))
    return bool(((b != c) & (a != b)).any())
