"""Write one trace file: append-only, block by block."""

from __future__ import annotations

import errno
import os
import struct
from collections import deque
from contextlib import suppress
from typing import Any

from samerun.record.config import to_original_path
from samerun.record.trace import format as f

FLUSH_EVENTS = 256
"""So many events are written at once, in the end. The first are written one by one: a process that computes little and
is then killed (a pool's worker, a daemon) would leave nothing behind. Later on a killed process loses one in 64."""
MODE = 0o600
"""Private: the digests in a trace have no key."""


class TraceWriter:
    """Appends events to one file.

    Thread-safe: events are collected in a deque and written under a lock. A failed write (disk full, folder removed)
    ends the trace, never the program: the reason goes into the header, whose bytes are allocated on disk already, and
    into `failure`. `count`: number of events written.
    """

    def __init__(self, path: str, role: str, copied_folder: tuple[str, str] | None = None) -> None:
        import threading

        self.path = path
        self.copied_folder = copied_folder
        """(copy, original): files in the copy are recorded under their original paths."""
        self.failure = ""
        self.count = 0
        self.flush_at = 1
        """So many pending events are written; the operator watcher in C reads it."""
        self._pending: deque[bytes] = deque()
        self._strings: dict[str, int] = {}
        self._new_strings: list[bytes] = []
        self._locations: dict[tuple[int, int, int], int] = {}
        self._new_locations: list[bytes] = []
        self._lock = threading.RLock()
        self._fd = _move_to_high_descriptor(_open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, MODE))
        self._identity = _device_and_inode(self._fd)
        self._reserved: Any = None
        """Memory map of the file, once the program limits the size of files."""
        self._reserved_at = 0
        name = role.encode()[: f.ROLE_BYTES]
        header = f.MAGIC + struct.pack("<II", f.VERSION, len(name)) + name.ljust(f.ROLE_BYTES, b"\0")
        header += struct.pack("<Q", os.getpid()) + b"\0" * f.STATUS_BYTES
        self._write(header)

    def intern_string(self, text: str) -> int:
        """The id of a string in this trace; 0 is the empty string."""
        if not text:
            return 0
        number = self._strings.get(text)
        if number is None:
            with self._lock:
                number = self._strings.get(text)
                if number is None:
                    number = len(self._strings) + 1
                    raw = text.encode("utf-8", "surrogateescape")
                    self._new_strings.append(struct.pack("<I", len(raw)) + raw)
                    self._strings[text] = number
        return number

    def intern_location(self, file: str, line: int, module: str) -> int:
        """The id of a source location (file, line, module path) in this trace, counted from 1."""
        file = to_original_path(file, self.copied_folder)
        key = (self.intern_string(file), line, self.intern_string(module))
        number = self._locations.get(key)
        if number is None:
            with self._lock:
                number = self._locations.get(key)
                if number is None:
                    number = len(self._locations) + 1
                    self._new_locations.append(f.LOCATION.pack(*key))
                    self._locations[key] = number
        return number

    def line_of_location_or_zero(self, location_id: int) -> int:
        """The line of a source location; 0 for an unknown id."""
        return next((line for (_, line, _), known in self._locations.items() if known == location_id), 0)

    def is_location_on_line(self, location_id: int, file: str, line: int) -> bool:
        """Whether a location id refers to this line, in any module."""
        key = next((key for key, known in self._locations.items() if known == location_id), None)
        return key is not None and key[:2] == (self.intern_string(file), line)

    def append(self, packed_event: bytes) -> None:
        self._pending.append(packed_event)
        if len(self._pending) >= self.flush_at:
            self.flush()
            self.flush_at = max(1, min(FLUSH_EVENTS, self.count // 64))

    def flush(self) -> None:
        """Write pending events, preceded by the new strings and locations that they refer to."""
        with self._lock:
            pending = self._pending
            events = [pending.popleft() for _ in range(len(pending))]
            strings, self._new_strings = self._new_strings, []
            locations, self._new_locations = self._new_locations, []
            data = b""
            for tag, items in ((f.STRINGS, strings), (f.LOCATIONS, locations), (f.EVENTS, events)):
                if items:
                    payload = b"".join(items)
                    data += f.BLOCK.pack(tag, len(items), len(payload)) + payload
            self.count += len(events)
            if data:
                self._write(data)

    def close(self) -> None:
        """Write the end mark, which makes the trace complete."""
        with self._lock:
            if self._fd < 0:
                return
            self.flush()
            self._write(f.BLOCK.pack(f.END, self.count & 0xFFFFFFFF, 0))
            self.close_without_end_mark()

    def try_reserve_and_map_space(self) -> None:
        """Allocate the space for what is still to come, before the program limits the size of files.

        The limit (RLIMIT_FSIZE) is one of `write`, even into a file that is longer already; memory maps have none. The
        blocks are allocated: a map of a sparse file on a full disk would end the process.
        """
        with self._lock:
            if self._reserved is not None or self._fd < 0 or not hasattr(os, "posix_fallocate"):
                return
            self.flush()
            import mmap

            try:
                fd = _open(self.path, os.O_RDWR | _FLAGS)
            except OSError:
                return
            try:
                size = _fstat(fd).st_size
                if (_fstat(fd).st_dev, _fstat(fd).st_ino) != self._identity:
                    return
                os.posix_fallocate(fd, size, RESERVED_BYTES)
                self._reserved, self._reserved_at = mmap.mmap(fd, size + RESERVED_BYTES), size
            except (OSError, ValueError):
                with suppress(OSError):
                    os.ftruncate(fd, size)
            finally:
                _close(fd)

    def _give_back_reserved_space(self) -> None:
        """Cut the file to what was written: no limit forbids that."""
        reserved, self._reserved = self._reserved, None
        if reserved is not None:
            reserved.close()
            with suppress(OSError):
                os.truncate(self.path, self._reserved_at)

    def close_without_end_mark(self, is_file_of_this_process: bool = True) -> None:
        """Close the file without an end mark. In a forked child it is not its own: the file belongs to the parent."""
        if is_file_of_this_process:
            self._give_back_reserved_space()
        self._reserved = None
        if self._descriptor_is_still_trace():
            _close(self._fd)
        self._fd = -1

    def close_with_failure_in_header(self, reason: str) -> None:
        """Stop recording and put the reason into the header."""
        with self._lock:
            if self._fd >= 0 and not self.failure:
                self.failure = reason
                if not self._try_write_reason_to_header(reason) and self._may_have_header():
                    self._try_create_headerless_trace()
                self.close_without_end_mark()
            self.failure = self.failure or reason

    def _try_write_reason_to_header(self, reason: str) -> bool:
        text = reason.encode(errors="replace")[: f.STATUS_BYTES - 1]
        try:
            if self._descriptor_is_still_trace() or self._try_reopen_at_end():
                _pwrite(self._fd, text.ljust(f.STATUS_BYTES, b"\0"), f.STATUS_AT)
                return True
        except OSError:  # for example: a file size limit below the end of the header
            pass
        return False

    def _may_have_header(self) -> bool:
        """Whether the header is on disk. A trace without one shows by itself that it could not be written."""
        try:
            return os.stat(self.path).st_size >= f.STATUS_AT + f.STATUS_BYTES
        except OSError:
            return True

    def _try_create_headerless_trace(self) -> None:
        """Create a trace without a header beside this one: readers report it as a failure.

        A trace that merely ends early would look like that of a killed process, and the lost events would go
        unnoticed.
        """
        name = self.path.removesuffix(".trace") + "~unwritten.trace"
        try:
            _close(_open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, MODE))
        except OSError:
            pass

    def _write(self, data: bytes) -> None:
        if self._fd < 0:
            return
        if self._reserved is not None and self._reserved_at + len(data) <= len(self._reserved):
            self._reserved[self._reserved_at : self._reserved_at + len(data)] = data
            self._reserved_at += len(data)
            return
        if self._reserved is not None:
            self.close_with_failure_in_header("the trace could not be written: " + describe_file_size_limit())
            return
        if not self._descriptor_is_still_trace() and not self._try_reopen_at_end():
            self.close_with_failure_in_header("the program closed the trace, and it could not be opened again")
            return
        view = memoryview(data)
        try:
            while view:
                view = view[_write(self._fd, view) :]
        except OSError as error:
            why = describe_file_size_limit() if error.errno == errno.EFBIG else error.strerror
            self.close_with_failure_in_header(f"the trace could not be written: {why}")

    def _descriptor_is_still_trace(self) -> bool:
        """Whether the descriptor still refers to the trace.

        A program may close all descriptors, as daemons do, and then get this number for a file of its own: writing
        to it would corrupt that file.
        """
        try:
            return self._fd >= 0 and _device_and_inode(self._fd) == self._identity
        except OSError:
            return False

    def _try_reopen_at_end(self) -> bool:
        """Continue at the end of the trace with a new descriptor; the old number belongs to the program now."""
        self._fd = -1
        try:
            fd = _move_to_high_descriptor(_open(self.path, os.O_WRONLY | _FLAGS))
            if _device_and_inode(fd) == self._identity:
                _seek(fd, 0, os.SEEK_END)
                self._fd = fd
                return True
            _close(fd)  # another file has taken the name
        except OSError:
            pass
        return False


_open, _close, _write, _pwrite, _seek, _fstat = os.open, os.close, os.write, os.pwrite, os.lseek, os.fstat
"""Bound at import: a program may monkeypatch them, and samerun itself intercepts some."""
RESERVED_BYTES = 1 << 26
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
HIGH_DESCRIPTORS = (900, 200)


def describe_file_size_limit() -> str:
    """Why a file must not grow."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    except (ImportError, OSError, ValueError):
        limit = -1
    return f"{os.strerror(errno.EFBIG)}: files may have {limit} bytes here (RLIMIT_FSIZE, ulimit -f)"


def _device_and_inode(fd: int) -> tuple[int, int]:
    info = _fstat(fd)
    return info.st_dev, info.st_ino


def _move_to_high_descriptor(fd: int) -> int:
    """Move a descriptor above the low numbers, which programs expect from their own `open` and close in loops."""
    try:
        import fcntl
    except ImportError:
        return fd
    for number in HIGH_DESCRIPTORS:
        try:
            high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, number)
        except (OSError, ValueError):  # the limit on descriptors is lower
            continue
        _close(fd)
        return high
    return fd
