"""Data files: those opened for reading by path, size and content; those opened for writing, as they are at the end."""

from __future__ import annotations

import os
import stat
import sys
from typing import Any

from xxhash import xxh3_128

from samerun.record.trace import format as f
from samerun.record.watching import sites
from samerun.record.watching.interceptor import Interceptor
from samerun.record.watching.recorder import NOTHING, Recorder

CONTENT_BYTES = 1 << 20
"""Of larger files the first and the last half of so much are digested."""
_PROGRAM = (".py", ".pyc", ".so", ".pyi", ".pth", ".dll", ".dylib")
_SYSTEM = ("/proc/", "/sys/", "/dev/")
MOST_OUTPUTS = 1000
"""So many files that a process wrote are digested at its end."""


_open, _read, _close = os.open, os.read, os.close  # a program may replace them
_READABLE = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)


def install(recorder: Recorder, module: Any) -> None:
    """One audit hook: it sees every way of opening a file from Python, whatever library opens it."""

    def hook(event: str, arguments: Any) -> None:
        if event == "open" and not recorder.stopped and not recorder.thread.inside:
            opened(recorder, *arguments)

    sys.addaudithook(hook)
    recorder.at_end.append(lambda: record_outputs(recorder))
    recorder.after_fork.append(recorder.outputs.clear)


def opened(recorder: Recorder, path: Any, mode: Any, flags: Any) -> None:
    """Note a file that the program opens: its content now where it reads, its name where it writes."""
    if not isinstance(path, (str, bytes)):
        return
    name = os.fsdecode(path)
    writer = recorder.writer
    if name.endswith(_PROGRAM) or name.startswith(_SYSTEM) or (writer is not None and name == writer.path):
        return
    writes = mode[:1] not in ("r", "") if mode is not None else isinstance(flags, int) and flags & 3 != os.O_RDONLY
    if writes or (mode is not None and "+" in mode):
        if recorder.config.receipt and len(recorder.outputs) < MOST_OUTPUTS and sites.host_site()[1]:
            recorder.outputs[os.path.abspath(name)] = None
        if writes:
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
    info = os.stat(name)
    if not stat.S_ISREG(info.st_mode):
        return 0, NOTHING
    running = xxh3_128()
    fd = _open(name, _READABLE)
    try:
        if info.st_size <= CONTENT_BYTES:
            while part := _read(fd, CONTENT_BYTES):
                running.update(part)
        else:
            running.update(os.pread(fd, CONTENT_BYTES // 2, 0))
            running.update(os.pread(fd, CONTENT_BYTES // 2, info.st_size - CONTENT_BYTES // 2))
    finally:
        _close(fd)
    return info.st_size, running.digest()


def record_outputs(recorder: Recorder) -> None:
    """What was written, as it is now; what is gone again was no output."""
    recorder.thread.inside += 1
    try:
        for name in recorder.outputs:
            try:
                size, value = content(name)
            except OSError:
                continue
            if value != NOTHING and (writer := recorder.writer or recorder.open()):
                recorder.emit(f.OUTPUT, name="open", aux=writer.intern_string(name), inputs=size, outputs=value)
    finally:
        recorder.thread.inside -= 1


INTERCEPTOR = Interceptor("files", "os", install)
