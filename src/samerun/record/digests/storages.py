"""Know a tensor's value without reading it twice.

Every operator's outputs are digested when they are made. When they come back as inputs, what was
digested then still holds unless something wrote to their memory, and every write by an operator passes
through here. Memory that others can write behind torch's back (NumPy arrays, memory that no recorded
operator made) is read again: at every use when it is small, once per optimizer step when it is large.
"""

from __future__ import annotations

from typing import Any

from xxhash import xxh3_128_digest

from samerun.record.digests import digest as d
from samerun.record.digests.pieces import LARGE, digests_of_pieces

COLLECTIVE = -2
"""Stands for the thread that wrote last, where a collective may still be writing."""
UNDEFINED = b"undefined".ljust(16, b"\0")
"""Stands for the value of memory that nothing has written yet, or not all of it: what it holds is no value."""
SMALL_BYTES = 1 << 18
"""Memory that may change behind torch's back is digested at every use up to this size."""


class StorageRecord:
    """What is known of one piece of memory."""

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
        """Stands for all of the memory; None when unknown."""
        self.trusted = trusted
        """Made by a recorded operator and never handed to NumPy."""
        self.uninitialised = False
        """Not all of it was written since it was made by `empty` or its like, or a collective may still be writing."""
        self.made_at = 0
        """Where it was made, for uninitialised memory."""
        self.last_writer = -1
        """Number of the thread that wrote last, or `COLLECTIVE`."""
        self.read_epoch = -1

    def forget_values(self) -> None:
        """What is known of the values may be wrong."""
        self.view_digests.clear()
        self.content_digest, self.read_epoch = None, -1


class StorageDigests:
    """All memory that operators have touched and that is still alive."""

    def __init__(self) -> None:
        import torch

        self.records: dict[int, StorageRecord] = {}
        self._untyped: Any = torch.UntypedStorage
        self.epoch = 0
        """Advances with every optimizer step."""
        self._drop_above = 128

    def record_of(self, tensor: Any, made_here: bool = False) -> StorageRecord:
        """The record of a tensor's memory, made if it is new."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        record = self.records.get(key)
        return self._add_record(storage, key, made_here, tensor.is_cpu) if record is None else record

    def _add_record(self, storage: Any, key: int, made_here: bool, cpu: bool) -> StorageRecord:
        # The weak reference keeps the address from being given to another storage; it does not keep the
        # memory itself.
        record = self.records[key] = StorageRecord(storage._weak_ref(), made_here, cpu)
        if len(self.records) > self._drop_above:
            self.drop_expired()
        return record

    def digest_output(self, tensor: Any, thread: int) -> bytes:
        """The digest of an operator's output: fresh memory, or an alias that its schema does not speak of."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        record = self.records.get(key)
        if record is not None:
            return UNDEFINED if record.uninitialised else self.digest_input(tensor, record)
        return self.digest_new_memory(tensor, self._add_record(storage, key, True, tensor.is_cpu), thread)

    def drop_expired(self) -> None:
        """Forget memory that is gone."""
        expired, free = self._untyped._expired, self._untyped._free_weak_ref
        for key, record in list(self.records.items()):
            if expired(record.weak_ref) and self.records.pop(key, None) is not None:
                free(record.weak_ref)
        self._drop_above = max(128, 2 * len(self.records))

    def note_collective_write(self, tensor: Any, returns_early: bool) -> None:
        """A collective writes to a tensor, and may go on doing so after it has returned.

        Work.wait() calls no operator, so that the memory counts as undefined until something else writes to it.
        """
        record = self.record_of(tensor)
        partial = record.uninitialised and tensor.nbytes < tensor.untyped_storage().nbytes()
        record.trusted, record.uninitialised = False, returns_early or partial
        record.forget_values()
        record.last_writer = COLLECTIVE if returns_early else -1

    def note_unwritten_copy(self, tensor: Any, place: int, thread: int) -> bytes:
        """A copy of memory that was not wholly written: what it holds is no value either."""
        record = self.record_of(tensor, True)
        record.uninitialised, record.made_at, record.last_writer = True, place, thread
        record.forget_values()
        return UNDEFINED

    def distrust(self, storage: Any) -> None:
        """From now on the memory may change behind torch's back. (Memory not known yet is never trusted.)"""
        record = self.records.get(storage._cdata)
        if record is not None:
            record.trusted = False

    def distrust_and_forget(self, storage: Any) -> None:
        """Something that is no operator gives the memory another size or other values, now or while it is held."""
        record = self.records.get(storage._cdata)
        if record is not None:
            record.trusted = False
            record.forget_values()

    def forget_values(self, tensors: list[Any]) -> None:
        """Something that is no operator may have written to these: what was known of them may be wrong."""
        for tensor in tensors:
            if d.is_readable(tensor):
                self.record_of(tensor).forget_values()

    def digest_input(self, tensor: Any, record: StorageRecord) -> bytes:
        """16 bytes that stand for an input's value.

        For contiguous tensors its digest. For other views of memory whose whole content is known, a
        digest of that content and of the view's geometry, which needs no copy.
        """
        if tensor.is_neg() or tensor.is_conj():  # rare; its geometry is that of what it is made of
            return d.digest(tensor)
        contiguous = tensor.is_contiguous()
        if not record.trusted:
            return self._digest_untrusted(tensor, record, contiguous)
        if contiguous:
            key = (tensor.storage_offset(), tensor.shape, tensor.dtype)
            found = record.view_digests.get(key)
            if found is None:
                found = record.view_digests[key] = digest_dense(tensor, record)
            return found
        if record.content_digest is None or record.uninitialised:
            return d.digest(tensor)
        view = (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        found = record.view_digests.get(view)
        if found is None:
            found = record.view_digests[view] = xxh3_128_digest(record.content_digest + str(view).encode())
        return found

    def _digest_untrusted(self, tensor: Any, record: StorageRecord, contiguous: bool) -> bytes:
        size = tensor.numel() * tensor.element_size()
        if size <= SMALL_BYTES:
            return digest_dense(tensor, record) if contiguous else d.digest(tensor)
        if record.read_epoch != self.epoch:
            record.read_epoch = self.epoch
            record.view_digests.clear()
        key = (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        found = record.view_digests.get(key)
        if found is None:
            found = record.view_digests[key] = d.digest(tensor)
        return found

    def digest_new_memory(self, tensor: Any, record: StorageRecord, thread: int) -> bytes:
        """Note and return the digest of an operator's fresh output."""
        record.last_writer = thread
        if tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj()):
            found = digest_dense(tensor, record)
            record.view_digests[(tensor.storage_offset(), tensor.shape, tensor.dtype)] = found
            record.content_digest = found
        else:
            found = d.digest(tensor)
            # Another layout: the digest is of the value, so the content is told apart by its strides.
            record.content_digest = xxh3_128_digest(found + str(tensor.stride()).encode())
        return found

    def note_scratch_output(self, tensor: Any) -> None:
        """Scratch space: it counts as the same whatever it holds."""
        record = self.record_of(tensor, True)
        if d.is_readable(tensor) and tensor.is_contiguous():
            record.view_digests[(tensor.storage_offset(), tensor.shape, tensor.dtype)] = b"opaque".ljust(16, b"\0")
        record.content_digest = b"opaque".ljust(16, b"\0")

    def digest_written(self, tensor: Any, record: StorageRecord, thread: int) -> bytes:
        """Note and return the digest of a tensor that an operator wrote into."""
        plain = tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj())
        record.view_digests.clear()
        found = digest_dense(tensor, record) if plain else d.digest(tensor)
        record.last_writer = thread
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


def digest_dense(tensor: Any, record: StorageRecord) -> bytes:
    """Digest of a contiguous tensor that is no lazy conjugate or negative; quick on the CPU."""
    if not record.on_cpu or not d.lies_in_storage(tensor):
        return d.digest(tensor)
    seed, size = d.shape_seed(tensor.dtype, tensor.shape), tensor.nbytes
    if size < LARGE or not record.trusted:
        return d.dense_digest(tensor, seed)
    at = (tensor.data_ptr(), size)
    pieces = record.view_digests.get(at)
    if pieces is None:
        pieces = record.view_digests[at] = digests_of_pieces(*at)
    return xxh3_128_digest(pieces, seed)
