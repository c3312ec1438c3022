"""Write a file so that there is a whole one at every moment, whatever ends the process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO


def previous_of(path: Path) -> Path:
    """Where the file that stood at `path` before is kept."""
    return path.with_name(path.name + ".previous")


def replace(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a file beside `path`, see it to the disk, and put it in the place of `path`.

    What stood at `path` goes to `previous_of(path)`, and stays at `path` until the new file is whole. If
    `write` raises, nothing is changed. Raises OSError.
    """
    part = path.with_name(path.name + ".part")  # the same every time: one that a kill left behind is used again
    try:
        with open(part, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if path.exists():
        _keep(path, previous_of(path))
    os.replace(part, path)
    _sync_folder(path.parent)


def _keep(path: Path, previous: Path) -> None:
    """A second name for the file, so that the first one is never without it; a copy where links are unknown."""
    link = previous.with_name(previous.name + ".part")
    link.unlink(missing_ok=True)
    try:
        os.link(path, link)
    except OSError:
        shutil.copy2(path, link)
    os.replace(link, previous)


def _sync_folder(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        return
    try:
        os.fsync(handle)
    except OSError:  # nor do some network file systems sync them
        pass
    finally:
        os.close(handle)
