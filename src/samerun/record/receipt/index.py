"""The index of a folder of receipts: SQLite, made of the receipts and made again from them at any time.

Receipts are the truth. The index is brought up to date when it is read: every file of the folder is looked at
(`folder_state.py`), those that are new or not as they were are read again, rows of files that are gone are
deleted. Several processes may do that at once; one that is killed leaves the last state that was whole
(write-ahead log).
"""

from __future__ import annotations

import os
import re
import socket
import sqlite3
import time
from collections.abc import Container, Iterator
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path

from samerun.base.errors import SamerunError
from samerun.record.receipt import folder_state, index_file
from samerun.record.receipt.entry import Entry, as_text
from samerun.record.receipt.folder_state import Progress
from samerun.record.receipt.index_file import NotOurs
from samerun.record.receipt.many_entries import read_entries

NAME = os.path.join(".samerun", "index.sqlite")
"""In a folder of its own: there SQLite's files come and go without a change of the folder of the receipts."""
VERSION = 2
UNSETTLED = ""
"""The state of what was read so soon after it was written that another change might not show: read again."""
WAIT_SECONDS = 60

_COLUMNS = tuple(field.name for field in fields(Entry))
_TABLE = f"CREATE TABLE IF NOT EXISTS receipts ({', '.join(_COLUMNS)}, state, PRIMARY KEY (file))"
"""`state`: of the file when it was read, or UNSETTLED."""
_NEWEST = "CREATE INDEX IF NOT EXISTS newest ON receipts (began, file)"
_STATES = "CREATE INDEX IF NOT EXISTS states ON receipts (state)"
_SCHEMA = (_TABLE, _NEWEST, _STATES)
_PUT = f"INSERT OR REPLACE INTO receipts VALUES ({', '.join('?' * (len(_COLUMNS) + 1))})"


def new_file(folder: Path, command: tuple[str, ...]) -> Path:
    """A name for a receipt in a folder of them. Makes the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SamerunError(f"--receipt {folder}: {error.strerror}.", hint="Name a folder that can be made.") from error
    return folder.resolve() / new_name(command)


def new_name(command: tuple[str, ...]) -> str:
    """Time, program, machine, process: containers that share a folder often have the same process ids."""
    program = next((word for word in command if not word.startswith("-")), "run")
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", os.path.basename(program).removesuffix(".py"))[:40] or "run"
    host = re.sub(r"[^A-Za-z0-9_-]+", "-", socket.gethostname())[:20]
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{stem}-{host}-{os.getpid()}.json"


def entries(
    folder: Path,
    command: str = "",
    newest: int | None = None,
    progress: Progress | None = None,
    looking: Progress | None = None,
) -> list[Entry]:
    """The receipts in a folder, the newest last, after the index was brought up to date.

    command: only those whose command contains this text. newest: at most so many. progress: told how far the
    reading of new receipts is; looking: how many files were looked at. Raises SamerunError if the folder cannot
    be read.
    """
    if not os.path.isdir(folder):
        raise SamerunError(f"Not a directory: {folder}", hint="Name a folder of receipts.")
    order = "ORDER BY began DESC, file DESC" + (f" LIMIT {int(newest)}" if newest is not None else "")
    # instr, not LIKE: a % in the text is a %
    query = f"SELECT {', '.join(_COLUMNS)} FROM receipts WHERE instr(command, ?) > 0 OR ? = '' {order}"

    def listed(index: sqlite3.Connection) -> list[Entry]:
        with closing(index):
            bring_up_to_date(index, folder, progress, looking)
            return [Entry(*row) for row in reversed(index.execute(query, (command, command)).fetchall())]

    path = folder / NAME
    try:
        if index_file.prepare_folder(path):
            try:
                return listed(_connect(path))
            except sqlite3.OperationalError:
                raise
            except (sqlite3.DatabaseError, NotOurs):  # it is damaged, or no index at all
                index_file.move_aside(path)
                return listed(_connect(path))
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise SamerunError(f"{path} cannot be used: {error}.", hint="Is another program holding it?") from error
    except (sqlite3.DatabaseError, OSError, NotOurs):
        pass
    return listed(_in_memory(path))


def bring_up_to_date(
    index: sqlite3.Connection, folder: Path, progress: Progress | None = None, looking: Progress | None = None
) -> None:
    """Look at every file of the folder, read what is new or changed, forget what is gone."""
    looked = time.time_ns()
    there = folder_state.read(folder, looking)
    known = _known(index)
    fresh = {as_text(folder_state.parts(state)[0]): state for state in sorted(there - known)}
    _forget(index, known - there, fresh)
    read = 0
    for some in read_entries(folder, [folder_state.parts(state)[:3] for state in fresh.values()]):
        rows = [(*vars(one).values(), _kept(fresh[one.file], looked)) for one in some]
        with _writing(index):  # at once: a first time that was broken off goes on from here
            index.executemany(_PUT, rows)
        read += len(some)
        if progress is not None:
            progress(read, len(fresh))


def _kept(state: str, looked: int) -> str:
    return as_text(state) if folder_state.is_settled(state, looked) else UNSETTLED


def _forget(index: sqlite3.Connection, states: set[str], fresh: Container[str]) -> None:
    """Delete the rows of files that are gone. What is only in another state is replaced when it was read."""
    gone = [(state.split("/")[0], state) for state in states - {UNSETTLED}]
    if UNSETTLED in states:
        gone += index.execute("SELECT file, state FROM receipts WHERE state = ?", (UNSETTLED,)).fetchall()
    gone = [each for each in gone if each[0] not in fresh]
    if gone:
        with _writing(index):
            index.executemany("DELETE FROM receipts WHERE file = ? AND state = ?", gone)


def _known(index: sqlite3.Connection) -> set[str]:
    """The states in which files were read. Fetched as one text: 100,000 rows would take several times as long."""
    text = index.execute("SELECT group_concat(state, char(0)) FROM receipts").fetchone()[0]
    return set() if text is None else set(text.split("\0"))


@contextmanager
def _writing(index: sqlite3.Connection) -> Iterator[None]:
    index.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        index.execute("ROLLBACK")
        raise
    index.execute("COMMIT")


def _in_memory(path: Path) -> sqlite3.Connection:
    """Where the folder, or the disk, takes no index: what there is of one, and nothing is kept."""
    found = sqlite3.connect(":memory:", isolation_level=None)
    try:
        index_file.check_file(path)
        if path.parent.is_symlink():
            raise NotOurs(path.parent)
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as there:
            there.backup(found)
        index_file.check_schema(found, _SCHEMA)
    except (sqlite3.Error, OSError, NotOurs):
        found.close()
        found = sqlite3.connect(":memory:", isolation_level=None)
    return _prepared(found)


def _connect(path: Path) -> sqlite3.Connection:
    """Raises NotOurs, before anything is changed, where it is another database."""
    index_file.check_file(path)
    return _prepared(sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None))


def _prepared(index: sqlite3.Connection) -> sqlite3.Connection:
    try:
        index_file.check_schema(index, _SCHEMA)
        _log_ahead(index)
        index.execute("PRAGMA synchronous=NORMAL")
        if _version(index) != VERSION:
            with _writing(index):
                index_file.check_schema(index, _SCHEMA)  # another process may have been here meanwhile
                for each in _SCHEMA:
                    index.execute(each)
                index.execute(f"PRAGMA user_version={VERSION}")
    except BaseException:
        index.close()
        raise
    return index


def _version(index: sqlite3.Connection) -> int:
    found: int = index.execute("PRAGMA user_version").fetchone()[0]
    return found


def _log_ahead(index: sqlite3.Connection) -> None:
    """Readers and a writer at once. SQLite itself does not wait where two processes change this at the same time."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            index.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
        time.sleep(0.01)
