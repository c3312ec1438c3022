"""The digest of every tensor's value, without reading any memory twice (decisions 0001 and 0002).

An operator's outputs are digested when they are made. When they come back as inputs, that digest still holds unless
something wrote to their memory, and every write by an operator passes through here. So digests are kept by memory and
geometry, not by tensor object: two views of one memory must both change when either is written.

Memory that others can write without an operator (NumPy arrays, memory that no recorded operator made) is not trusted.
It is read again: at every use when it is small, once per optimizer step when it is large.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from xxhash import xxh3_128_digest

from samerun.record.digests import digest as d
from samerun.record.digests.pieces import LARGE, digest_each_piece

COLLECTIVE = -2
"""In place of the thread that wrote last: a collective may still be writing."""
UNDEFINED = b"undefined".ljust(16, b"\0")
"""Digest of memory that was not completely written: what it holds is garbage, not a value."""
MOST_IN_FLIGHT = 64
SMALL_BYTES = 1 << 18
"""Untrusted memory up to this size is digested at every use."""


class StorageRecord:
    """What is known of one storage. `native/watch` reads and writes these slots by their offsets."""

    __slots__ = (
        "content_digest", "last_writer", "made_at", "on_cpu", "read_epoch", "trusted", "uninitialised", "view_digests",
        "weak_ref",
    )  # fmt: skip

    def __init__(self, weak_ref: int, trusted: bool, on_cpu: bool) -> None:
        self.weak_ref = weak_ref
        self.on_cpu = on_cpu
        self.view_digests: dict[Any, bytes] = {}
        """Geometry (offset, shape, dtype) of a contiguous view -> its digest; (address, bytes) of one that is large ->
        the digests of its pieces, which views of other shapes share."""
        self.content_digest: bytes | None = None
        """Digest that stands for all of the memory; None if it is not known."""
        self.trusted = trusted
        """A recorded operator made it, and it was never handed to NumPy or others: only operators write to it."""
        self.uninitialised = False
        """Not all of it was written since it was made by `empty` or its like, or a collective may still be writing."""
        self.made_at = 0
        """Where it was allocated, for uninitialised memory; negative if a library asked for it."""
        self.last_writer = -1
        """Number of the thread that wrote last, or `COLLECTIVE`."""
        self.read_epoch = -1

    def drop_known_digests(self) -> None:
        """Drop all digests: something may have written to the memory."""
        self.view_digests.clear()
        self.content_digest, self.read_epoch = None, -1


class WrittenByCollective(NamedTuple):
    """The record of memory that a collective writes to, which bytes of it, whether other parts stay undefined, and
    whether there are no other parts."""

    record: StorageRecord
    begin: int
    end: int
    is_partial: bool
    is_whole: bool


class PendingCollective(NamedTuple):
    """The handle of a collective that the program can wait for.

    `receiving_line`: of a message, the line (file, line, is_direct) that asks for it.
    """

    work: Any
    receiving_line: tuple[str, int, bool] | None = None


class StorageDigests:
    """The records of all storages that operators have used and that are still alive."""

    def __init__(self) -> None:
        import torch

        self.records: dict[int, StorageRecord] = {}
        self._untyped: Any = torch.UntypedStorage
        self._view_bytes: Any = lambda storage: torch.empty(0, dtype=torch.uint8).set_(storage)
        self.epoch = 0
        """Number of optimizer steps so far: untrusted large memory is read once in each."""
        self._drop_above = 128
        self.in_flight: dict[int, tuple[PendingCollective, list[WrittenByCollective]]] = {}
        """Id of the handle of a collective that the program can wait for -> the handle, and what it writes to."""

    def find_or_add_record(self, tensor: Any, trusted_if_new: bool = False) -> StorageRecord:
        """The record of a tensor's storage, made if it is new."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        record = self.records.get(key)
        return self._add_record(storage, key, trusted_if_new, tensor.is_cpu) if record is None else record

    def _add_record(self, storage: Any, key: int, trusted_if_new: bool, on_cpu: bool) -> StorageRecord:
        # Records are found by the storage's address. The weak reference keeps that address from being given to another
        # storage while the record exists, but it does not keep the memory: watching must not change when memory is
        # freed, and a strong reference would also stop autograd from taking over gradients.
        record = self.records[key] = StorageRecord(storage._weak_ref(), trusted_if_new, on_cpu)
        if len(self.records) > self._drop_above:
            self.drop_expired()
        return record

    def digest_output(self, tensor: Any, thread_number: int) -> bytes:
        """Digest an operator's output: new memory, or a view that its schema does not declare."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        record = self.records.get(key)
        if record is not None:
            return UNDEFINED if record.uninitialised else self.digest_input(tensor, record)
        return self.digest_new_memory(tensor, self._add_record(storage, key, True, tensor.is_cpu), thread_number)

    def drop_expired(self) -> None:
        """Drop the records of storages that were freed."""
        expired, free = self._untyped._expired, self._untyped._free_weak_ref
        for key, record in list(self.records.items()):
            if expired(record.weak_ref) and self.records.pop(key, None) is not None:
                free(record.weak_ref)
        self._drop_above = max(128, 2 * len(self.records))

    def count_trusted_cpu_storages_by_digest(self) -> Counter[bytes]:
        """The digest of what each storage holds that is alive and that only operators write, and how many hold it.

        Where digests were chained, view by view, the memory is read: two orders of the same writes leave the same.
        Memory of files and other processes is left alone: what is gone from under it cannot be read.
        """
        self.drop_expired()
        contents: Counter[bytes] = Counter()
        for record in list(self.records.values()):
            if not record.trusted or record.uninitialised or not record.on_cpu or record.content_digest is None:
                continue
            storage = self._untyped._new_with_weak_ptr(record.weak_ref)
            if storage is None or not storage.nbytes() or storage.is_shared():
                continue
            found = record.content_digest
            if not any(found is known or found == known for known in record.view_digests.values()):
                found = d.digest(self._view_bytes(storage))
            contents[found] += 1
        return contents

    def mark_written_by_collective(self, tensor: Any, may_return_early: bool) -> WrittenByCollective:
        """A collective writes to a tensor, and may go on doing so after it has returned.

        The memory counts as undefined until something else writes to it, or the program has waited for the handle that
        `note_pending_collective` was told of. What waits in C++ tells nobody.
        """
        record = self.find_or_add_record(tensor)
        beside = [each.is_partial for each in self._list_pending_collective_writes() if each.record is record]
        partial = any(beside) if beside else record.uninitialised
        whole = tensor.nbytes == tensor.untyped_storage().nbytes()
        partial = bool(partial and not whole)
        record.trusted, record.uninitialised = False, may_return_early or partial
        record.drop_known_digests()
        record.last_writer = COLLECTIVE if may_return_early else -1
        return WrittenByCollective(record, *_byte_range_or_whole_storage(tensor), partial, whole)

    def note_pending_collective(self, pending: PendingCollective, written: list[WrittenByCollective]) -> None:
        """The program can wait for a collective that writes to this memory."""
        while len(self.in_flight) >= MOST_IN_FLIGHT:  # the handle keeps memory: those nobody waits for are let go
            self.in_flight.pop(next(iter(self.in_flight)))
        self.in_flight[id(pending.work)] = pending, written

    def take_collective_writes(self, work: Any) -> list[WrittenByCollective]:
        """What the collective of a handle writes to. Nobody else is told that it is complete: the caller will see."""
        return self.in_flight.pop(id(work), (None, []))[1]

    def note_collective_complete(self, written: Iterable[WrittenByCollective]) -> None:
        """The program knows that collectives which wrote to this memory are complete."""
        still = {id(each.record) for each in self._list_pending_collective_writes()}
        for each in written:
            record = each.record
            if record.last_writer == COLLECTIVE and id(record) not in still:
                record.uninitialised, record.last_writer = each.is_partial, -1
                record.drop_known_digests()

    def list_pending_collectives_writing_to(self, tensor: Any) -> list[PendingCollective]:
        """Collectives that nobody has waited for yet and that write to elements of the tensor."""
        record, (begin, end) = self.find_or_add_record(tensor), _byte_range_or_whole_storage(tensor)
        return [
            pending for pending, written in list(self.in_flight.values())
            if any(each.record is record and each.begin < end and begin < each.end for each in written)
        ]  # fmt: skip

    def _list_pending_collective_writes(self) -> list[WrittenByCollective]:
        return [each for _, written in list(self.in_flight.values()) for each in written]

    def mark_copy_undefined_and_get_digest(self, tensor: Any, location_id: int, thread_number: int) -> bytes:
        """Note a copy of memory that was not completely written: the copy is as undefined as its source."""
        record = self.find_or_add_record(tensor, True)
        record.uninitialised, record.made_at, record.last_writer = True, location_id, thread_number
        record.drop_known_digests()
        return UNDEFINED

    def distrust(self, storage: Any) -> None:
        """From now on the memory may change without an operator. (Memory without a record is never trusted.)"""
        record = self.records.get(storage._cdata)
        if record is not None:
            record.trusted = False

    def distrust_and_drop_digests(self, storage: Any) -> None:
        """Something other than an operator changes size or values of the memory, now or while it holds it."""
        record = self.records.get(storage._cdata)
        if record is not None:
            record.trusted = False
            record.drop_known_digests()

    def drop_known_digests(self, tensors: list[Any]) -> None:
        """Something other than an operator (a compiled graph) may have written to these: drop their digests."""
        for tensor in tensors:
            if d.is_readable(tensor):
                self.find_or_add_record(tensor).drop_known_digests()

    def digest_input(self, tensor: Any, record: StorageRecord) -> bytes:
        """16 bytes that stand for an input's value.

        For contiguous tensors the digest of the value. For other views of memory whose whole content is known, a
        digest of that content and of the view's geometry: digesting the value would need a copy (decision 0002).
        """
        if tensor.is_neg() or tensor.is_conj():  # rare, and its geometry equals that of its base
            return d.digest(tensor)
        contiguous = tensor.is_contiguous()
        if not record.trusted:
            return self._digest_untrusted_memory(tensor, record, contiguous)
        if contiguous:
            key = (tensor.storage_offset(), tensor.shape, tensor.dtype)
            found = record.view_digests.get(key)
            if found is None:
                found = record.view_digests[key] = digest_contiguous_view(tensor, record)
            return found
        if record.content_digest is None or record.uninitialised:
            return d.digest(tensor)
        view = (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        found = record.view_digests.get(view)
        if found is None:
            found = record.view_digests[view] = xxh3_128_digest(record.content_digest + str(view).encode())
        return found

    def _digest_untrusted_memory(self, tensor: Any, record: StorageRecord, contiguous: bool) -> bytes:
        size = tensor.numel() * tensor.element_size()
        if size <= SMALL_BYTES:
            return digest_contiguous_view(tensor, record) if contiguous else d.digest(tensor)
        if record.read_epoch != self.epoch:
            record.read_epoch = self.epoch
            record.view_digests.clear()
        key = (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        found = record.view_digests.get(key)
        if found is None:
            found = record.view_digests[key] = d.digest(tensor)
        return found

    def digest_new_memory(self, tensor: Any, record: StorageRecord, thread_number: int) -> bytes:
        """Digest an operator's output in new memory, and keep the digest."""
        record.last_writer = thread_number
        if tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj()):
            found = digest_contiguous_view(tensor, record)
            record.view_digests[(tensor.storage_offset(), tensor.shape, tensor.dtype)] = found
            record.content_digest = found
        else:
            found = d.digest(tensor)
            # The digest is of the value. The same value in another layout is other memory: hence the strides.
            record.content_digest = xxh3_128_digest(found + str(tensor.stride()).encode())
        return found

    def mark_scratch_as_always_equal(self, tensor: Any) -> None:
        """Note scratch space: its unused bytes are never written, so it counts as equal whatever it holds."""
        record = self.find_or_add_record(tensor, True)
        if d.is_readable(tensor) and tensor.is_contiguous():
            record.view_digests[(tensor.storage_offset(), tensor.shape, tensor.dtype)] = b"opaque".ljust(16, b"\0")
        record.content_digest = b"opaque".ljust(16, b"\0")

    def digest_written(self, tensor: Any, record: StorageRecord, thread_number: int) -> bytes:
        """Digest a tensor that an operator wrote into, and drop the digests of all other views of its memory."""
        plain = tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj())
        record.view_digests.clear()
        found = digest_contiguous_view(tensor, record) if plain else d.digest(tensor)
        record.last_writer = thread_number
        whole = tensor.nbytes == tensor.untyped_storage().nbytes()
        key: tuple[Any, ...] = (tensor.storage_offset(), tensor.shape, tensor.dtype)
        if plain:
            record.view_digests[key] = found
        else:
            key = (*key, tensor.stride(), tensor.is_conj(), tensor.is_neg())
        if whole:
            record.content_digest = found if plain else xxh3_128_digest(found + str(key).encode())
            record.uninitialised = False
        elif record.content_digest is not None:
            record.content_digest = xxh3_128_digest(record.content_digest + str(key).encode() + found)
        return found


def _byte_range_or_whole_storage(tensor: Any) -> tuple[int, int]:
    """Where in its memory a tensor lies; all of the memory if it is not contiguous."""
    if not tensor.is_contiguous():
        return 0, tensor.untyped_storage().nbytes()
    begin = tensor.storage_offset() * tensor.element_size()
    return begin, begin + tensor.nbytes


def digest_contiguous_view(tensor: Any, record: StorageRecord) -> bytes:
    """Digest of a contiguous tensor that is no lazy conjugate or negative. Pieces of large memory are kept (0010)."""
    if not record.on_cpu or not d.fits_in_storage(tensor):
        return d.digest(tensor)
    seed, size = d.shape_seed(tensor.dtype, tensor.shape), tensor.nbytes
    if size < LARGE or not record.trusted:
        return d.digest_contiguous_cpu_tensor(tensor, seed)
    at = (tensor.data_ptr(), size)
    pieces = record.view_digests.get(at)
    if pieces is None:
        pieces = record.view_digests[at] = digest_each_piece(*at)
    return xxh3_128_digest(pieces, seed)
