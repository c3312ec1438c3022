"""Read a trace file, complete or truncated, without trusting it: it may come from a stranger."""

from __future__ import annotations

import mmap
import os
import struct
import weakref
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from samerun.base.errors import SamerunError
from samerun.base.files import open_regular_file
from samerun.record.trace import format as f

EVENT_DTYPE = np.dtype(
    [
        ("kind", "u1"), ("flags", "u1"), ("thread", "<u2"), ("name", "<u4"), ("location", "<u4"),
        ("aux", "<u4"), ("inputs", "<u8"), ("out0", "<u8"), ("out1", "<u8"),
    ]
)  # fmt: skip
assert EVENT_DTYPE.itemsize == f.EVENT_BYTES
CHUNK_EVENTS = 1 << 18
MAX_BYTES_READ_WHOLE = 1 << 20
"""Larger files are mapped into memory."""
MAX_TABLE_ENTRIES = 1 << 20
"""Limit on strings, and on source locations: each costs far more in memory than in the file."""


class SourceLocation(NamedTuple):
    """A line of the program, and the module path whose forward ran there; ("", 0, "") stands for an unknown one."""

    file: str
    line: int
    module: str


class TraceError(SamerunError):
    """The file is not a trace, or it is damaged."""


MAX_HELD_FILES = 256
MAX_HELD_BYTES = 256 << 20
"""Of files that were read whole. Beyond these limits the content of the file that was opened first is released: a
thousand ranks fit neither into memory nor into the descriptors of a process."""
_held: deque[tuple[weakref.ref[Trace], int]] = deque()


def _register_held_and_release_oldest(trace: Trace, held_byte_count: int) -> None:
    """Note that a trace holds its file, so many bytes of it in memory; release others if these are too many."""
    _held.append((weakref.ref(trace), held_byte_count))
    while len(_held) > MAX_HELD_FILES or (len(_held) > 1 and sum(held for _, held in _held) > MAX_HELD_BYTES):
        oldest = _held.popleft()[0]()
        if oldest is not None and oldest is not trace:
            oldest.release_content()


def _device_inode_size(file: Any) -> tuple[int, int, int]:
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size


class Trace:
    """The events of one process. String 0 is "", location 0 is ("", 0, "").

    `complete`: the end mark is there; a killed process leaves a trace without one. `failure`: why recording stopped,
    or "". `count`: number of events. Raises TraceError for a file that is not a trace, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.strings: list[str] = [""]
        self.locations = [SourceLocation("", 0, "")]
        self.complete = False
        self.count = 0
        self._blocks: list[tuple[int, int]] = []
        self._block_starts: np.ndarray[Any, Any] | None = None
        self._step_indices: np.ndarray[Any, Any] | None = None
        with self._open() as file:
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
            self._identity = _device_inode_size(file)
            self._data = self._read_or_map(file)
        self._index_blocks_and_read_tables()

    def _open(self) -> Any:
        try:
            return open_regular_file(self.path)
        except OSError as error:
            raise TraceError(f"{self.path} cannot be read: {error.strerror}.", hint="Is it a trace?") from error

    def _read_or_map(self, file: Any) -> Any:
        # A memory map holds a file descriptor, and a run may have more processes than descriptors are allowed: small
        # files are read into memory instead.
        small = os.fstat(file.fileno()).st_size <= MAX_BYTES_READ_WHOLE
        file.seek(0)
        data = file.read() if small else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        _register_held_and_release_oldest(self, len(data) if small else 0)
        return data

    def _file_bytes_reread_if_released(self) -> Any:
        """The bytes of the file, read again if they were released. Raises TraceError if it is another file by now."""
        if self._data is None:
            with self._open() as file:
                now = _device_inode_size(file)
                if now[:2] != self._identity[:2] or now[2] < self._identity[2]:
                    raise TraceError(
                        f"{self.path} was changed while it was read.", hint="Compare runs that have ended."
                    )
                self._data = self._read_or_map(file)
        return self._data

    def release_content(self) -> None:
        """Free memory and descriptors; what is needed is read again."""
        self._data = None

    def _index_blocks_and_read_tables(self) -> None:
        data, at, size = self._data, f.HEADER_BYTES, len(self._data)
        while at + f.BLOCK.size <= size:
            tag, count, length = f.BLOCK.unpack_from(data, at)
            at += f.BLOCK.size
            if tag == f.UNUSED:
                return  # space that a killed process had reserved
            if at + length > size:
                return  # truncated in the middle of a block: everything before it is valid
            if tag == f.EVENTS:
                if count * f.EVENT_BYTES != length:
                    raise TraceError(f"{self.path} is damaged at byte {at}: a block of events has an odd size.")
                if count:
                    self._blocks.append((at, count))
                self.count += count
            elif (
                tag in (f.STRINGS, f.LOCATIONS)
                and count + max(len(self.strings), len(self.locations)) > MAX_TABLE_ENTRIES
            ):
                raise TraceError(
                    f"{self.path} has more than {MAX_TABLE_ENTRIES} strings or source locations.",
                    hint="samerun did not write it.",
                )
            elif tag == f.STRINGS:
                self._append_strings(data[at : at + length], count, at)
            elif tag == f.LOCATIONS:
                if count * f.LOCATION.size != length:
                    raise TraceError(f"{self.path} is damaged at byte {at}: a block of locations has an odd size.")
                for file, line, module in f.LOCATION.iter_unpack(data[at : at + length]):
                    if max(file, module) >= len(self.strings):
                        raise TraceError(f"{self.path} is damaged at byte {at}: a location refers to a missing string.")
                    self.locations.append(SourceLocation(self.strings[file], line, self.strings[module]))
            elif tag == f.END:
                self.complete = True
            at += length  # unknown blocks are skipped: newer versions may add some

    def _append_strings(self, payload: bytes, count: int, file_offset: int) -> None:
        begin = 0
        for _ in range(count):
            if begin + 4 > len(payload):
                raise TraceError(f"{self.path} is damaged at byte {file_offset}: a string table is too short.")
            length = struct.unpack_from("<I", payload, begin)[0]
            if begin + 4 + length > len(payload):
                raise TraceError(f"{self.path} is damaged at byte {file_offset}: a string runs past its table.")
            self.strings.append(payload[begin + 4 : begin + 4 + length].decode("utf-8", "surrogateescape"))
            begin += 4 + length

    def iter_event_chunks(self) -> Iterator[np.ndarray[Any, Any]]:
        """Yield the events in order, as structured arrays of about `CHUNK_EVENTS` events."""
        with memoryview(self._file_bytes_reread_if_released()) as data:
            parts: list[memoryview] = []
            total = 0
            for at, count in self._blocks:
                parts.append(data[at : at + count * f.EVENT_BYTES])
                total += count
                if total >= CHUNK_EVENTS:
                    yield np.frombuffer(b"".join(parts), EVENT_DTYPE)  # far faster than np.concatenate
                    parts, total = [], 0
            if parts:
                yield np.frombuffer(b"".join(parts), EVENT_DTYPE)

    def read_all_events(self) -> np.ndarray[Any, Any]:
        """All events as one array (40 bytes each)."""
        parts = list(self.iter_event_chunks())
        return np.concatenate(parts) if parts else np.empty(0, EVENT_DTYPE)

    def raw_event(self, event_index: int) -> Any:
        """The raw record at an index, with the string and location ids of this file. Raises IndexError."""
        if self._block_starts is None:
            self._block_starts = np.cumsum([0, *(count for _, count in self._blocks)])
        block = int(np.searchsorted(self._block_starts, event_index, side="right")) - 1
        if not 0 <= event_index < self.count:
            raise IndexError(event_index)
        at = self._blocks[block][0] + (event_index - int(self._block_starts[block])) * f.EVENT_BYTES
        return np.frombuffer(self._file_bytes_reread_if_released()[at : at + f.EVENT_BYTES], EVENT_DTYPE)[0]

    def count_steps_before(self, event_index: int) -> int:
        """Number of optimizer steps that ended before the event at `event_index`."""
        if self._step_indices is None:
            at, parts = 0, [np.empty(0, np.int64)]
            for chunk in self.iter_event_chunks():
                parts.append(np.flatnonzero(chunk["kind"] == f.STEP) + at)
                at += len(chunk)
            self._step_indices = np.concatenate(parts)
        return int(np.searchsorted(self._step_indices, event_index))

    def string_or_empty(self, string_id: int) -> str:
        """The string with this id; "" for an id that the trace does not define."""
        return self.strings[string_id] if string_id < len(self.strings) else ""

    def location_or_empty(self, location_id: int) -> SourceLocation:
        """The source location with this id; ("", 0, "") for an unknown id."""
        return self.locations[location_id] if location_id < len(self.locations) else SourceLocation("", 0, "")
