"""Open a file that a stranger may have put there: never wait for a pipe, never read a device."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file for reading, links followed.

    Raises OSError for everything else: a pipe would be waited for, and a device read for ever. The kind is asked of
    the open descriptor, so nothing can be put in the place of the file in between.
    """
    file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(0, "it is not a regular file", os.fspath(path))


def read_small(path: str | os.PathLike[str], most: int) -> bytes:
    """The content of a regular file. Raises OSError for another kind of file and for more than `most` bytes."""
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(0, f"it has more than {most} bytes", str(Path(path)))
    return content


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting for anybody at the other end of a pipe, and without taking a terminal over."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
