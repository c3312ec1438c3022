"""Write one trace: append-only, block by block."""

from __future__ import annotations

import os
import struct
from collections import deque

from samerun.record.config import as_named
from samerun.record.trace import format as f

FLUSH_EVENTS = 256


class TraceWriter:
    """Appends events to one file.

    Safe to use from several threads: events are collected in a deque and written under a lock of the
    file. A failed write (disk full, folder gone) ends the trace, never the program: the reason is put
    into the header, whose bytes are on the disk already, and `failure` holds it.
    """

    def __init__(self, path: str, role: str, moved: tuple[str, str] | None = None) -> None:
        import threading

        self.path = path
        self.moved = moved
        """(folder, original): files in the one are named as if they lay in the other."""
        self.failure = ""
        self.count = 0
        self._pending: deque[bytes] = deque()
        self._strings: dict[str, int] = {}
        self._new_strings: list[bytes] = []
        self._places: dict[tuple[int, int, int], int] = {}
        self._new_places: list[bytes] = []
        self._lock = threading.RLock()
        self._fd = _move_high(_open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o644))
        self._identity = _identity_of(self._fd)
        name = role.encode()[: f.ROLE_BYTES]
        header = f.MAGIC + struct.pack("<II", f.VERSION, len(name)) + name.ljust(f.ROLE_BYTES, b"\0")
        header += struct.pack("<Q", os.getpid()) + b"\0" * f.STATUS_BYTES
        self._write(header)

    def string(self, text: str) -> int:
        """Number of a string; 0 is the empty one."""
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

    def place(self, file: str, line: int, module: str) -> int:
        """Number of a place in the program: file, line, module path. Places are numbered from 1."""
        file = as_named(file, self.moved)
        key = (self.string(file), line, self.string(module))
        number = self._places.get(key)
        if number is None:
            with self._lock:
                number = self._places.get(key)
                if number is None:
                    number = len(self._places) + 1
                    self._new_places.append(f.PLACE.pack(*key))
                    self._places[key] = number
        return number

    def line_of(self, number: int) -> int:
        """The line of a place; 0 for an unknown one."""
        return next((line for (_, line, _), known in self._places.items() if known == number), 0)

    def is_at(self, number: int, file: str, line: int) -> bool:
        """Is this the number of a place at that line, in whatever module?"""
        key = next((key for key, known in self._places.items() if known == number), None)
        return key is not None and key[:2] == (self.string(file), line)

    def append(self, event: bytes) -> None:
        self._pending.append(event)
        if len(self._pending) >= FLUSH_EVENTS:
            self.flush()

    def flush(self) -> None:
        """Write what is pending: new strings and places first, so that a reader knows them."""
        with self._lock:
            pending = self._pending
            taken = [pending.popleft() for _ in range(len(pending))]
            strings, self._new_strings = self._new_strings, []
            places, self._new_places = self._new_places, []
            data = b""
            for tag, items in ((f.STRINGS, strings), (f.PLACES, places), (f.EVENTS, taken)):
                if items:
                    payload = b"".join(items)
                    data += f.BLOCK.pack(tag, len(items), len(payload)) + payload
            self.count += len(taken)
            if data:
                self._write(data)

    def close(self) -> None:
        """Write the end mark: the trace is whole."""
        with self._lock:
            if self._fd < 0:
                return
            self.flush()
            self._write(f.BLOCK.pack(f.END, self.count & 0xFFFFFFFF, 0))
            self.drop()

    def drop(self) -> None:
        """Close the file without an end mark (in a forked child: the file belongs to the parent)."""
        if self._is_ours():
            _close(self._fd)
        self._fd = -1

    def fail(self, reason: str) -> None:
        """Stop recording and say why in the header."""
        with self._lock:
            if self._fd >= 0 and not self.failure:
                self.failure = reason
                if not self._say_in_header(reason) and self._has_header():
                    self._leave_empty_trace()
                self.drop()
            self.failure = self.failure or reason

    def _say_in_header(self, reason: str) -> bool:
        text = reason.encode(errors="replace")[: f.STATUS_BYTES - 1]
        try:
            if self._is_ours() or self._reopen():
                _pwrite(self._fd, text.ljust(f.STATUS_BYTES, b"\0"), f.STATUS_AT)
                return True
        except OSError:  # no file may grow to where the header ends, say
            pass
        return False

    def _has_header(self) -> bool:
        """A trace without a header says by itself that it could not be written."""
        try:
            return os.stat(self.path).st_size >= f.STATUS_AT + f.STATUS_BYTES
        except OSError:
            return True

    def _leave_empty_trace(self) -> None:
        """A trace that only ends early looks like that of a killed process, and what is missing like nothing."""
        name = self.path.removesuffix(".trace") + "~unwritten.trace"
        try:
            _close(_open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o644))
        except OSError:
            pass

    def _write(self, data: bytes) -> None:
        if self._fd < 0:
            return
        if not self._is_ours() and not self._reopen():
            self.fail("the program closed the trace, and it could not be opened again")
            return
        view = memoryview(data)
        try:
            while view:
                view = view[_write(self._fd, view) :]
        except OSError as error:
            self.fail(f"the trace could not be written: {error.strerror}")

    def _is_ours(self) -> bool:
        """Whether the descriptor still is the trace's.

        A program may close all descriptors, as daemons do, and be given this number for a file of its own.
        """
        try:
            return self._fd >= 0 and _identity_of(self._fd) == self._identity
        except OSError:
            return False

    def _reopen(self) -> bool:
        """Go on at the end of the trace with another descriptor; the old number is the program's now."""
        self._fd = -1
        try:
            fd = _move_high(_open(self.path, os.O_WRONLY | _FLAGS))
            if _identity_of(fd) == self._identity:
                _seek(fd, 0, os.SEEK_END)
                self._fd = fd
                return True
            _close(fd)  # another file has the name of ours
        except OSError:
            pass
        return False


_open, _close, _write, _pwrite, _seek, _fstat = os.open, os.close, os.write, os.pwrite, os.lseek, os.fstat
"""By name: a program may replace them, and samerun watches some."""
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
HIGH_NUMBERS = (900, 200)


def _identity_of(fd: int) -> tuple[int, int]:
    info = _fstat(fd)
    return info.st_dev, info.st_ino


def _move_high(fd: int) -> int:
    """Move a descriptor above the low numbers, which programs get from their own `open` and close in loops."""
    try:
        import fcntl
    except ImportError:
        return fd
    for number in HIGH_NUMBERS:
        try:
            high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, number)
        except (OSError, ValueError):  # fewer descriptors are allowed
            continue
        _close(fd)
        return high
    return fd
