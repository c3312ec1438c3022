"""What every piece of memory held when it was last seen, who wrote it then, and who else can reach it."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from samerun.record.digests import digest as d
from samerun.record.digests.torch_guards import is_plain
from samerun.record.watching.double import wait_counter
from samerun.record.watching.double.argument_copies import raw_bytes
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
    """All memory that operators have used and that is still alive."""

    def __init__(self) -> None:
        self.known: dict[int, MemoryRecord] = {}
        self._purge_at = 256

    def of(self, storage: Any, made: int = 0) -> MemoryRecord:
        """What is known of some memory; noted as made at the place `made` if it is new."""
        known = self.known.get(storage._cdata)
        if known is None or known.address != storage.data_ptr():  # another address: it was resized
            known = self.known[storage._cdata] = MemoryRecord(storage)
            known.made = made
            if len(self.known) > self._purge_at:
                self.purge()
        return known

    def purge(self) -> None:
        """Forget memory that is gone."""
        for key, known in list(self.known.items()):
            if known.weak.expired():
                self.known.pop(key, None)
        self._purge_at = max(256, 2 * len(self.known))

    def clear(self) -> None:
        self.known.clear()

    def look(self, tensor: Any, thread: int) -> tuple[bytes | None, str]:
        """(digest of a tensor as it is, what is to be said about it).

        Said is OUTSIDE where the digest is another one than when the tensor was last seen, and RACE where besides
        another thread was seen to write, and this one has not waited for any since it last looked.

        No digest of what is not looked at: other devices, and views that would have to be copied for it, unless
        the memory was shared.
        """
        if not is_plain(tensor) or not tensor.numel():
            return None, ""
        known = self.of(tensor.untyped_storage())
        if known.outside or not (known.shared or tensor.is_contiguous()):
            return None, ""
        key = _geometry(tensor)
        write, before = known.write, known.digests.get(key)
        now = d.digest(tensor)
        waited = known.waits.get(thread) != wait_counter.count()
        known.waits[thread] = wait_counter.count()
        if known.write is not write or known.digests.get(key) is not before:
            return now, ""  # an operator of another thread has begun or ended to write meanwhile
        known.digests[key] = now
        if before is None or before == now or (known.mixed and not known.how):
            return now, ""  # where operators of several threads write, what was last seen may be older than it seems
        raced, known.foreign = known.foreign and not waited, False
        return now, RACE if raced else OUTSIDE

    def begin_write(self, tensor: Any, write: Any, thread: int, place: int) -> None:
        """An operator is about to write to a tensor; `write` stands for this execution of it."""
        known = self.of(tensor.untyped_storage())
        known.mixed = known.mixed or known.writer not in (-1, thread)
        known.write, known.writer, known.written_at = write, thread, place
        known.contested = known.contested or known.writing > 0
        known.writing += 1
        known.digests.clear()

    def end_write(self, tensor: Any, write: Any, value: bytes | None) -> None:
        """It has: `value` is the tensor's digest now, None if it failed. Worth nothing if another wrote meanwhile."""
        known = self.of(tensor.untyped_storage())
        known.writing = max(0, known.writing - 1)
        known.digests.clear()
        if value is not None and known.write is write and not known.contested and is_plain(tensor):
            known.digests[_geometry(tensor)] = value
        if not known.writing:
            known.contested = False

    def result(self, tensor: Any, value: bytes, thread: int, place: int) -> None:
        """An operator gave a tensor back; new memory was made at `place`."""
        known = self.of(tensor.untyped_storage(), place)
        if known.writer < 0:
            known.writer, known.written_at = thread, place
        if is_plain(tensor):
            known.digests[_geometry(tensor)] = value

    def forget(self, tensor: Any, outside: bool = False) -> None:
        """Something that is no operator may have written to a tensor, or may do so at any time."""
        known = self.of(tensor.untyped_storage())
        known.digests.clear()
        known.outside = known.outside or outside


def _geometry(tensor: Any) -> Any:
    return tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg()


MOST_BYTES = 1 << 20
MOST_WATCHED = 8
"""So much memory is watched, the one that was shared last."""

SharedSnapshot = list[tuple[MemoryRecord, Any, bytes]]


class SharedMemoryMonitor:
    def __init__(self) -> None:
        self._shared: dict[int, MemoryRecord] = {}

    def watch(self, known: MemoryRecord) -> None:
        """Memory that others can write from now on."""
        self._shared.pop(id(known), None)
        self._shared[id(known)] = known
        for key in [key for key, each in list(self._shared.items()) if each.weak.expired()]:
            self._shared.pop(key, None)
        while len(self._shared) > MOST_WATCHED:
            self._shared.pop(next(iter(self._shared)), None)

    def clear(self) -> None:
        self._shared.clear()

    def begin(self) -> SharedSnapshot:
        """What shared memory holds before an operator. Nothing without other threads."""
        if not self._shared or threading.active_count() < 2:
            return []
        held = ((known, value_of(known)) for known in list(self._shared.values()))
        return [(known, known.write, value) for known, value in held if value is not None]

    def end(self, seen: SharedSnapshot) -> None:
        """After the operator: what has changed, and not by an operator, was written by another thread."""
        for known, write, value in seen:
            if known.write is write and value_of(known) not in (value, None):
                known.foreign = True


def value_of(known: MemoryRecord) -> bytes | None:
    storage = torch.UntypedStorage._new_with_weak_ptr(known.weak.cdata)
    if storage is None or not 0 < storage.nbytes() <= MOST_BYTES or storage.device.type != "cpu":
        return None
    return d.digest(raw_bytes(storage, 0, storage.nbytes()))
