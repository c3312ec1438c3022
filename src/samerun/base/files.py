"""Read and write files safely: regular files only, replaced as a whole, and the files of results that users name."""

from __future__ import annotations

import errno
import itertools
import os
import re
import shutil
import stat
import sys
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from samerun.base.errors import SamerunError
from samerun.base.hooks import hide_from_recorder
from samerun.base.text import escape_as_one_line


# --- reading: never wait for a pipe, never read a device, which a stranger may have put there
def open_regular_file(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file for reading, links followed.

    Raises OSError for everything else: a pipe would be waited for, and a device read for ever. The kind is asked of
    the open descriptor, so nothing can be put in the place of the file in between.
    """
    file = open(path, "rb", opener=_open_without_blocking)  # noqa: SIM115
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(0, "it is not a regular file", os.fspath(path))


def read_regular_file(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """The content of a regular file. Raises OSError for another kind of file and for more than `max_bytes` bytes."""
    with open_regular_file(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(0, f"it has more than {max_bytes} bytes", str(Path(path)))
    return content


def _open_without_blocking(path: str, flags: int) -> int:
    """Open without waiting for anybody at the other end of a pipe, and without taking a terminal over."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))


# --- replacing: readers find the earlier content or the new one, whenever the writer dies
fcntl: Any
try:
    import fcntl
except ImportError:  # not on this system
    fcntl = None

_numbers = itertools.count()
_LONGEST_STEM = 180
"""Bytes of the file's own name in the name of its temporary file: file systems allow 255 in all."""
_ABANDONED_SECONDS = 3600
"""A temporary file from another machine counts as left over when nobody has written to it for so long."""


def write_file_atomically(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace a file by a temporary one beside it that is whole and on the disk.

    A link is followed. Raises SamerunError for what is not a regular file (a device, a folder): replacing it
    would destroy it; and OSError where the folder cannot be written.
    """
    path = Path(os.path.realpath(path))
    replace_file_atomically(path, lambda file: file.write(data), mode=mode)


def replace_file_atomically(
    path: Path, write_content: Callable[[IO[bytes]], object], *, mode: int = 0o666, backup_path: Path | None = None
) -> None:
    """Let `write_content` fill a temporary file beside `path`, see it to the disk, and rename it to `path`.

    `backup_path`: what stood at `path` is kept under this name. Both names always hold a whole file, also when several
    processes write to one path at once: each fills a file of its own, and a file under either name is never written
    to again. If `write_content` raises, nothing is changed. Raises SamerunError for what is not a regular file, and
    OSError.
    """
    with hide_from_recorder():
        raise_if_existing_non_regular_file(path)
        _remove_abandoned_part_files(path)
        if backup_path is not None:
            _remove_abandoned_part_files(backup_path)
    created: list[Path] = []
    try:  # from before the file is there: a Ctrl-C between any two of these lines leaves none
        with hide_from_recorder():
            fd = _create_locked_part_file(path, mode, created)
        with os.fdopen(fd, "wb") as file:
            write_content(file)
            file.flush()
            # Renamed while it is open: the lock on it is what keeps another writer from removing it as left over.
            with hide_from_recorder():
                os.fsync(file.fileno())
                if backup_path is not None and os.path.lexists(path):
                    _link_or_copy_to_backup(path, backup_path)
                os.replace(created[0], path)
                fsync_folder(path.parent)
    except BaseException:
        with hide_from_recorder():
            for part in created:
                part.unlink(missing_ok=True)
        raise


def raise_if_existing_non_regular_file(path: Path) -> None:
    """Raises SamerunError unless there is nothing, or a regular file."""
    if exists_but_is_not_regular_file(path):
        raise SamerunError(f"{path} is not a regular file.", hint="Name a file; it is replaced as a whole.")


def exists_but_is_not_regular_file(path: Path) -> bool:
    """Is there a device, a pipe or a folder?"""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False  # not there; or not to be reached, which whoever writes there is told


def require_file_replaceable(path: Path) -> None:
    """Raises OSError where `replace_file_atomically` could not put a file at `path`. Leaves everything as it is."""
    created: list[Path] = []
    try:
        os.close(_create_locked_part_file(path, 0o600, created))
        # A file that its owner has made read-only is meant to stay, though its folder would let it be replaced.
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(13, "Permission denied", str(path))
        created[0].unlink(missing_ok=True)
    except BaseException:
        for part in created:
            part.unlink(missing_ok=True)
        raise


def fsync_folder(folder: Path) -> None:
    """Have the names in a folder written to the disk, where the system can do that."""
    try:
        fd = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        return
    try:
        os.fsync(fd)
    except OSError:  # nor do some network file systems sync them
        pass
    finally:
        os.close(fd)


def make_temporary_path_beside(path: Path) -> Path:
    """A name beside `path` that is used once only, which makes it safe to delete by its name.

    Without the system's entropy: that may be held still, and the program's draws from it are counted.
    """
    once = f"{os.getpid():08x}{time.monotonic_ns():016x}{next(_numbers):08x}"
    return path.parent / f".{_truncate_file_name(path)}.{_hostname_crc()}{once}.part"


def _create_locked_part_file(path: Path, mode: int, created: list[Path]) -> int:
    """A new, locked temporary file beside `path`: its descriptor. Its name is in `created` before it is there.

    Exclusive creation: what lies there already, a link say, is never opened, and never deleted.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    while True:
        created[:] = [make_temporary_path_beside(path)]
        try:
            fd = os.open(created[0], flags, mode)
        except FileExistsError:
            created.clear()
            continue
        if fcntl is None:
            return fd
        with suppress(OSError):  # a file system without locks: then nobody removes it either
            fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return fd
        os.close(fd)  # another writer took it for left over before it was locked


def _link_or_copy_to_backup(path: Path, backup_path: Path) -> None:
    """A second name for the file, so that the first one is never without it; a copy where links are unknown."""
    while True:
        temporary_path = make_temporary_path_beside(backup_path)
        try:
            try:
                os.link(path, temporary_path)
            except OSError:
                _copy_and_fsync(path, temporary_path)
            os.replace(temporary_path, backup_path)
            temporary_path.unlink(missing_ok=True)  # a rename between two names of one file does nothing
            return
        except FileNotFoundError:
            # A link cannot be locked: another writer took it for left over. Or the user has deleted the file.
            if not os.path.lexists(path):
                return
        except FileExistsError:  # not ours
            raise
        except BaseException:
            temporary_path.unlink(missing_ok=True)
            raise


def _copy_and_fsync(source_path: Path, destination_path: Path) -> None:
    with open(source_path, "rb") as source, open(destination_path, "xb") as file:
        shutil.copyfileobj(source, file)
        file.flush()
        os.fsync(file.fileno())
        shutil.copymode(source_path, destination_path)


def _remove_abandoned_part_files(path: Path) -> None:
    """Delete the temporary files of writers that were killed: nobody holds the lock on them any more."""
    if fcntl is None:
        return
    name = re.compile(rf"\.{re.escape(_truncate_file_name(path))}\.([0-9a-f]{{8}})[0-9a-f]{{32}}\.part")
    try:
        names = os.listdir(path.parent)
    except OSError:
        return
    for each in names:
        matched = name.fullmatch(each)
        if matched:
            _remove_part_file_if_abandoned(path.parent / each, matched[1] == _hostname_crc())


def _remove_part_file_if_abandoned(part: Path, created_on_this_machine: bool) -> None:
    """Locks may not be seen on another machine that shares the folder: there the age decides."""
    try:
        fd = os.open(part, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return  # gone, or somebody else's
    try:
        if created_on_this_machine or time.time() - os.fstat(fd).st_mtime > _ABANDONED_SECONDS:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink(missing_ok=True)
    except OSError:
        pass  # its writer lives
    finally:
        os.close(fd)


def _truncate_file_name(path: Path) -> str:
    raw = os.fsencode(path.name)
    return path.name if len(raw) <= _LONGEST_STEM else raw[:_LONGEST_STEM].decode("utf-8", "ignore")


def _hostname_crc() -> str:
    name = os.uname().nodename if hasattr(os, "uname") else ""
    return f"{zlib.crc32(name.encode('utf-8', 'surrogateescape')):08x}"


# --- the files that a command writes its results to
_CONTENT_BY_OPTION = {"--html": (b"<!doctype html>", "a web page"), "--patch": (b"--- ", "a patch")}
"""What files of these kinds begin with; of all others: JSON."""


def require_output_safe_to_replace(option_name: str, path: str | None) -> None:
    """Before anything runs: a report that cannot be written in the end would be a waste.

    Raises SamerunError where it cannot, where the next option was taken for the file, and where the file is there and
    holds something else than such results: a program, say, that was taken for the value of an option.
    """
    if path is None or path == "-":
        return
    _raise_if_next_option(option_name, path)
    try:
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not exists_but_is_not_regular_file(
            Path(path)
        ):  # to open a pipe and close it again would be the end of it for its reader
            require_file_replaceable(Path(os.path.realpath(path)))
        _raise_if_file_holds_other_content(option_name, path)
    except OSError as error:
        raise _make_write_error(option_name, path, error) from error


def write_to_file_or_stdout(option_name: str, path: str, content: str | bytes) -> None:
    """Write a result where the user wants it: a file, which is replaced as a whole, or "-" for standard output.

    Raises SamerunError where it cannot be written; then the earlier file is as it was.
    """
    _raise_if_next_option(option_name, path)
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    try:
        if path == "-":
            if isinstance(content, str):
                sys.stdout.write(content)
            else:
                sys.stdout.flush()
                sys.stdout.buffer.write(data)
            sys.stdout.flush()
        elif exists_but_is_not_regular_file(Path(path)):
            with open(path, "wb") as file:  # a device or a pipe takes it as it comes
                file.write(data)
        else:
            _raise_if_file_holds_other_content(option_name, path)
            write_file_atomically(Path(path), data)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _make_write_error(option_name, "standard output" if path == "-" else path, error) from error


def _raise_if_next_option(option_name: str, path: str) -> None:
    if path.startswith("--"):
        raise SamerunError(
            f"{option_name} {path}: {option_name} needs the name of a file, and the next option came.",
            hint=f"Write {option_name} FILE {path}; a file of that name is ./{path}.",
        )


def _raise_if_file_holds_other_content(option_name: str, path: str) -> None:
    if not Path(path).is_file():
        return
    with open(path, "rb") as file:
        found = file.read(1024).lstrip()
    beginning, kind = _CONTENT_BY_OPTION.get(option_name, (b"{", "JSON"))
    if found and not found.lower().startswith(beginning):
        raise SamerunError(
            f"{option_name} {path}: there is such a file, and it is not {kind}; it was left as it is.",
            hint=f"{option_name} takes the name of a file to write; put the script after it.",
        )


def _make_write_error(option_name: str, path: str, error: OSError) -> SamerunError:
    return SamerunError(
        f"{option_name} {escape_as_one_line(path)}: {error.strerror or error}.",
        hint="Name a file that can be written, in a folder with room.",
    )
