"""Whether the file of an index is one that we made: a folder of receipts may come from a stranger.

SQLite obeys what a database brings along: a link leads to another database, a view or a trigger runs for as long as
its maker likes, and a journal names a file that is deleted after it was played back. So nothing is opened but a plain
file in a plain folder, and nothing is asked of it unless its schema is ours to the letter. Whatever else lies there is
moved aside unread, never changed: the index is made again from the receipts.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterable
from pathlib import Path

JOURNAL_SECONDS = 2.0
"""A journal is there for milliseconds, while another process makes the index."""
BESIDE = ("-journal", "-wal", "-shm")


class NotOurs(Exception):
    """Something else than our index lies where it belongs."""


def prepare_folder(path: Path) -> bool:
    """Make the folder of an index; False where something else stands in its place. Raises OSError."""
    try:
        path.parent.mkdir()
    except FileExistsError:
        pass
    return stat.S_ISDIR(os.lstat(path.parent).st_mode)


def check_file(path: Path) -> None:
    """Raises NotOurs where the database, or what SQLite has beside it, is no plain file with one name, and OSError."""
    for each in (path, *_beside(path)):
        try:
            info = os.lstat(each)
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(info.st_mode) or info.st_nlink > 1:
            raise NotOurs(each)
    end = time.monotonic() + JOURNAL_SECONDS
    while os.path.lexists(f"{path}-journal"):
        if time.monotonic() > end:
            raise NotOurs(f"{path}-journal")
        time.sleep(0.01)


def check_schema(index: sqlite3.Connection, statements: Iterable[str]) -> None:
    """Raises NotOurs unless a database holds nothing at all, or exactly what our statements make."""
    index.execute("PRAGMA trusted_schema=OFF")
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
    found = index.execute(query).fetchmany(100)
    ours = sqlite3.connect(":memory:")
    try:
        for each in statements:
            ours.execute(each)
        if found and found != ours.execute(query).fetchall():
            raise NotOurs("schema")
    finally:
        ours.close()


def move_aside(path: Path) -> None:
    """Give what lies there another name, without following or opening it. Raises OSError."""
    for each in _beside(path):  # they belong to no other database, and would be played back into the next one
        each.unlink(missing_ok=True)
    if os.path.lexists(path):
        os.replace(path, path.with_name("damaged.sqlite"))


def _beside(path: Path) -> list[Path]:
    return [path.with_name(path.name + each) for each in BESIDE]
