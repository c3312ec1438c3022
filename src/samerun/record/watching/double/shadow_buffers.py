"""Fresh memory once more, with something else in it.

Memory made by `empty` has a twin that holds other values. The second execution of each operator reads and
writes the twin. What was written is then the same in both; what differs was never written. When nothing differs
any more the twin is dropped. Results that only move elements get twins of their own, so that copying memory that
is not whole yet is nobody's fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from xxhash import xxh3_64_intdigest

from samerun.record.digests import digest as d
from samerun.record.watching import memory_fill
from samerun.record.watching.double.argument_copies import raw_bytes, tensor_at
from samerun.record.watching.double.memory_registry import weak_reference

OTHER_BYTE = 3
LARGE = 1 << 20
"""Twins of more bytes are compared only now and then."""
_NAMES = """
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
_MOVING = frozenset(_NAMES.split())
"""Operators whose results are made of elements of their inputs."""


def only_moves_elements(func: Any, args: Any, kwargs: Any) -> bool:
    """Does an operator only move elements? (Adding them where they are put is more than that.)"""
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
    __slots__ = ("origin", "seen", "storage", "touched", "weak")

    def __init__(self, storage: Any, other: Any, origin: UnwrittenOrigin) -> None:
        self.weak, self.storage, self.origin = weak_reference(storage), other, origin
        self.touched = 0
        self.seen = 0
        """Digest of the program's own memory when an operator had last touched it."""


class ShadowBuffers:
    """The twins of all fresh memory that is not wholly written."""

    def __init__(self) -> None:
        self.twins: dict[int, ShadowBuffer] = {}
        self._purge_at = 64

    def fresh(self, tensor: Any, made: int, how: str, kept: int = 0) -> None:
        """Give memory that was just made a twin. The first `kept` bytes of it are known already."""
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        if not size or not d.is_readable(tensor) or not may_vary(tensor):
            return
        other = torch.UntypedStorage(size, device=storage.device)  # type: ignore[no-untyped-call]
        raw_bytes(other, 0, size).fill_(OTHER_BYTE)
        width = tensor.element_size()
        whole = torch.empty(0, dtype=tensor.dtype, device=storage.device).set_(other, 0, (size // width,), (1,))
        memory_fill.fill(whole, "pattern")
        if kept:
            raw_bytes(other, 0, kept).copy_(raw_bytes(storage, 0, kept))
        self.add(storage, other, UnwrittenOrigin(made, how))

    def add(self, storage: Any, other: Any, origin: UnwrittenOrigin) -> None:
        if len(self.twins) > self._purge_at:
            for key, each in list(self.twins.items()):
                if each.weak.expired():
                    self.twins.pop(key, None)
            self._purge_at = max(64, 2 * len(self.twins))
        twin = self.twins[storage._cdata] = ShadowBuffer(storage, other, origin)
        twin.seen = _digest(storage)

    def of(self, tensor: Any) -> ShadowBuffer | None:
        """The twin of a tensor's memory. Dropped where another than torch has written to the memory."""
        if not self.twins or not d.is_readable(tensor):
            return None
        storage = tensor.untyped_storage()
        twin = self.twins.get(storage._cdata)
        if twin is None:
            return None
        changed = storage.nbytes() != twin.storage.nbytes()
        if not changed and _due(twin, storage.nbytes()):
            changed = _digest(storage) != twin.seen
        if changed:
            self.drop(storage)
            return None
        return twin

    def drop(self, storage: Any) -> None:
        self.twins.pop(storage._cdata, None)

    def touched(self, tensor: Any, twin: ShadowBuffer) -> None:
        """After an operator: is anything left that was not written?"""
        storage = tensor.untyped_storage()
        twin.touched += 1
        if not _due(twin, storage.nbytes()):
            return
        twin.seen = _digest(storage)
        if twin.seen == _digest(twin.storage):
            self.twins.pop(storage._cdata, None)

    def moved(self, result: Any, other: Any, origin: UnwrittenOrigin) -> None:
        """A result holds elements that were never written: `other`, of the other execution, becomes its twin."""
        mine, others = result.untyped_storage(), other.untyped_storage()
        if mine._cdata not in self.twins and mine.nbytes() == others.nbytes():
            self.add(mine, others, origin)


def may_vary(tensor: Any) -> bool:
    """May an operator be given other elements? On a GPU an index out of range would end the program."""
    return bool(tensor.is_cpu or tensor.is_floating_point() or tensor.is_complex())


def still_fresh(tensor: Any, twin: ShadowBuffer) -> bool:
    """Is what differs from the twin what fresh memory was filled with? Else others than operators wrote it."""
    if twin.origin.inside:
        return True
    mine, other = (each.contiguous().flatten().view(torch.uint8) for each in (tensor, view_of(tensor, twin)))
    return not bool(((mine != other) & (mine != 0)).any())


def view_of(tensor: Any, twin: ShadowBuffer) -> Any:
    return tensor_at(tensor, twin.storage)


def _due(twin: ShadowBuffer, size: int) -> bool:
    return size <= LARGE or not twin.touched & (twin.touched - 1)


def _digest(storage: Any) -> int:
    return xxh3_64_intdigest(d.digest(raw_bytes(storage, 0, storage.nbytes())))


def unwritten_used(before: Any, after: Any, other: Any) -> bool:
    """Has an operator that writes into fresh memory computed with elements that were never written?

    `before` and `after`: what it wrote into, in the program; `other`: in the twin. An element that differs and
    was left as it was is just not written yet.
    """
    a, b, c = (tensor.contiguous().flatten().view(torch.uint8) for tensor in (before, after, other))
    return bool(((b != c) & (a != b)).any())
