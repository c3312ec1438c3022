"""Receipts in a folder that is an address: whatever fsspec and its packages reach (memory, s3, gs, ...)."""

from __future__ import annotations

import os
import posixpath
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError
from samerun.record.receipt import canonical
from samerun.record.receipt.index import Entry, entry_of, no_receipt


def is_address(folder: str) -> bool:
    return "://" in folder


def joined(folder: str, name: str) -> str:
    """The path or address of a file in a folder."""
    return f"{folder.rstrip('/')}/{name}" if is_address(folder) else os.path.join(folder, name)


def _file_system(address: str) -> tuple[Any, str]:
    """Raises SamerunError where fsspec, or the package for this kind of address, is missing."""
    try:
        import fsspec
    except ImportError as error:
        raise SamerunError(
            f"{address} needs the package fsspec, which is not installed.", hint="pip install 'samerun[remote]'"
        ) from error
    try:
        found: tuple[Any, str] = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise SamerunError(f"{address} cannot be reached: {error}.", hint="Is its package installed?") from error
    return found


def entries(address: str, command: str = "", newest: int | None = None) -> list[Entry]:
    """As `index.entries`, reading every receipt. Raises SamerunError where the folder cannot be read."""
    system, root = _file_system(address)
    found = []
    try:
        items = system.ls(root, detail=True)
        for item in items:
            name = posixpath.basename(item["name"])
            if item["type"] != "file" or not name.endswith(".json") or name.startswith("."):
                continue
            found.append(_entry(system, item, name))
    except OSError as error:
        raise SamerunError(f"{address} cannot be read: {error}.", hint="Is the address right?") from error
    chosen = sorted((one for one in found if command in one.command), key=lambda one: (one.began, one.file))
    return chosen if newest is None else chosen[-newest:] if newest else []


def _entry(system: Any, item: dict[str, Any], name: str) -> Entry:
    size = int(item["size"] or 0)
    if size > canonical.LARGEST_BYTES:
        return no_receipt(name, 0, size, "too large")
    try:
        return entry_of(name, 0, size, canonical.parse(system.cat_file(item["name"]), name))
    except SamerunError as error:
        return no_receipt(name, 0, size, error.message)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        return no_receipt(name, 0, size, f"no receipt: {error!r}")


@contextmanager
def fetched(folder: str, name: str) -> Iterator[Path]:
    """A receipt of a folder as a file, with what lies beside it."""
    if not is_address(folder):
        yield Path(folder) / name
        return
    system, root = _file_system(folder)
    with tempfile.TemporaryDirectory(prefix="samerun-", ignore_cleanup_errors=True) as here:
        for item in system.ls(root, detail=False):
            base = posixpath.basename(item)
            if base == name or (base.startswith(f"{name}.") and base.endswith(".steps")):
                system.get_file(item, os.path.join(here, base))
        yield Path(here) / name
