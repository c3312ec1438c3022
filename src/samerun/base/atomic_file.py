"""Write a file so that whoever reads it, whenever the writer dies, finds the earlier content or the new one."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from samerun.base.errors import SamerunError


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file by a temporary one beside it that is whole and on the disk.

    A link is followed. Raises SamerunError for what is no regular file (a device, a folder): replacing it
    would destroy it; and OSError where the folder cannot be written.
    """
    path = Path(os.path.realpath(path))
    refuse_special(path)
    _remove_left_over(path)
    part = path.parent / f".{path.name}.{os.getpid()}.part"
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0), 0o644)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def refuse_special(path: Path) -> None:
    """Raises SamerunError unless there is nothing, or a regular file."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # not there; or not to be reached, which whoever writes there is told
    if not stat.S_ISREG(mode):
        raise SamerunError(f"{path} is no regular file.", hint="Name a file; it is replaced as a whole.")


def sync_folder(folder: Path) -> None:
    """Have the names in a folder written to the disk, where the system can do that."""
    try:
        fd = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError:
        pass
    finally:
        os.close(fd)


def _remove_left_over(path: Path) -> None:
    """Delete the temporary files of writers that were killed."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.(\d+)\.part")
    try:
        names = os.listdir(path.parent)
    except OSError:
        return
    for name in names:
        found = pattern.fullmatch(name)
        if found and not _lives(int(found[1])):
            (path.parent / name).unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
