"""What every piece of memory held when it was last seen, who wrote it then, and who else can reach it."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from samerun.record.digests import digest as d
from samerun.record.digests.torch_guards import is_plain
from samerun.record.watching.double import wait_counter
from samerun.record.watching.double.argument_copies import view_bytes
from samerun.record.watching.double.double_findings import OUTSIDE, RACE


def weak_reference(storage: Any) -> Any:
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
        self.weak = weak_reference(storage)
        self.address = storage.data_ptr()
        self.digests: dict[Any, bytes] = {}
        self.made = self.shared = 0
        self.how = ""
        self.writer, self.written_at = -1, 0
        self.write: Any = None
        self.writing, self.contested, self.mixed = 0, False, False
        self.outside = self.foreign = False
        self.waits: dict[int, int] = {}


class MemoryRegistry:
    """The records of all memory that operators have used and that is still alive."""

    def __init__(self) -> None:
        self.records: dict[int, MemoryRecord] = {}
        self._drop_above = 256

    def find_or_add_record(self, storage: Any, made: int = 0) -> MemoryRecord:
        """The record of some memory; noted as made at the place `made` if it is new."""
        record = self.records.get(storage._cdata)
        if record is None or record.address != storage.data_ptr():  # another address: it was resized
            record = self.records[storage._cdata] = MemoryRecord(storage)
            record.made = made
            if len(self.records) > self._drop_above:
                self.drop_expired()
        return record

    def drop_expired(self) -> None:
        """Forget memory that is gone."""
        for key, record in list(self.records.items()):
            if record.weak.expired():
                self.records.pop(key, None)
        self._drop_above = max(256, 2 * len(self.records))

    def clear(self) -> None:
        self.records.clear()

    def check_tensor(self, tensor: Any, thread: int) -> tuple[bytes | None, str]:
        """(digest of a tensor now, what to report about it).

        Reported is OUTSIDE if the digest differs from when the tensor was last used, and RACE if, besides, another
        thread was seen to write and this one has not waited for any since it last checked.

        None instead of a digest for what is not checked: other devices, and views that would have to be copied for
        it, unless the memory was shared.
        """
        if not is_plain(tensor) or not tensor.numel():
            return None, ""
        record = self.find_or_add_record(tensor.untyped_storage())
        if record.outside or not (record.shared or tensor.is_contiguous()):
            return None, ""
        key = _geometry(tensor)
        write, before = record.write, record.digests.get(key)
        now = d.digest(tensor)
        waited = record.waits.get(thread) != wait_counter.wait_count()
        record.waits[thread] = wait_counter.wait_count()
        if record.write is not write or record.digests.get(key) is not before:
            return now, ""  # an operator of another thread has begun or ended to write meanwhile
        record.digests[key] = now
        if before is None or before == now or (record.mixed and not record.how):
            return now, ""  # where operators of several threads write, what was last seen may be older than it seems
        raced, record.foreign = record.foreign and not waited, False
        return now, RACE if raced else OUTSIDE

    def begin_write(self, tensor: Any, write: Any, thread: int, location_id: int) -> None:
        """An operator is about to write to a tensor; `write` stands for this execution of it."""
        record = self.find_or_add_record(tensor.untyped_storage())
        record.mixed = record.mixed or record.writer not in (-1, thread)
        record.write, record.writer, record.written_at = write, thread, location_id
        record.contested = record.contested or record.writing > 0
        record.writing += 1
        record.digests.clear()

    def end_write(self, tensor: Any, write: Any, value: bytes | None) -> None:
        """It has: `value` is the tensor's digest now, None if it failed. Worth nothing if another wrote meanwhile."""
        record = self.find_or_add_record(tensor.untyped_storage())
        record.writing = max(0, record.writing - 1)
        record.digests.clear()
        if value is not None and record.write is write and not record.contested and is_plain(tensor):
            record.digests[_geometry(tensor)] = value
        if not record.writing:
            record.contested = False

    def note_result(self, tensor: Any, value: bytes, thread: int, location_id: int) -> None:
        """An operator gave a tensor back; new memory was made at `location_id`."""
        record = self.find_or_add_record(tensor.untyped_storage(), location_id)
        if record.writer < 0:
            record.writer, record.written_at = thread, location_id
        if is_plain(tensor):
            record.digests[_geometry(tensor)] = value

    def forget_values(self, tensor: Any, written_by_others: bool = False) -> None:
        """Something that is no operator may have written to a tensor, or may do so at any time."""
        record = self.find_or_add_record(tensor.untyped_storage())
        record.digests.clear()
        record.outside = record.outside or written_by_others


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

    def watch(self, record: MemoryRecord) -> None:
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

    def note_foreign_writes(self, snapshot: SharedSnapshot) -> None:
        """After the operator: what has changed, and not by an operator, was written by another thread."""
        for record, write, value in snapshot:
            if record.write is write and digest_shared_memory(record) not in (value, None):
                record.foreign = True


def digest_shared_memory(record: MemoryRecord) -> bytes | None:
    storage = torch.UntypedStorage._new_with_weak_ptr(record.weak.cdata)
    if storage is None or not 0 < storage.nbytes() <= MOST_BYTES or storage.device.type != "cpu":
        return None
    return d.digest(view_bytes(storage, 0, storage.nbytes()))
