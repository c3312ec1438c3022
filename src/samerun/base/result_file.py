"""The files that a command writes its results to."""

from __future__ import annotations

import sys
from pathlib import Path

from samerun.base.errors import SamerunError

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
        existed = Path(path).exists()
        with open(path, "a", encoding="utf-8"):
            pass
        if not existed:
            Path(path).unlink()
        _refuse_another_kind(option, path)
    except OSError as error:
        raise _cannot_write(option, path, error) from error


def write_result(option: str, path: str, text: str | bytes) -> None:
    """Write a result where the user wants it: a file, or "-" for standard output."""
    data = text.encode() if isinstance(text, str) else text
    if path == "-":
        if isinstance(text, str):
            sys.stdout.write(text)
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return
    try:
        _refuse_another_kind(option, path)
        Path(path).write_bytes(data)
    except OSError as error:
        raise _cannot_write(option, path, error) from error


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
    return SamerunError(f"{option} {path}: {error.strerror}.", hint="Name a file that can be written.")
