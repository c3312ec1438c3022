"""Data files opened for reading: path, size and, up to a limit, content."""

from __future__ import annotations

import os as real_os
import stat
import sys
from typing import Any

from xxhash import xxh3_128

from samerun.record import format as f
from samerun.record import sites
from samerun.record.interceptor import Interceptor
from samerun.record.recorder import NOTHING, Recorder

CONTENT_BYTES = 1 << 20
"""Of larger files the first and the last half of so much are digested."""
_PROGRAM = (".py", ".pyc", ".so", ".pyi", ".pth", ".dll", ".dylib")
_SYSTEM = ("/proc/", "/sys/", "/dev/")


def install(recorder: Recorder, os: Any) -> None:
    """One audit hook: it sees every way of opening a file from Python, whatever library opens it."""
    open_file, read, close = os.open, os.read, os.close
    readable = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)

    def hook(event: str, arguments: Any) -> None:
        if event != "open" or recorder.stopped or recorder.thread.inside:
            return
        path, mode, flags = arguments
        if not isinstance(path, (str, bytes)) or (mode is not None and mode[:1] not in ("r", "")):
            return
        if mode is None and isinstance(flags, int) and flags & 3 != os.O_RDONLY:
            return
        name = real_os.fsdecode(path)
        if name.endswith(_PROGRAM) or name.startswith(_SYSTEM):
            return
        placed = sites.host_site()
        if not placed[1] or not recorder.due(("file", name, placed[1])):
            return
        recorder.thread.inside += 1
        try:
            size, value = content(name)
        except OSError:
            size, value = 0, NOTHING
        finally:
            recorder.thread.inside -= 1
        recorder.host(f.FILE, "open", aux=name, inputs=size, outputs=value, placed=placed)

    def content(name: str) -> tuple[int, bytes]:
        """Size and digest of a regular file; other kinds are not touched."""
        info = real_os.stat(name)
        if not stat.S_ISREG(info.st_mode):
            return 0, NOTHING
        running = xxh3_128()
        fd = open_file(name, readable)
        try:
            if info.st_size <= CONTENT_BYTES:
                while part := read(fd, CONTENT_BYTES):
                    running.update(part)
            else:
                running.update(real_os.pread(fd, CONTENT_BYTES // 2, 0))
                running.update(real_os.pread(fd, CONTENT_BYTES // 2, info.st_size - CONTENT_BYTES // 2))
        finally:
            close(fd)
        return info.st_size, running.digest()

    sys.addaudithook(hook)


INTERCEPTOR = Interceptor("files", "os", install)
