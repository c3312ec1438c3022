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


class Storage:
    """What is known of one piece of memory."""

    __slots__ = ("content", "cpu", "known", "ours", "place", "read_at", "uninitialised", "weak", "writer")

    def __init__(self, weak: int, ours: bool, cpu: bool) -> None:
        self.weak = weak
        self.cpu = cpu
        self.known: dict[Any, bytes] = {}
        """Geometry (offset, shape, dtype) of a contiguous view -> its digest; (address, bytes) of one that is large ->
        the digests of its pieces, which views of other shapes share."""
        self.content: bytes | None = None
        """Stands for all of the memory; None when unknown."""
        self.ours = ours
        """Made by a recorded operator and never handed to NumPy."""
        self.uninitialised = False
        """Not all of it was written since it was made by `empty` or its like, or a collective may still be writing."""
        self.place = 0
        """Where it was made, for uninitialised memory."""
        self.writer = -1
        """Number of the thread that wrote last, or `COLLECTIVE`."""
        self.read_at = -1

    def forget(self) -> None:
        """What is known of the values may be wrong."""
        self.known.clear()
        self.content, self.read_at = None, -1


class Storages:
    """All memory that operators have touched and that is still alive."""

    def __init__(self) -> None:
        import torch

        self.entries: dict[int, Storage] = {}
        self._untyped: Any = torch.UntypedStorage
        self.epoch = 0
        """Advances with every optimizer step."""
        self._purge_at = 128

    def of(self, tensor: Any, made_here: bool = False) -> Storage:
        """The record of a tensor's memory, made if it is new."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        entry = self.entries.get(key)
        return self._add(storage, key, made_here, tensor.is_cpu) if entry is None else entry

    def _add(self, storage: Any, key: int, made_here: bool, cpu: bool) -> Storage:
        # The weak reference keeps the address from being given to another storage; it does not keep the
        # memory itself.
        entry = self.entries[key] = Storage(storage._weak_ref(), made_here, cpu)
        if len(self.entries) > self._purge_at:
            self.purge()
        return entry

    def result(self, tensor: Any, thread: int) -> bytes:
        """The digest of an operator's output: fresh memory, or an alias that its schema does not speak of."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        entry = self.entries.get(key)
        if entry is not None:
            return UNDEFINED if entry.uninitialised else self.value(tensor, entry)
        return self.made(tensor, self._add(storage, key, True, tensor.is_cpu), thread)

    def purge(self) -> None:
        """Forget memory that is gone."""
        expired, free = self._untyped._expired, self._untyped._free_weak_ref
        for key, entry in list(self.entries.items()):
            if expired(entry.weak) and self.entries.pop(key, None) is not None:
                free(entry.weak)
        self._purge_at = max(128, 2 * len(self.entries))

    def collective(self, tensor: Any, returns_early: bool) -> None:
        """A collective writes to a tensor, and may go on doing so after it has returned.

        Work.wait() calls no operator, so that the memory counts as undefined until something else writes to it.
        """
        entry = self.of(tensor)
        partial = entry.uninitialised and tensor.nbytes < tensor.untyped_storage().nbytes()
        entry.ours, entry.uninitialised = False, returns_early or partial
        entry.forget()
        entry.writer = COLLECTIVE if returns_early else -1

    def moved(self, tensor: Any, place: int, thread: int) -> bytes:
        """A copy of memory that was not wholly written: what it holds is no value either."""
        entry = self.of(tensor, True)
        entry.uninitialised, entry.place, entry.writer = True, place, thread
        entry.forget()
        return UNDEFINED

    def shared(self, storage: Any) -> None:
        """From now on the memory may change behind torch's back. (Memory not known yet is never trusted.)"""
        entry = self.entries.get(storage._cdata)
        if entry is not None:
            entry.ours = False

    def changed(self, storage: Any) -> None:
        """Something that is no operator gives the memory another size or other values, now or while it is held."""
        entry = self.entries.get(storage._cdata)
        if entry is not None:
            entry.ours = False
            entry.forget()

    def forget(self, tensors: list[Any]) -> None:
        """Something that is no operator may have written to these: what was known of them may be wrong."""
        for tensor in tensors:
            if d.is_readable(tensor):
                self.of(tensor).forget()

    def value(self, tensor: Any, entry: Storage) -> bytes:
        """16 bytes that stand for an input's value.

        For contiguous tensors its digest. For other views of memory whose whole content is known, a
        digest of that content and of the view's geometry, which needs no copy.
        """
        if tensor.is_neg() or tensor.is_conj():  # rare; its geometry is that of what it is made of
            return d.digest(tensor)
        contiguous = tensor.is_contiguous()
        if not entry.ours:
            return self._outside(tensor, entry, contiguous)
        if contiguous:
            key = (tensor.storage_offset(), tensor.shape, tensor.dtype)
            found = entry.known.get(key)
            if found is None:
                found = entry.known[key] = dense(tensor, entry)
            return found
        if entry.content is None or entry.uninitialised:
            return d.digest(tensor)
        view = (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        found = entry.known.get(view)
        if found is None:
            found = entry.known[view] = xxh3_128_digest(entry.content + str(view).encode())
        return found

    def _outside(self, tensor: Any, entry: Storage, contiguous: bool) -> bytes:
        size = tensor.numel() * tensor.element_size()
        if size <= SMALL_BYTES:
            return dense(tensor, entry) if contiguous else d.digest(tensor)
        if entry.read_at != self.epoch:
            entry.read_at = self.epoch
            entry.known.clear()
        key = (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        found = entry.known.get(key)
        if found is None:
            found = entry.known[key] = d.digest(tensor)
        return found

    def made(self, tensor: Any, entry: Storage, thread: int) -> bytes:
        """Note and return the digest of an operator's fresh output."""
        entry.writer = thread
        if tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj()):
            found = dense(tensor, entry)
            entry.known[(tensor.storage_offset(), tensor.shape, tensor.dtype)] = found
            entry.content = found
        else:
            found = d.digest(tensor)
            # Another layout: the digest is of the value, so the content is told apart by its strides.
            entry.content = xxh3_128_digest(found + str(tensor.stride()).encode())
        return found

    def opaque(self, tensor: Any) -> None:
        """Scratch space: it counts as the same whatever it holds."""
        entry = self.of(tensor, True)
        if d.is_readable(tensor) and tensor.is_contiguous():
            entry.known[(tensor.storage_offset(), tensor.shape, tensor.dtype)] = b"opaque".ljust(16, b"\0")
        entry.content = b"opaque".ljust(16, b"\0")

    def written(self, tensor: Any, entry: Storage, thread: int) -> bytes:
        """Note and return the digest of a tensor that an operator wrote into."""
        plain = tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj())
        entry.known.clear()
        found = dense(tensor, entry) if plain else d.digest(tensor)
        entry.writer = thread
        whole = tensor.nbytes == tensor.untyped_storage().nbytes()
        key: tuple[Any, ...] = (tensor.storage_offset(), tensor.shape, tensor.dtype)
        if plain:
            entry.known[key] = found
        else:
            key = (*key, tensor.stride(), tensor.is_conj(), tensor.is_neg())
        if whole:
            entry.content = found if plain else xxh3_128_digest(found + str(key).encode())
            entry.uninitialised = False
        elif entry.content is not None:
            entry.content = xxh3_128_digest(entry.content + str(key).encode() + found)
        return found


def dense(tensor: Any, entry: Storage) -> bytes:
    """Digest of a contiguous tensor that is no lazy conjugate or negative; quick on the CPU."""
    if not entry.cpu or not d.lies_in_storage(tensor):
        return d.digest(tensor)
    seed, size = d.shape_seed(tensor.dtype, tensor.shape), tensor.nbytes
    if size < LARGE or not entry.ours:
        return d.dense_digest(tensor, seed)
    at = (tensor.data_ptr(), size)
    pieces = entry.known.get(at)
    if pieces is None:
        pieces = entry.known[at] = digests_of_pieces(*at)
    return xxh3_128_digest(pieces, seed)
