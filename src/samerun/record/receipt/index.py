"""The index of a folder of receipts: an SQLite database, a cache that can be rebuilt at any time.

The receipts are the truth. Each listing updates the index: it looks at every file of the folder, reads those that are
new or changed, and deletes the rows of files that are gone. Several processes may do that at once, and one that is
killed leaves the last consistent state (write-ahead log).

The modification time of the folder is not enough, because writing to a file in place does not change it. So the state
of every file (name, timestamps, size) is read for every listing; native/folder.c does it where it was built. A state is
one string, so that 100,000 of them can be compared with set operations and one query.

The folder may come from a stranger, and SQLite obeys what a database contains: a symbolic link leads to another
database, a view or a trigger runs as long as its author likes, and a journal names a file that is deleted after it was
played back. So only a regular file in a real directory is opened, and it is queried only if its schema is exactly
ours. Anything else is moved aside unread, and the index is rebuilt.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import socket
import sqlite3
import stat
import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from samerun.base.errors import SamerunError
from samerun.base.native import try_load_built_library
from samerun.record.receipt.receipt_summary import ReceiptSummary, read_summaries, to_truncated_sqlite_text

SETTLED_NS = 2_000_000_000
"""A file changed this recently may change again without a new timestamp: the coarsest file systems have a resolution
of two seconds."""
FILES_PER_CALL = 5_000
BUFFER_BYTES = 1 << 20
_VANISHED = {errno.ENOENT, errno.ELOOP, errno.ENOTDIR}
"""Errors of a file that was deleted meanwhile, or of a dangling symbolic link."""

Progress = Callable[[int, int], None]
"""Called with the number done and the total."""


def scan_file_states(folder: Path, progress: Progress | None = None) -> set[str]:
    """The states of the files of a folder that may be receipts. Raises SamerunError if the folder cannot be read."""
    try:
        scan = _scan_file_states_in_c if _load_folder_library() is not None else scan_file_states_in_python
        return scan(folder, progress)
    except OSError as error:
        raise SamerunError(f"{folder} cannot be read: {error.strerror}.", hint="Name a folder of receipts.") from error


def scan_file_states_in_python(folder: Path, progress: Progress | None = None) -> set[str]:
    """What `scan_file_states` does if the C library was not built. Raises OSError."""
    found = set()
    with os.scandir(folder) as items:
        names = [item.name for item in items if item.name.endswith(".json") and item.name[0] != "."]
    for number, name in enumerate(names, 1):
        try:
            info = os.stat(os.path.join(folder, name))
        except OSError as error:
            if error.errno in _VANISHED:
                continue
            raise
        if stat.S_ISREG(info.st_mode):
            # "/" separates the parts because a name cannot contain it. Programs can set mtime but not ctime, so
            # ctime shows when a file was replaced by another of the same size and mtime.
            found.add(f"{name}/{info.st_mtime_ns}/{info.st_size}/{info.st_ctime_ns}")
        if progress is not None and number % FILES_PER_CALL == 0:
            progress(number, len(names))
    return found


def _scan_file_states_in_c(folder: Path, progress: Progress | None) -> set[str]:
    library: Any = _load_folder_library()
    found = set[str]()
    fd, names, used = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t()
    results = ctypes.byref(fd), ctypes.byref(names), ctypes.byref(used)
    _raise_if_errno(library.samerun_folder_open_and_list_receipts(os.fsencode(folder), *results))
    try:
        at, wrote, room = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.create_string_buffer(BUFFER_BYTES)
        arguments = ctypes.byref(at), FILES_PER_CALL, room, ctypes.c_size_t(BUFFER_BYTES), ctypes.byref(wrote)
        count = ctypes.string_at(names, used.value).count(0) if used.value else 0
        done = 0
        while at.value < used.value:
            _raise_if_errno(library.samerun_folder_stat_files_as_text(fd, names, used, *arguments))
            found.update(os.fsdecode(ctypes.string_at(room, wrote.value)).split("\0")[:-1])
            done = min(done + FILES_PER_CALL, count)
            if progress is not None:
                progress(done, count)
    finally:
        library.samerun_folder_close_and_free(fd, names)
    return found


def _raise_if_errno(error_number: int) -> None:
    if error_number:
        raise OSError(error_number, os.strerror(error_number))


@lru_cache(maxsize=1)
def _load_folder_library() -> ctypes.CDLL | None:
    library = try_load_built_library(__file__, "_folder")
    return library if hasattr(library, "samerun_folder_stat_files_as_text") else None


class ScannedFile(NamedTuple):
    """A file as it was when its folder was scanned."""

    name: str
    mtime_ns: int
    size: int
    ctime_ns: int


def parse_file_state(file_state: str) -> ScannedFile:
    """The parts of one of the texts that `scan_file_states` returns."""
    name, mtime_ns, size, ctime_ns = file_state.split("/")
    return ScannedFile(name, int(mtime_ns), int(size), int(ctime_ns))


def is_file_state_settled(file_state: str, scanned_at_ns: int) -> bool:
    """Whether any change after `scanned_at_ns` (ns since 1970) is certain to give another state."""
    scanned = parse_file_state(file_state)
    # on other systems ctime is the time of creation
    return scanned_at_ns - (scanned.ctime_ns if os.name == "posix" else scanned.mtime_ns) > SETTLED_NS


JOURNAL_SECONDS = 2.0
"""A journal exists for milliseconds, while another process creates the index."""
SIDECAR_SUFFIXES = ("-journal", "-wal", "-shm")


class ForeignIndexError(Exception):
    """Something other than our index lies at its path."""


def ensure_index_folder(index_path: Path) -> bool:
    """Create the folder of the index; False if its path is not a directory. Raises OSError."""
    try:
        index_path.parent.mkdir()
    except FileExistsError:
        pass
    return stat.S_ISDIR(os.lstat(index_path.parent).st_mode)


def require_single_link_regular_index_files(index_path: Path) -> None:
    """Require that the database and SQLite's files beside it are regular files with a single hard link.

    Raises ForeignIndexError otherwise, and OSError.
    """
    for each in (index_path, *_sqlite_sidecars(index_path)):
        try:
            info = os.lstat(each)
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(info.st_mode) or info.st_nlink > 1:
            raise ForeignIndexError(each)


def wait_for_journal_removal_or_raise(index_path: Path) -> None:
    """Raises ForeignIndexError if SQLite's journal still lies beside the index after `JOURNAL_SECONDS`."""
    end = time.monotonic() + JOURNAL_SECONDS
    while os.path.lexists(f"{index_path}-journal"):
        if time.monotonic() > end:
            raise ForeignIndexError(f"{index_path}-journal")
        time.sleep(0.01)


def require_empty_or_expected_schema(index: sqlite3.Connection, statements: Iterable[str]) -> None:
    """Raises ForeignIndexError unless a database is empty, or has exactly the schema that our statements create."""
    index.execute("PRAGMA trusted_schema=OFF")
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
    found = index.execute(query).fetchmany(100)
    ours = sqlite3.connect(":memory:")
    try:
        for each in statements:
            ours.execute(each)
        if found and found != ours.execute(query).fetchall():
            raise ForeignIndexError("schema")
    finally:
        ours.close()


def delete_sidecars_and_move_index_aside(index_path: Path) -> None:
    """Rename what lies at the path, without following or opening it. Raises OSError."""
    for each in _sqlite_sidecars(index_path):  # they would be played back into the next database
        each.unlink(missing_ok=True)
    if os.path.lexists(index_path):
        os.replace(index_path, index_path.with_name("damaged.sqlite"))


def _sqlite_sidecars(index_path: Path) -> list[Path]:
    return [index_path.with_name(index_path.name + each) for each in SIDECAR_SUFFIXES]


INDEX_PATH = os.path.join(".samerun", "index.sqlite")
"""In a folder of its own, so that SQLite's temporary files do not change the folder of the receipts."""
VERSION = 2
MAY_CHANGE_UNNOTICED = ""
"""Stored instead of the state of a file that was read right after it was written: another change might not show in
its timestamps, so it is read again."""
WAIT_SECONDS = 60

_COLUMNS = tuple(field.name for field in fields(ReceiptSummary))
_TABLE = f"CREATE TABLE IF NOT EXISTS receipts ({', '.join(_COLUMNS)}, state, PRIMARY KEY (file))"
"""`state`: of the file when it was read, or MAY_CHANGE_UNNOTICED."""
_NEWEST = "CREATE INDEX IF NOT EXISTS newest ON receipts (began, file)"
_STATES = "CREATE INDEX IF NOT EXISTS states ON receipts (state)"
_SCHEMA = (_TABLE, _NEWEST, _STATES)
_PUT = f"INSERT OR REPLACE INTO receipts VALUES ({', '.join('?' * (len(_COLUMNS) + 1))})"


def create_folder_and_make_receipt_path(folder: Path, command: tuple[str, ...]) -> Path:
    """The path of a new receipt in a folder. Creates the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SamerunError(f"--receipt {folder}: {error.strerror}.", hint="Name a folder that can be made.") from error
    return folder.resolve() / make_receipt_name(command)


def make_receipt_name(command: tuple[str, ...]) -> str:
    """A file name of time, program, host and process id. Containers that share a folder often share process ids."""
    program = next((word for word in command if not word.startswith("-")), "run")
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", os.path.basename(program).removesuffix(".py"))[:40] or "run"
    host = re.sub(r"[^A-Za-z0-9_-]+", "-", socket.gethostname())[:20]
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{stem}-{host}-{os.getpid()}.json"


def update_and_list_receipts(
    folder: Path,
    command_contains: str = "",
    newest_count: int | None = None,
    progress: Progress | None = None,
    scan_progress: Progress | None = None,
) -> list[ReceiptSummary]:
    """Update the index of a folder and return its receipts, the newest last.

    command_contains: only those whose command contains this text. newest_count: at most this many. progress: called as
    new receipts are read; scan_progress: called as files are looked at. Raises SamerunError if the folder cannot be
    read.

    If the folder cannot hold an index (read-only, disk full, not ours), one in memory serves this listing.
    """
    if not os.path.isdir(folder):
        raise SamerunError(f"Not a directory: {folder}", hint="Name a folder of receipts.")
    order = "ORDER BY began DESC, file DESC" + (f" LIMIT {int(newest_count)}" if newest_count is not None else "")
    # instr, not LIKE: a % in the text has no special meaning
    query = f"SELECT {', '.join(_COLUMNS)} FROM receipts WHERE instr(command, ?) > 0 OR ? = '' {order}"

    def update_and_query(index: sqlite3.Connection) -> list[ReceiptSummary]:
        with closing(index):
            update_index(index, folder, progress, scan_progress)
            return [
                ReceiptSummary(*row)
                for row in reversed(index.execute(query, (command_contains, command_contains)).fetchall())
            ]

    path = folder / INDEX_PATH
    try:
        if ensure_index_folder(path):
            try:
                return update_and_query(_open_index(path))
            except sqlite3.OperationalError:
                raise
            except (sqlite3.DatabaseError, ForeignIndexError):  # damaged, or not an index
                delete_sidecars_and_move_index_aside(path)
                return update_and_query(_open_index(path))
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise SamerunError(f"{path} cannot be used: {error}.", hint="Is another program holding it?") from error
    except (sqlite3.DatabaseError, OSError, ForeignIndexError):
        pass
    return update_and_query(_open_in_memory_copy_or_empty_index(path))


def update_index(
    index: sqlite3.Connection, folder: Path, progress: Progress | None = None, scan_progress: Progress | None = None
) -> None:
    """Look at every file of the folder, read those that are new or changed, delete the rows of those that are gone."""
    looked = time.time_ns()
    present = scan_file_states(folder, scan_progress)
    indexed = _read_indexed_states(index)
    fresh = {to_truncated_sqlite_text(parse_file_state(state)[0]): state for state in sorted(present - indexed)}
    _delete_rows_of_gone_files(index, indexed - present, fresh)
    read = 0
    for some in read_summaries(folder, [parse_file_state(state)[:3] for state in fresh.values()]):
        rows = [(*vars(one).values(), _state_or_reread_marker(fresh[one.file], looked)) for one in some]
        with _immediate_transaction(
            index
        ):  # one transaction for each part: an interrupted first listing continues from here
            index.executemany(_PUT, rows)
        read += len(some)
        if progress is not None:
            progress(read, len(fresh))


def _state_or_reread_marker(file_state: str, scanned_at_ns: int) -> str:
    return (
        to_truncated_sqlite_text(file_state)
        if is_file_state_settled(file_state, scanned_at_ns)
        else MAY_CHANGE_UNNOTICED
    )


def _delete_rows_of_gone_files(
    index: sqlite3.Connection, outdated_states: set[str], names_to_replace: Container[str]
) -> None:
    """Delete the rows of files that are gone. Rows of changed files are replaced when those have been read."""
    gone = [(state.split("/")[0], state) for state in outdated_states - {MAY_CHANGE_UNNOTICED}]
    if MAY_CHANGE_UNNOTICED in outdated_states:
        gone += index.execute("SELECT file, state FROM receipts WHERE state = ?", (MAY_CHANGE_UNNOTICED,)).fetchall()
    gone = [each for each in gone if each[0] not in names_to_replace]
    if gone:
        with _immediate_transaction(index):
            index.executemany("DELETE FROM receipts WHERE file = ? AND state = ?", gone)


def _read_indexed_states(index: sqlite3.Connection) -> set[str]:
    """The states of the indexed files. Fetched as one text: 100,000 rows would take several times as long."""
    text = index.execute("SELECT group_concat(state, char(0)) FROM receipts").fetchone()[0]
    return set() if text is None else set(text.split("\0"))


@contextmanager
def _immediate_transaction(index: sqlite3.Connection) -> Iterator[None]:
    index.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        index.execute("ROLLBACK")
        raise
    index.execute("COMMIT")


def _open_in_memory_copy_or_empty_index(index_path: Path) -> sqlite3.Connection:
    """An index in memory, filled from the one on disk if that can be read. Nothing is written."""
    found = sqlite3.connect(":memory:", isolation_level=None)
    try:
        require_single_link_regular_index_files(index_path)
        wait_for_journal_removal_or_raise(index_path)
        if index_path.parent.is_symlink():
            raise ForeignIndexError(index_path.parent)
        uri = f"{index_path.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as there:
            there.backup(found)
        require_empty_or_expected_schema(found, _SCHEMA)
    except (sqlite3.Error, OSError, ForeignIndexError):
        found.close()
        found = sqlite3.connect(":memory:", isolation_level=None)
    return _require_or_create_schema(found)


def _open_index(index_path: Path) -> sqlite3.Connection:
    """Open the index. Raises ForeignIndexError, before anything is changed, if it is not ours."""
    require_single_link_regular_index_files(index_path)
    wait_for_journal_removal_or_raise(index_path)
    return _require_or_create_schema(sqlite3.connect(index_path, timeout=WAIT_SECONDS, isolation_level=None))


def _require_or_create_schema(index: sqlite3.Connection) -> sqlite3.Connection:
    try:
        require_empty_or_expected_schema(index, _SCHEMA)
        _enable_write_ahead_log(index)
        index.execute("PRAGMA synchronous=NORMAL")
        if _read_schema_version(index) != VERSION:
            with _immediate_transaction(index):
                require_empty_or_expected_schema(index, _SCHEMA)  # another process may have created it meanwhile
                for each in _SCHEMA:
                    index.execute(each)
                index.execute(f"PRAGMA user_version={VERSION}")
    except BaseException:
        index.close()
        raise
    return index


def _read_schema_version(index: sqlite3.Connection) -> int:
    found: int = index.execute("PRAGMA user_version").fetchone()[0]
    return found


def _enable_write_ahead_log(index: sqlite3.Connection) -> None:
    """Let readers and a writer work at once. SQLite does not wait when two processes switch the mode, so retry."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            index.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
        time.sleep(0.01)
