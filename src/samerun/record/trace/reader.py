"""Read a trace, whole or cut off."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from samerun.base.errors import SamerunError
from samerun.base.regular_file import open_regular
from samerun.record.trace import format as f

EVENT_DTYPE = np.dtype(
    [
        ("kind", "u1"), ("flags", "u1"), ("thread", "<u2"), ("name", "<u4"), ("place", "<u4"),
        ("aux", "<u4"), ("inputs", "<u8"), ("out0", "<u8"), ("out1", "<u8"),
    ]
)  # fmt: skip
assert EVENT_DTYPE.itemsize == f.EVENT_BYTES
CHUNK_EVENTS = 1 << 18
SMALL = 1 << 20
MOST_NAMES = 1 << 20
"""Strings, and places, of one trace: each costs far more in memory than in the file."""


class TraceError(SamerunError):
    """A file is no trace, or a damaged one."""


class Trace:
    """One process's events. String 0 is "", place 0 is ("", 0, "")."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.strings: list[str] = [""]
        self.places: list[tuple[str, int, str]] = [("", 0, "")]
        self.whole = False
        self.count = 0
        self._blocks: list[tuple[int, int]] = []
        self._starts: np.ndarray[Any, Any] | None = None
        self._steps: np.ndarray[Any, Any] | None = None
        try:
            file = open_regular(path)
        except OSError as error:
            raise TraceError(f"{path} cannot be read: {error.strerror}.", hint="Is it a trace?") from error
        with file:
            head = file.read(f.HEADER_BYTES)
            if len(head) < f.HEADER_BYTES or head[:8] != f.MAGIC:
                raise TraceError(f"{path} is not a samerun trace.", hint="A trace begins with the bytes SAMERUN 01.")
            version, length = struct.unpack_from("<II", head, 8)
            if version != f.VERSION:
                raise TraceError(
                    f"{path} is a trace of version {version}; this samerun reads version {f.VERSION}.",
                    hint="Record it again, or read it with the samerun that wrote it.",
                )
            self.role = head[f.ROLE_AT : f.ROLE_AT + min(length, f.ROLE_BYTES)].decode("utf-8", "replace")
            self.pid = struct.unpack_from("<Q", head, f.PID_AT)[0]
            self.failure = head[f.STATUS_AT :].split(b"\0", 1)[0].decode("utf-8", "replace")
            # A mapped file keeps a descriptor, and a run may have more processes than there are descriptors.
            size = os.fstat(file.fileno()).st_size
            small = size <= SMALL
            self._data: Any = head + file.read() if small else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._index()

    def _index(self) -> None:
        data, at, size = self._data, f.HEADER_BYTES, len(self._data)
        while at + f.BLOCK.size <= size:
            tag, count, length = f.BLOCK.unpack_from(data, at)
            at += f.BLOCK.size
            if at + length > size:
                return  # cut off in the middle of a block: everything before it counts
            if tag == f.EVENTS:
                if count * f.EVENT_BYTES != length:
                    raise TraceError(f"{self.path} is damaged at byte {at}: a block of events has an odd size.")
                if count:
                    self._blocks.append((at, count))
                self.count += count
            elif tag in (f.STRINGS, f.PLACES) and count + max(len(self.strings), len(self.places)) > MOST_NAMES:
                raise TraceError(f"{self.path} has more than {MOST_NAMES} strings or places.", hint="Is it ours?")
            elif tag == f.STRINGS:
                self._read_strings(data[at : at + length], count, at)
            elif tag == f.PLACES:
                if count * f.PLACE.size != length:
                    raise TraceError(f"{self.path} is damaged at byte {at}: a block of places has an odd size.")
                for file, line, module in f.PLACE.iter_unpack(data[at : at + length]):
                    if max(file, module) >= len(self.strings):
                        raise TraceError(f"{self.path} is damaged at byte {at}: a place names a string it lacks.")
                    self.places.append((self.strings[file], line, self.strings[module]))
            elif tag == f.END:
                self.whole = True
            at += length  # blocks of a kind we do not know are passed over: the format is additive

    def _read_strings(self, raw: bytes, count: int, at: int) -> None:
        here = 0
        for _ in range(count):
            if here + 4 > len(raw):
                raise TraceError(f"{self.path} is damaged at byte {at}: a string table is too short.")
            length = struct.unpack_from("<I", raw, here)[0]
            if here + 4 + length > len(raw):
                raise TraceError(f"{self.path} is damaged at byte {at}: a string runs past its table.")
            self.strings.append(raw[here + 4 : here + 4 + length].decode("utf-8", "surrogateescape"))
            here += 4 + length

    def chunks(self) -> Iterator[np.ndarray[Any, Any]]:
        """Events in order, as structured arrays of at most about `CHUNK_EVENTS`."""
        with memoryview(self._data) as data:
            held: list[memoryview] = []
            total = 0
            for at, count in self._blocks:
                held.append(data[at : at + count * f.EVENT_BYTES])
                total += count
                if total >= CHUNK_EVENTS:
                    yield np.frombuffer(b"".join(held), EVENT_DTYPE)  # joined as bytes: far faster than as records
                    held, total = [], 0
            if held:
                yield np.frombuffer(b"".join(held), EVENT_DTYPE)

    def events(self) -> np.ndarray[Any, Any]:
        """All events at once (40 bytes each)."""
        parts = list(self.chunks())
        return np.concatenate(parts) if parts else np.empty(0, EVENT_DTYPE)

    def event(self, index: int) -> Any:
        """The record at an index as it stands in the file, with the file's own numbers. Raises IndexError."""
        if self._starts is None:
            self._starts = np.cumsum([0, *(count for _, count in self._blocks)])
        block = int(np.searchsorted(self._starts, index, side="right")) - 1
        if not 0 <= index < self.count:
            raise IndexError(index)
        at = self._blocks[block][0] + (index - int(self._starts[block])) * f.EVENT_BYTES
        return np.frombuffer(self._data[at : at + f.EVENT_BYTES], EVENT_DTYPE)[0]

    def steps_before(self, index: int) -> int:
        """Optimizer steps that ended before an event."""
        if self._steps is None:
            at, found = 0, [np.empty(0, np.int64)]
            for chunk in self.chunks():
                found.append(np.flatnonzero(chunk["kind"] == f.STEP) + at)
                at += len(chunk)
            self._steps = np.concatenate(found)
        return int(np.searchsorted(self._steps, index))

    def string(self, number: int) -> str:
        return self.strings[number] if number < len(self.strings) else ""

    def place(self, number: int) -> tuple[str, int, str]:
        return self.places[number] if number < len(self.places) else ("", 0, "")
