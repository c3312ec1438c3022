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
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError
from samerun.record.receipt import canonical

NAME = os.path.join(".samerun", "index.sqlite")
"""In a folder of its own: there SQLite's files come and go without a change of the folder of the receipts."""
SETTLED_NS = 2_000_000_000
"""A folder that was changed so shortly before it was read may change again in the same tick of its clock."""
VERSION = 1
WAIT_SECONDS = 60
AT_ONCE = 2000
"""So many receipts are read before they are written to the index: a long first time can be broken off."""


@dataclass(frozen=True)
class Entry:
    """One receipt, in short. `problem`: why the file is no receipt, or ""."""

    file: str
    stamp: int
    size: int
    began: str
    command: str
    ended: str
    complete: bool
    steps: int
    processes: int
    commit_: str
    torch: str
    threads: str
    host: str
    digest: str
    problem: str


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


def entries(folder: Path, command: str = "", newest: int | None = None) -> list[Entry]:
    """The receipts in a folder, the newest last, after the index was brought up to date.

    command: only those whose command contains this text. newest: at most so many. Raises SamerunError if the
    folder cannot be read.
    """
    order = "ORDER BY began DESC, file DESC" + (f" LIMIT {int(newest)}" if newest is not None else "")
    with _opened(folder) as index:
        bring_up_to_date(index, folder)
        # instr, not LIKE: a % in the text is a %
        query = f"SELECT * FROM receipts WHERE instr(command, ?) > 0 OR ? = '' {order}"
        rows = index.execute(query, (command, command)).fetchall()
        if newest is not None and not all(_is_as_known(folder, *row[:3]) for row in rows):
            _scan(index, folder)
            rows = index.execute(query, (command, command)).fetchall()
        return [Entry(*row) for row in reversed(rows)]


def _is_as_known(folder: Path, name: str, stamp: int, size: int) -> bool:
    try:
        info = (folder / name).stat()
    except OSError:
        return False
    return (info.st_mtime_ns, info.st_size) == (stamp, size)


def bring_up_to_date(index: sqlite3.Connection, folder: Path) -> None:
    """Look through the folder, unless it has not changed since that was last done."""
    try:
        changed, now = folder.stat().st_mtime_ns, time.time_ns()
    except OSError as error:
        raise SamerunError(f"{folder} cannot be read: {error.strerror}.", hint="Name a folder of receipts.") from error
    last = index.execute("SELECT changed FROM scanned").fetchone()
    if last is not None and last[0] == changed:
        return
    _scan(index, folder)
    if now - changed > SETTLED_NS:
        with _writing(index):
            index.execute("DELETE FROM scanned")
            index.execute("INSERT INTO scanned VALUES (?)", (changed,))


def _scan(index: sqlite3.Connection, folder: Path) -> None:
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
    for at in range(0, len(fresh), AT_ONCE):
        rows = [_row(folder / name, *there[name]) for name in fresh[at : at + AT_ONCE]]
        with _writing(index):
            index.executemany(_PUT, rows)
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
    if not folder.is_dir():
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


def _row(path: Path, stamp: int, size: int) -> tuple[Any, ...]:
    try:
        receipt = canonical.load(path)
        entry = entry_of(path.name, stamp, size, receipt)
    except SamerunError as error:
        entry = no_receipt(path.name, stamp, size, error.message)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        entry = no_receipt(path.name, stamp, size, f"no receipt: {error!r}")
    return tuple(vars(entry).values())


def no_receipt(name: str, stamp: int, size: int, problem: str) -> Entry:
    return Entry(_text(name), stamp, size, "", "", "", False, 0, 0, "", "", "", "", "", _text(problem))


def entry_of(name: str, stamp: int, size: int, receipt: dict[str, Any]) -> Entry:
    """What the index tells of a receipt. Raises KeyError, TypeError and the like for other JSON."""
    if receipt["kind"] != "samerun receipt":
        raise ValueError("it is of another kind")
    ended = receipt["ended"]
    end = f"signal {ended['signal']}" if ended["signal"] is not None else f"exit {ended['exit_code']}"
    if ended.get("exception") is not None or (ended["signal"] is None and ended["exit_code"] is None):
        end = ended.get("exception") or "block ended"
    steps = sum(int(one["steps"]["values"]["count"]) for one in receipt["processes"].values())
    return Entry(
        file=_text(name),
        stamp=stamp,
        size=size,
        began=_text(receipt["circumstances"].get("began", "")),
        command=" ".join(_text(word) for word in receipt["command"]["words"]),
        ended=_text(end),
        complete=bool(ended["complete"]),
        steps=min(steps, 1 << 60),
        processes=len(receipt["processes"]),
        commit_=_text(receipt["code"]["commit"] or ""),
        torch=_text(receipt["packages"].get("torch", "")),
        threads=_text(receipt["knobs"].get("threads", "")),
        host=_text(receipt["circumstances"].get("host", "")),
        digest=_text(receipt["digest"]),
        problem="",
    )


def _text(value: Any) -> str:
    """SQLite takes no lone surrogates; the index is for looking, so text is cut."""
    return str(value)[:1000].encode("utf-8", "backslashreplace").decode()
