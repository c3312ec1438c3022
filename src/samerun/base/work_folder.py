"""A temporary folder that is deleted in the end, and by the next one who makes such a folder if we are killed.

The maker holds a lock (flock) on a file in it, which the kernel takes away when the maker dies, however it dies. A
folder of that name, of this user and this machine, with such a file and nobody's lock on it is left over. Where
there are no such locks nothing is marked, and nothing is deleted but one's own.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from samerun.base.guard import TEMPORARY, GuardProcess

fcntl: Any
try:
    import fcntl
except ImportError:  # not on this system
    fcntl = None

PREFIX = "samerun-"
OWNER = "owner.lock"
"""Holds the name of the machine: locks may not be seen on another one that shares the folder."""
_NAME = re.compile(re.escape(PREFIX) + r"[a-z0-9_]{8}")


@contextmanager
def temporary_work_folder(parent: str | None = None) -> Iterator[Path]:
    """A new folder in `parent`, or where the system has temporary ones. Raises OSError if it cannot be made."""
    where = parent or tempfile.gettempdir()
    remove_abandoned_work_folders(where)
    name, pid = tempfile.mkdtemp(prefix=PREFIX, dir=where), os.getpid()
    lock: int | None = None
    try:
        lock = _create_locked_owner_file(name)
        yield Path(name)
    finally:
        if os.getpid() == pid:  # a forked child leaves the block too
            if lock is not None and os.name != "posix":
                os.close(lock)
            _delete_work_folder(name)  # while it is ours
            if lock is not None and os.name == "posix":
                os.close(lock)


@contextmanager
def guarded_work_folder() -> Iterator[Path]:
    """A temporary folder that goes at once, with all processes whose environment names it, also if we are killed.

    The guard is dismissed when the folder is deleted, not before: whoever is killed while deleting leaves nothing.
    Raises OSError if the folder cannot be made.
    """
    with temporary_work_folder() as folder:
        guard = GuardProcess(TEMPORARY, os.fspath(folder))
        try:
            yield folder
            _delete_work_folder(os.fspath(folder))
            guard.dismiss()
        finally:
            guard.kill_guarded_unless_dismissed_and_wait()


def is_work_folder(folder: str) -> bool:
    """Is this a folder made here, of whatever process? Nothing in it is the user's."""
    return bool(_NAME.fullmatch(os.path.basename(folder))) and os.path.isfile(os.path.join(folder, OWNER))


def remove_abandoned_work_folders(parent: str) -> None:
    """Delete the folders in `parent` whose makers are dead."""
    if fcntl is None:
        return
    try:
        with os.scandir(parent) as items:
            found = [item.path for item in items if _NAME.fullmatch(item.name)]
    except OSError:
        return
    for path in found:
        _remove_work_folder_if_abandoned(path)


def _remove_work_folder_if_abandoned(folder: str) -> None:
    try:
        info = os.lstat(folder)
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
            return
        lock = os.open(os.path.join(folder, OWNER), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return  # gone, or not marked
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.read(lock, 1000) == _hostname_bytes():
            _delete_work_folder(folder)
    except OSError:
        pass  # its maker lives
    finally:
        os.close(lock)


def _delete_work_folder(folder: str) -> None:
    """The mark goes last: what an interrupted deletion leaves is still known to be ours."""
    with suppress(OSError):
        for name in sorted(set(os.listdir(folder)) - {OWNER}):
            path = os.path.join(folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                with suppress(OSError):
                    os.unlink(path)
    shutil.rmtree(folder, ignore_errors=True)


def _create_locked_owner_file(folder: str) -> int | None:
    """Under its name the file is never seen without the lock on it."""
    if fcntl is None:
        return None
    path = os.path.join(folder, OWNER)
    lock = os.open(path + ".part", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(lock, _hostname_bytes())
        os.rename(path + ".part", path)
    except OSError:  # a file system without locks
        os.close(lock)
        return None
    return lock


def _hostname_bytes() -> bytes:
    return socket.gethostname().encode("utf-8", "backslashreplace")
