"""What stands in a folder of receipts, and in which state: the one thing that is done for every file each time.

The time of the folder itself does not tell: a file that is written to in place leaves it as it is. So every file
is looked at. Its state is one text, for what is done with 100,000 of them is done to all at once (sets, one query).
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
from samerun.base.native import built

SETTLED_NS = 2_000_000_000
"""A file that was changed so shortly before it was looked at may change again in the same tick of its clock: the
coarsest there are have ticks of two seconds."""
TOLD_EACH = 5_000
ROOM = 1 << 20
_NOTHING_THERE = {errno.ENOENT, errno.ELOOP, errno.ENOTDIR}
"""Gone in the meantime, or a link that leads nowhere."""

Progress = Callable[[int, int], None]
"""Called with how many are done, and how many there are."""


def read(folder: Path, progress: Progress | None = None) -> set[str]:
    """The states of the files of a folder that may be receipts. Raises SamerunError if it cannot be read."""
    try:
        return _in_c(folder, progress) if _library() is not None else slow_read(folder, progress)
    except OSError as error:
        raise SamerunError(f"{folder} cannot be read: {error.strerror}.", hint="Name a folder of receipts.") from error


def slow_read(folder: Path, progress: Progress | None = None) -> set[str]:
    """What `read` does, where the C library was not built. Raises OSError."""
    found = set()
    with os.scandir(folder) as items:
        names = [item.name for item in items if item.name.endswith(".json") and item.name[0] != "."]
    for number, name in enumerate(names, 1):
        try:
            info = os.stat(os.path.join(folder, name))
        except OSError as error:
            if error.errno in _NOTHING_THERE:
                continue
            raise
        if stat.S_ISREG(info.st_mode):
            # The name cannot hold a "/". The time of change (ctime) is set by the system alone, so that a file put
            # in the place of another with the same size and time of writing is noticed.
            found.add(f"{name}/{info.st_mtime_ns}/{info.st_size}/{info.st_ctime_ns}")
        if progress is not None and number % TOLD_EACH == 0:
            progress(number, len(names))
    return found


def _in_c(folder: Path, progress: Progress | None) -> set[str]:
    library: Any = _library()
    found = set[str]()
    fd, names, used = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t()
    _check(library.samerun_folder_begin(os.fsencode(folder), ctypes.byref(fd), ctypes.byref(names), ctypes.byref(used)))
    try:
        at, wrote, room = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.create_string_buffer(ROOM)
        where = ctypes.byref(at), TOLD_EACH, room, ctypes.c_size_t(ROOM), ctypes.byref(wrote)
        count = ctypes.string_at(names, used.value).count(0) if used.value else 0
        done = 0
        while at.value < used.value:
            _check(library.samerun_folder_look(fd, names, used, *where))
            found.update(os.fsdecode(ctypes.string_at(room, wrote.value)).split("\0")[:-1])
            done = min(done + TOLD_EACH, count)
            if progress is not None:
                progress(done, count)
    finally:
        library.samerun_folder_end(fd, names)
    return found


def _check(error: int) -> None:
    if error:
        raise OSError(error, os.strerror(error))


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL | None:
    library = built(__file__, "_folder")
    return library if hasattr(library, "samerun_folder_look") else None


def parts(state: str) -> tuple[str, int, int, int]:
    """Name, time of writing (ns), size (bytes), time of change (ns)."""
    name, written, size, changed = state.split("/")
    return name, int(written), int(size), int(changed)


def is_settled(state: str, looked: int) -> bool:
    """Whether a change after `looked` (ns since 1970) is sure to give another state."""
    _, written, _, changed = parts(state)
    # elsewhere that time is the one of creation
    return looked - (changed if os.name == "posix" else written) > SETTLED_NS
