"""`samerun log` of a folder that somebody sent: what lies in the place of the index is neither followed nor changed."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sample_receipts import made

from samerun.record.receipt import index, receipt_file

SAMERUN = str(Path(sys.executable).with_name("samerun"))


def foreign(path: Path, version: int = 1) -> bytes:
    """A database of somebody else's that has a table `receipts` too."""
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE receipts (customer, amount)")
        database.execute("INSERT INTO receipts VALUES ('a', 1)")
        database.execute(f"PRAGMA user_version={version}")
    database.close()
    return path.read_bytes()


def linked(place: Path, victim: Path) -> None:
    place.parent.mkdir()
    os.symlink(victim, place)


def hard_linked(place: Path, victim: Path) -> None:
    place.parent.mkdir()
    os.link(victim, place)


def folder_linked(place: Path, victim: Path) -> None:
    victim.rename(victim.with_name("index.sqlite"))
    os.symlink(victim.parent, place.parent)


def in_its_place(place: Path, victim: Path) -> None:
    place.parent.mkdir()
    place.write_bytes(victim.read_bytes())


def a_pipe(place: Path, victim: Path) -> None:
    place.parent.mkdir()
    os.mkfifo(place)


def endless_view(place: Path, victim: Path) -> None:
    place.parent.mkdir()
    with sqlite3.connect(place) as database:
        columns = ", ".join(f"1 AS {name}" for name in [*index._COLUMNS, "state"])
        database.execute(f"CREATE VIEW receipts AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) "
                         f"SELECT {columns} FROM n")  # fmt: skip
        database.execute(f"PRAGMA user_version={index.VERSION}")
    database.close()


def journal_linked(place: Path, victim: Path) -> None:
    place.parent.mkdir()
    os.symlink(victim, f"{place}-journal")
    os.symlink(victim, f"{place}-wal")


def journal_that_deletes(place: Path, victim: Path) -> None:
    """The journal of a transaction over several databases names a file that is deleted after it was played back."""
    place.parent.mkdir()
    foreign(place)
    name = os.fsencode(victim)
    page = 1024
    head = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(4) + bytes(4) + (4).to_bytes(4, "big")
    head += (512).to_bytes(4, "big") + (4096).to_bytes(4, "big")
    tail = (page).to_bytes(4, "big") + name + len(name).to_bytes(4, "big")
    tail += (sum(name) & 0xFFFFFFFF).to_bytes(4, "big") + b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
    Path(f"{place}-journal").write_bytes(head.ljust(512, b"\0") + tail)


TRAPS: list[Callable[[Path, Path], None]] = [
    linked, hard_linked, folder_linked, in_its_place, a_pipe, endless_view, journal_linked, journal_that_deletes,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs links and pipes")
@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.__name__)
def test_what_lies_in_the_place_of_the_index_stays_as_it_is(trap: Callable[[Path, Path], None], tmp_path: Path) -> None:
    folder, other = tmp_path / "runs", tmp_path / "other"
    folder.mkdir(), other.mkdir()
    receipt_file.write(folder / "a.json", made())
    victim = other / "victim.sqlite"
    before = foreign(victim)
    trap(folder / index.INDEX_PATH, victim)
    if trap is folder_linked:
        victim = victim.with_name("index.sqlite")
    for _ in range(2):
        begin = time.monotonic()
        done = subprocess.run([SAMERUN, "log", "--json", "-", "runs"], cwd=tmp_path, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert [one["file"] for one in json.loads(done.stdout)["receipts"]] == ["a.json"]
        assert time.monotonic() - begin < 10
    assert victim.read_bytes() == before
    assert sorted(path.name for path in other.iterdir()) == [victim.name]


def test_our_own_index_is_kept(tmp_path: Path) -> None:
    receipt_file.write(tmp_path / "a.json", made())
    assert len(index.update_and_list_receipts(tmp_path)) == 1
    before = (tmp_path / index.INDEX_PATH).stat().st_ino
    assert len(index.update_and_list_receipts(tmp_path)) == 1
    assert (tmp_path / index.INDEX_PATH).stat().st_ino == before
    assert not (tmp_path / ".samerun" / "damaged.sqlite").exists()
