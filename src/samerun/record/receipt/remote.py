"""Receipts in a folder that is an address: whatever fsspec and its packages reach (memory, s3, gs, ...)."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from samerun.base.errors import SamerunError
from samerun.base.text import shown
from samerun.record.receipt import canonical
from samerun.record.receipt.entry import Entry, entry_from, no_receipt
from samerun.record.receipt.folder_state import Progress

AT_ONCE = 200
"""So many receipts are fetched together, and held in memory."""


def is_address(folder: str) -> bool:
    return "://" in folder


def joined(folder: str, name: str) -> str:
    """The path or address of a file in a folder."""
    return f"{folder.rstrip('/')}/{name}" if is_address(folder) else os.path.join(folder, name)


def file_system(address: str) -> tuple[Any, str]:
    """Raises SamerunError where fsspec, or the package for this kind of address, is missing."""
    try:
        import fsspec
    except ImportError as error:
        raise SamerunError(
            f"{address} needs the package fsspec, which is not installed.", hint="pip install 'samerun[remote]'"
        ) from error
    try:
        found: tuple[Any, str] = fsspec.core.url_to_fs(address)
    except ImportError as error:
        raise SamerunError(f"{address} needs a package that is not installed.", hint=f"{error}.") from error
    except Exception as error:
        raise SamerunError(
            f"{address} cannot be reached: {shown(str(error), 200)}.", hint="Is the address right?"
        ) from error
    return found


def entries(
    address: str, command: str = "", newest: int | None = None, progress: Progress | None = None
) -> list[Entry]:
    """As `index.entries`, reading every receipt. Raises SamerunError where the folder cannot be read."""
    system, root = file_system(address)
    found = []
    with reaching(address):
        there = {}
        for item in system.ls(root, detail=True):
            name = posixpath.basename(item["name"])
            if item["type"] == "file" and name.endswith(".json") and not name.startswith("."):
                there[item["name"]] = int(item["size"] or 0)
        small = [path for path, size in there.items() if size <= canonical.LARGEST_BYTES]
        for at in range(0, len(small), AT_ONCE):
            part = small[at : at + AT_ONCE]
            # together: a file system far away fetches them at the same time
            fetched = system.cat(part, on_error="return")
            found += [_entry(path, fetched[path]) for path in part]
            if progress is not None:
                progress(len(found), len(small))
    found += [no_receipt(posixpath.basename(path), 0, there[path], "too large") for path in set(there) - set(small)]
    chosen = sorted((one for one in found if command in one.command), key=lambda one: (one.began, one.file))
    return chosen if newest is None else chosen[-newest:] if newest else []


def _entry(path: str, fetched: Any) -> Entry:
    name = posixpath.basename(path)
    if isinstance(fetched, BaseException):
        return no_receipt(name, 0, 0, f"cannot be read: {fetched}")
    return entry_from(name, 0, fetched)


@contextmanager
def reaching(address: str, what: str = "read") -> Iterator[None]:
    """Whatever a file system far away raises is trouble with the address: their exceptions have no common base."""
    try:
        yield
    except SamerunError:
        raise
    except FileNotFoundError as error:  # its text is a path, or a sentence of the file system's own
        raise SamerunError(f"{address} cannot be {what}: nothing is there.", hint="Is the address right?") from error
    except Exception as error:
        told = shown(str(error) or type(error).__name__, 200)
        raise SamerunError(
            f"{address} cannot be {what}: {told}.", hint="Is the address right, and do your credentials allow it?"
        ) from error
