"""The states of the files in a folder of receipts: name, timestamps and size of each.

The modification time of the folder is not enough, because writing to a file in place does not change it. So every file
is looked at for every listing; native/folder.c does it where it was built. A state is one string, so that 100,000 of
them can be compared with set operations and one query.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError
from samerun.base.native import load_built_library

SETTLED_NS = 2_000_000_000
"""A file changed this recently may change again without a new timestamp: the coarsest file systems have a resolution
of two seconds."""
FILES_PER_CALL = 5_000
BUFFER_BYTES = 1 << 20
_VANISHED = {errno.ENOENT, errno.ELOOP, errno.ENOTDIR}
"""Errors of a file that was deleted meanwhile, or of a dangling symbolic link."""

Progress = Callable[[int, int], None]
"""Called with the number done and the total."""


def scan_folder(folder: Path, progress: Progress | None = None) -> set[str]:
    """The states of the files of a folder that may be receipts. Raises SamerunError if the folder cannot be read."""
    try:
        scan = _scan_folder_in_c if _load_folder_library() is not None else scan_folder_in_python
        return scan(folder, progress)
    except OSError as error:
        raise SamerunError(f"{folder} cannot be read: {error.strerror}.", hint="Name a folder of receipts.") from error


def scan_folder_in_python(folder: Path, progress: Progress | None = None) -> set[str]:
    """What `scan_folder` does if the C library was not built. Raises OSError."""
    found = set()
    with os.scandir(folder) as items:
        names = [item.name for item in items if item.name.endswith(".json") and item.name[0] != "."]
    for number, name in enumerate(names, 1):
        try:
            info = os.stat(os.path.join(folder, name))
        except OSError as error:
            if error.errno in _VANISHED:
                continue
            raise
        if stat.S_ISREG(info.st_mode):
            # "/" separates the parts because a name cannot contain it. Programs can set mtime but not ctime, so
            # ctime shows when a file was replaced by another of the same size and mtime.
            found.add(f"{name}/{info.st_mtime_ns}/{info.st_size}/{info.st_ctime_ns}")
        if progress is not None and number % FILES_PER_CALL == 0:
            progress(number, len(names))
    return found


def _scan_folder_in_c(folder: Path, progress: Progress | None) -> set[str]:
    library: Any = _load_folder_library()
    found = set[str]()
    fd, names, used = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t()
    results = ctypes.byref(fd), ctypes.byref(names), ctypes.byref(used)
    _raise_errno(library.samerun_folder_open(os.fsencode(folder), *results))
    try:
        at, wrote, room = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.create_string_buffer(BUFFER_BYTES)
        arguments = ctypes.byref(at), FILES_PER_CALL, room, ctypes.c_size_t(BUFFER_BYTES), ctypes.byref(wrote)
        count = ctypes.string_at(names, used.value).count(0) if used.value else 0
        done = 0
        while at.value < used.value:
            _raise_errno(library.samerun_folder_stat(fd, names, used, *arguments))
            found.update(os.fsdecode(ctypes.string_at(room, wrote.value)).split("\0")[:-1])
            done = min(done + FILES_PER_CALL, count)
            if progress is not None:
                progress(done, count)
    finally:
        library.samerun_folder_close(fd, names)
    return found


def _raise_errno(error: int) -> None:
    if error:
        raise OSError(error, os.strerror(error))


@lru_cache(maxsize=1)
def _load_folder_library() -> ctypes.CDLL | None:
    library = load_built_library(__file__, "_folder")
    return library if hasattr(library, "samerun_folder_stat") else None


def split_state(state: str) -> tuple[str, int, int, int]:
    """Name, mtime (ns), size (bytes) and ctime (ns)."""
    name, written, size, changed = state.split("/")
    return name, int(written), int(size), int(changed)


def is_settled(state: str, looked_at_ns: int) -> bool:
    """Whether any change after `looked_at_ns` (ns since 1970) is certain to give another state."""
    _, written, _, changed = split_state(state)
    # on other systems ctime is the time of creation
    return looked_at_ns - (changed if os.name == "posix" else written) > SETTLED_NS
