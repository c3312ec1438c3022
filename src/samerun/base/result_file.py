"""The files that a command writes its results to."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from samerun.base.atomic_file import check_replaceable, is_special, write_atomically
from samerun.base.errors import SamerunError
from samerun.base.text import shown

_BEGINNINGS = {"--html": (b"<!doctype html>", "a web page"), "--patch": (b"--- ", "a patch")}
"""What files of these kinds begin with; of all others: JSON."""


def check_writable(option: str, path: str | None) -> None:
    """Before anything runs: a report that cannot be written in the end would be a waste.

    Raises SamerunError where it cannot, and where the file is there and holds something else than such results: a
    program, say, that was taken for the value of an option.
    """
    if path is None or path == "-":
        return
    try:
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not is_special(Path(path)):  # to open a pipe and close it again would be the end of it for its reader
            check_replaceable(Path(os.path.realpath(path)))
        _refuse_another_kind(option, path)
    except OSError as error:
        raise _cannot_write(option, path, error) from error


def write_result(option: str, path: str, text: str | bytes) -> None:
    """Write a result where the user wants it: a file, which is replaced as a whole, or "-" for standard output.

    Raises SamerunError where it cannot be written; then the earlier file is as it was.
    """
    data = text.encode("utf-8", "backslashreplace") if isinstance(text, str) else text
    try:
        if path == "-":
            if isinstance(text, str):
                sys.stdout.write(text)
            else:
                sys.stdout.flush()
                sys.stdout.buffer.write(data)
            sys.stdout.flush()
        elif is_special(Path(path)):
            with open(path, "wb") as file:  # a device or a pipe takes it as it comes
                file.write(data)
        else:
            _refuse_another_kind(option, path)
            write_atomically(Path(path), data)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _cannot_write(option, "standard output" if path == "-" else path, error) from error


def _refuse_another_kind(option: str, path: str) -> None:
    if not Path(path).is_file():
        return
    with open(path, "rb") as file:
        found = file.read(1024).lstrip()
    beginning, kind = _BEGINNINGS.get(option, (b"{", "JSON"))
    if found and not found.lower().startswith(beginning):
        raise SamerunError(
            f"{option} {path}: there is such a file, and it is not {kind}; it was left as it is.",
            hint=f"{option} takes the name of a file to write; put the script after it.",
        )


def _cannot_write(option: str, path: str, error: OSError) -> SamerunError:
    return SamerunError(
        f"{option} {shown(path)}: {error.strerror or error}.",
        hint="Name a file that can be written, in a folder with room.",
    )
