"""The index of a folder of receipts: SQLite, made of the receipts and made again from them at any time.

Receipts are the truth. The index is brought up to date when it is read: when the folder has changed, files that
are new or have another size or time are read again, and rows of files that are gone are deleted; files that were
written to in place, which does not change the folder, are noticed when they are listed. Several processes may do
that at once; one that is killed leaves the last state that was whole (write-ahead log).
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path

from samerun.base.errors import SamerunError
from samerun.record.receipt.entry import Entry
from samerun.record.receipt.many_entries import read_entries

NAME = os.path.join(".samerun", "index.sqlite")
"""In a folder of its own: there SQLite's files come and go without a change of the folder of the receipts."""
SETTLED_NS = 2_000_000_000
"""A folder that was changed so shortly before it was read may change again in the same tick of its clock."""
VERSION = 1
WAIT_SECONDS = 60


Progress = Callable[[int, int], None]
"""Called with how many receipts were read, and how many there are to be read."""

_COLUMNS = tuple(field.name for field in fields(Entry))
_TABLE = f"CREATE TABLE IF NOT EXISTS receipts ({', '.join(_COLUMNS)}, PRIMARY KEY (file))"
_SCANNED = "CREATE TABLE IF NOT EXISTS scanned (changed)"
_NEWEST = "CREATE INDEX IF NOT EXISTS newest ON receipts (began, file)"
_PUT = f"INSERT OR REPLACE INTO receipts VALUES ({', '.join('?' * len(_COLUMNS))})"


def new_file(folder: Path, command: tuple[str, ...]) -> Path:
    """A name for a receipt in a folder of them: time, program, process. Makes the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SamerunError(f"--receipt {folder}: {error.strerror}.", hint="Name a folder that can be made.") from error
    program = next((word for word in command if not word.startswith("-")), "run")
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", os.path.basename(program).removesuffix(".py"))[:40] or "run"
    now = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    return folder.resolve() / f"{now}-{stem}-{os.getpid()}.json"


def entries(
    folder: Path, command: str = "", newest: int | None = None, progress: Progress | None = None
) -> list[Entry]:
    """The receipts in a folder, the newest last, after the index was brought up to date.

    command: only those whose command contains this text. newest: at most so many. progress: told how far the
    reading of new receipts is. Raises SamerunError if the folder cannot be read.
    """
    order = "ORDER BY began DESC, file DESC" + (f" LIMIT {int(newest)}" if newest is not None else "")
    with _opened(folder) as index:
        bring_up_to_date(index, folder, progress)
        # instr, not LIKE: a % in the text is a %
        query = f"SELECT * FROM receipts WHERE instr(command, ?) > 0 OR ? = '' {order}"
        rows = index.execute(query, (command, command)).fetchall()
        if newest is not None and not all(_is_as_known(folder, *row[:3]) for row in rows):
            _scan(index, folder, progress)
            rows = index.execute(query, (command, command)).fetchall()
        return [Entry(*row) for row in reversed(rows)]


def _is_as_known(folder: Path, name: str, stamp: int, size: int) -> bool:
    try:
        info = (folder / name).stat()
    except OSError:
        return False
    return (info.st_mtime_ns, info.st_size) == (stamp, size)


def bring_up_to_date(index: sqlite3.Connection, folder: Path, progress: Progress | None = None) -> None:
    """Look through the folder, unless it has not changed since that was last done."""
    try:
        changed, now = folder.stat().st_mtime_ns, time.time_ns()
    except OSError as error:
        raise SamerunError(f"{folder} cannot be read: {error.strerror}.", hint="Name a folder of receipts.") from error
    last = index.execute("SELECT changed FROM scanned").fetchone()
    if last is not None and last[0] == changed:
        return
    _scan(index, folder, progress)
    if now - changed > SETTLED_NS:
        with _writing(index):
            index.execute("DELETE FROM scanned")
            index.execute("INSERT INTO scanned VALUES (?)", (changed,))


def _scan(index: sqlite3.Connection, folder: Path, progress: Progress | None) -> None:
    """Read what is new in the folder, forget what is gone."""
    known = {file: (stamp, size) for file, stamp, size in index.execute("SELECT file, stamp, size FROM receipts")}
    there: dict[str, tuple[int, int]] = {}
    try:
        with os.scandir(folder) as items:
            for item in items:
                if item.name.endswith(".json") and not item.name.startswith(".") and item.is_file():
                    info = item.stat()
                    there[item.name] = (info.st_mtime_ns, info.st_size)
    except OSError as error:
        raise SamerunError(f"{folder} cannot be read: {error.strerror}.", hint="Name a folder of receipts.") from error
    fresh = [name for name, stamp in there.items() if known.get(name) != stamp]
    gone = [(name,) for name in known if name not in there]
    read = 0
    for some in read_entries(folder, [(name, *there[name]) for name in sorted(fresh)]):
        with _writing(index):  # at once: a first time that was broken off goes on from here
            index.executemany(_PUT, [tuple(vars(one).values()) for one in some])
        read += len(some)
        if progress is not None:
            progress(read, len(fresh))
    if gone:
        with _writing(index):
            index.executemany("DELETE FROM receipts WHERE file = ?", gone)


@contextmanager
def _writing(index: sqlite3.Connection) -> Iterator[None]:
    index.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        index.execute("ROLLBACK")
        raise
    index.execute("COMMIT")


@contextmanager
def _opened(folder: Path) -> Iterator[sqlite3.Connection]:
    """The index of a folder, in the folder itself. A file that is no index is put aside and made again."""
    if not os.path.isdir(folder):
        raise SamerunError(f"There is no folder {folder}.", hint="Name a folder of receipts.")
    path = folder / NAME
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError:
        path = Path(":memory:")  # the folder cannot be written: nothing is kept
    try:
        index = _connect(path)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise SamerunError(f"{path} cannot be used: {error}.", hint="Is another program holding it?") from error
        os.replace(path, path.with_name("damaged.sqlite"))
        index = _connect(path)
    with closing(index):
        yield index


def _connect(path: Path) -> sqlite3.Connection:
    index = sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)
    try:
        index.execute("PRAGMA journal_mode=WAL")
        index.execute("PRAGMA synchronous=NORMAL")
        if index.execute("PRAGMA user_version").fetchone()[0] not in (0, VERSION):
            index.executescript("DROP TABLE IF EXISTS receipts; DROP TABLE IF EXISTS scanned")
        for each in (_TABLE, _SCANNED, _NEWEST):
            index.execute(each)
        index.execute(f"PRAGMA user_version={VERSION}")
    except BaseException:
        index.close()
        raise
    return index
