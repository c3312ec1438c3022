"""What memory held when it was last seen and who wrote it; and shadow buffers, to find what is computed from garbage.

Memory made by `empty` gets a shadow buffer with other values. The second execution of each operator reads and writes
the shadow. What was written is then the same in both; what differs was never written. When nothing differs any more,
the shadow is dropped. Results that only move elements get shadows of their own, so that copying memory that is not
completely written yet is not reported.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from xxhash import xxh3_64_intdigest

from samerun.record.digests import digest as d
from samerun.record.digests.torch_guards import is_plain_cpu_tensor
from samerun.record.watching import thread_state
from samerun.record.watching.double_execution.double_findings import OUTSIDE, RACE
from samerun.record.watching.double_execution.execution import view_bytes, view_in_storage
from samerun.record.watching.interceptors import fresh_memory


def make_weak_storage_reference(storage: Any) -> Any:
    """It keeps the storage's address from being given to another one; not the memory."""
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


class MemoryRecord:
    """One piece of memory.

    `made` and `shared` are numbers of places; `how` says what gave the memory to others. `write`: stands for the
    last execution of an operator that wrote to it, done or under way; `writer` and `written_at` are its thread
    and place; `writing` how many are under way, `contested` whether any two of these were. `mixed`: operators
    of several threads have written to it. `outside`: written by others at times that nobody can tell (a
    collective that is under way): it is not looked at. `foreign`: another thread was seen to write to it, and
    not by an operator. `waits`: how often each thread had waited when it last looked.
    """

    __slots__ = ("address", "contested", "digests", "foreign", "how", "made", "mixed", "outside", "shared", "waits",
                 "weak", "write", "writer", "writing", "written_at")  # fmt: skip

    def __init__(self, storage: Any) -> None:
        self.weak = make_weak_storage_reference(storage)
        self.address = storage.data_ptr()
        self.digests: dict[Any, bytes] = {}
        self.made = self.shared = 0
        self.how = ""
        self.writer, self.written_at = -1, 0
        self.write: Any = None
        self.writing, self.contested, self.mixed = 0, False, False
        self.outside = self.foreign = False
        self.waits: dict[int, int] = {}


class TensorCheck(NamedTuple):
    """The digest of a tensor now, and the kind of finding to report about it, or ""."""

    digest: bytes | None
    finding: str


class MemoryRegistry:
    """The records of all memory that operators have used and that is still alive."""

    def __init__(self) -> None:
        self.records: dict[int, MemoryRecord] = {}
        self._drop_above = 256

    def find_or_add_record(self, storage: Any, allocated_at_location: int = 0) -> MemoryRecord:
        """The record of some memory; noted as made at the place `allocated_at_location` if it is new."""
        record = self.records.get(storage._cdata)
        if record is None or record.address != storage.data_ptr():  # another address: it was resized
            record = self.records[storage._cdata] = MemoryRecord(storage)
            record.made = allocated_at_location
            if len(self.records) > self._drop_above:
                self.drop_freed_records()
        return record

    def drop_freed_records(self) -> None:
        """Forget memory that is gone."""
        for key, record in list(self.records.items()):
            if record.weak.expired():
                self.records.pop(key, None)
        self._drop_above = max(256, 2 * len(self.records))

    def clear(self) -> None:
        self.records.clear()

    def digest_and_detect_foreign_write(self, tensor: Any, thread_number: int) -> TensorCheck:
        """Digest a tensor and say what to report about it.

        Reported is OUTSIDE if the digest differs from when the tensor was last used, and RACE if, besides, another
        thread was seen to write and this one has not waited for any since it last checked.

        None instead of a digest for what is not checked: other devices, and views that would have to be copied for
        it, unless the memory was shared.
        """
        if not is_plain_cpu_tensor(tensor) or not tensor.numel():
            return TensorCheck(None, "")
        record = self.find_or_add_record(tensor.untyped_storage())
        if record.outside or not (record.shared or tensor.is_contiguous()):
            return TensorCheck(None, "")
        key = _geometry(tensor)
        write, before = record.write, record.digests.get(key)
        now = d.digest(tensor)
        waited = record.waits.get(thread_number) != thread_state.count_waits_of_this_thread()
        record.waits[thread_number] = thread_state.count_waits_of_this_thread()
        if record.write is not write or record.digests.get(key) is not before:
            return TensorCheck(now, "")  # an operator of another thread has begun or ended to write meanwhile
        record.digests[key] = now
        if before is None or before == now or (record.mixed and not record.how):
            return TensorCheck(
                now, ""
            )  # where operators of several threads write, what was last seen may be older than it seems
        raced, record.foreign = record.foreign and not waited, False
        return TensorCheck(now, RACE if raced else OUTSIDE)

    def note_write_begin(self, tensor: Any, execution_token: Any, thread_number: int, location_id: int) -> None:
        """An operator is about to write to a tensor; `execution_token` stands for this execution of it."""
        record = self.find_or_add_record(tensor.untyped_storage())
        record.mixed = record.mixed or record.writer not in (-1, thread_number)
        record.write, record.writer, record.written_at = execution_token, thread_number, location_id
        record.contested = record.contested or record.writing > 0
        record.writing += 1
        record.digests.clear()

    def note_write_end(self, tensor: Any, execution_token: Any, digest_after: bytes | None) -> None:
        """The operator ended; `digest_after`: its digest, None if it failed. Dropped if another wrote meanwhile."""
        record = self.find_or_add_record(tensor.untyped_storage())
        record.writing = max(0, record.writing - 1)
        record.digests.clear()
        if (
            digest_after is not None
            and record.write is execution_token
            and not record.contested
            and is_plain_cpu_tensor(tensor)
        ):
            record.digests[_geometry(tensor)] = digest_after
        if not record.writing:
            record.contested = False

    def note_result(self, tensor: Any, digest: bytes, thread_number: int, location_id: int) -> None:
        """An operator gave a tensor back; new memory was made at `location_id`."""
        record = self.find_or_add_record(tensor.untyped_storage(), location_id)
        if record.writer < 0:
            record.writer, record.written_at = thread_number, location_id
        if is_plain_cpu_tensor(tensor):
            record.digests[_geometry(tensor)] = digest

    def drop_known_digests(self, tensor: Any, changes_at_any_time: bool = False) -> None:
        """Something that is no operator may have written to a tensor, or may do so at any time."""
        record = self.find_or_add_record(tensor.untyped_storage())
        record.digests.clear()
        record.outside = record.outside or changes_at_any_time


def _geometry(tensor: Any) -> Any:
    return tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg()


MOST_BYTES = 1 << 20
MOST_WATCHED = 8
"""How many pieces of memory are watched at most: those that were shared last."""

SharedSnapshot = list[tuple[MemoryRecord, Any, bytes]]


class SharedMemoryMonitor:
    """Finds out whether shared memory changes while this thread executes an operator: then another thread wrote it."""

    def __init__(self) -> None:
        self._shared: dict[int, MemoryRecord] = {}

    def watch_shared_memory(self, record: MemoryRecord) -> None:
        """Memory that others can write from now on."""
        self._shared.pop(id(record), None)
        self._shared[id(record)] = record
        for key in [key for key, record in list(self._shared.items()) if record.weak.expired()]:
            self._shared.pop(key, None)
        while len(self._shared) > MOST_WATCHED:
            self._shared.pop(next(iter(self._shared)), None)

    def clear(self) -> None:
        self._shared.clear()

    def take_snapshot(self) -> SharedSnapshot:
        """What shared memory holds before an operator; empty if there are no other threads."""
        if not self._shared or threading.active_count() < 2:
            return []
        digests = ((record, digest_shared_memory(record)) for record in list(self._shared.values()))
        return [(record, record.write, value) for record, value in digests if value is not None]

    def mark_foreign_writes_since(self, snapshot: SharedSnapshot) -> None:
        """After the operator: what has changed, and not by an operator, was written by another thread."""
        for record, write, value in snapshot:
            if record.write is write and digest_shared_memory(record) not in (value, None):
                record.foreign = True


def digest_shared_memory(record: MemoryRecord) -> bytes | None:
    storage = torch.UntypedStorage._new_with_weak_ptr(record.weak.cdata)
    if storage is None or not 0 < storage.nbytes() <= MOST_BYTES or storage.device.type != "cpu":
        return None
    return d.digest(view_bytes(storage, 0, storage.nbytes()))


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

    def __init__(self, storage: Any, shadow_storage: Any, origin: UnwrittenOrigin) -> None:
        self.weak, self.storage, self.origin = make_weak_storage_reference(storage), shadow_storage, origin
        self.touch_count = 0
        self.last_digest = 0
        """Digest of the program's own memory when an operator had last touched it."""


class ShadowBuffers:
    """The shadow buffers of all fresh memory that is not completely written."""

    def __init__(self) -> None:
        self.shadows: dict[int, ShadowBuffer] = {}
        self._drop_above = 64

    def add_for_uninitialized(
        self, tensor: Any, location_id: int, operator_name: str, initialized_bytes: int = 0
    ) -> None:
        """Give memory that was just made a shadow. The first `initialized_bytes` bytes of it are known already."""
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        if not size or not d.is_readable(tensor) or not tolerates_arbitrary_values(tensor):
            return
        other = torch.UntypedStorage(size, device=storage.device)  # type: ignore[no-untyped-call]
        view_bytes(other, 0, size).fill_(OTHER_BYTE)
        width = tensor.element_size()
        whole = torch.empty(0, dtype=tensor.dtype, device=storage.device).set_(other, 0, (size // width,), (1,))
        fresh_memory.fill_uninitialized_if_possible(whole, "pattern")
        if initialized_bytes:
            view_bytes(other, 0, initialized_bytes).copy_(view_bytes(storage, 0, initialized_bytes))
        self.add_shadow(storage, other, UnwrittenOrigin(location_id, operator_name))

    def add_shadow(self, storage: Any, shadow_storage: Any, origin: UnwrittenOrigin) -> None:
        if len(self.shadows) > self._drop_above:
            for key, each in list(self.shadows.items()):
                if each.weak.expired():
                    self.shadows.pop(key, None)
            self._drop_above = max(64, 2 * len(self.shadows))
        shadow = self.shadows[storage._cdata] = ShadowBuffer(storage, shadow_storage, origin)
        shadow.last_digest = _digest_storage(storage)

    def find_shadow_or_drop_outdated(self, tensor: Any) -> ShadowBuffer | None:
        """The shadow of a tensor's memory. Dropped where another than torch has written to the memory."""
        if not self.shadows or not d.is_readable(tensor):
            return None
        storage = tensor.untyped_storage()
        shadow = self.shadows.get(storage._cdata)
        if shadow is None:
            return None
        changed = storage.nbytes() != shadow.storage.nbytes()
        if not changed and _is_comparison_due(shadow, storage.nbytes()):
            changed = _digest_storage(storage) != shadow.last_digest
        if changed:
            self.drop(storage)
            return None
        return shadow

    def drop(self, storage: Any) -> None:
        self.shadows.pop(storage._cdata, None)

    def drop_if_contents_equal_shadow(self, tensor: Any, shadow: ShadowBuffer) -> None:
        """After an operator: drop the shadow if everything was written by now."""
        storage = tensor.untyped_storage()
        shadow.touch_count += 1
        if not _is_comparison_due(shadow, storage.nbytes()):
            return
        shadow.last_digest = _digest_storage(storage)
        if shadow.last_digest == _digest_storage(shadow.storage):
            self.shadows.pop(storage._cdata, None)

    def add_for_result_with_unwritten_elements(
        self, result: Any, result_in_shadow: Any, origin: UnwrittenOrigin
    ) -> None:
        """A result holds elements that were never written: `result_in_shadow` becomes its shadow."""
        mine, others = result.untyped_storage(), result_in_shadow.untyped_storage()
        if mine._cdata not in self.shadows and mine.nbytes() == others.nbytes():
            self.add_shadow(mine, others, origin)


def tolerates_arbitrary_values(tensor: Any) -> bool:
    """False for integers on a GPU: an index out of range would end the program."""
    return bool(tensor.is_cpu or tensor.is_floating_point() or tensor.is_complex())


def differs_only_where_uninitialized(tensor: Any, shadow: ShadowBuffer) -> bool:
    """True if all that differs from the shadow is still the initial fill; else something other than operators wrote."""
    if shadow.origin.inside:
        return True
    mine, other = (each.contiguous().flatten().view(torch.uint8) for each in (tensor, view_in_shadow(tensor, shadow)))
    return not bool(((mine != other) & (mine != 0)).any())


def view_in_shadow(tensor: Any, shadow: ShadowBuffer) -> Any:
    return view_in_storage(tensor, shadow.storage)


def _is_comparison_due(shadow: ShadowBuffer, byte_count: int) -> bool:
    return byte_count <= LARGE or not shadow.touch_count & (shadow.touch_count - 1)


def _digest_storage(storage: Any) -> int:
    return xxh3_64_intdigest(d.digest(view_bytes(storage, 0, storage.nbytes())))


def used_uninitialized_elements(before: Any, after: Any, after_in_shadow: Any) -> bool:
    """True if an operator that writes into fresh memory computed with elements that were never written.

    `before` and `after`: what it wrote into, in the program; `after_in_shadow`: in the shadow. An element that
    differs but was left as it was is merely not written yet.
    """
    a, b, c = (tensor.contiguous().flatten().view(torch.uint8) for tensor in (before, after, after_in_shadow))
    return bool(((b != c) & (a != b)).any())
