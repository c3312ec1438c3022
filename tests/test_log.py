"""`samerun log` and its index."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from checking import samerun
from receipts import made, section

from samerun.base.errors import SamerunError
from samerun.record.receipt import index, receipt_file, remote


def put(folder: Path, name: str, began: str, word: str = "train.py", **parts: Any) -> None:
    given = {"command": {"form": "script", "words": [word]}, "circumstances": {"began": began, "host": "h"}}
    receipt_file.write(folder / name, made(**{**given, **parts}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put(tmp_path, "c.json", "2026-01-03", "other.py")
    put(tmp_path, "a.json", "2026-01-01")
    put(tmp_path, "b.json", "2026-01-02", ended={"exit_code": None, "signal": 9}, wrong=["cut off"])
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / "text.txt").write_text("no receipt")
    return tmp_path


def names(found: list[index.Entry]) -> list[str]:
    return [one.file for one in found]


def test_the_newest_stand_last(folder: Path) -> None:
    assert names(index.entries(folder)) == ["notes.json", "a.json", "b.json", "c.json"]
    assert names(index.entries(folder, "train")) == ["a.json", "b.json"]
    assert names(index.entries(folder, "train", 1)) == ["b.json"]
    assert index.entries(folder, "%") == []
    killed = index.entries(folder, "train", 1)[0]
    assert (killed.ended, killed.complete, killed.steps, killed.torch) == ("signal 9", False, 5, "2.13.0")
    assert index.entries(folder)[0].problem


def test_what_is_new_changed_or_gone_is_noticed(folder: Path) -> None:
    index.entries(folder)
    old = time.time() - 100
    os.utime(folder, (old, old))  # as if nothing had happened for a while
    assert len(index.entries(folder)) == 4
    put(folder, "d.json", "2026-01-04")
    (folder / "a.json").unlink()
    assert names(index.entries(folder)) == ["notes.json", "b.json", "c.json", "d.json"]
    os.utime(folder, (old, old))
    index.entries(folder)
    shutil.copyfile(folder / "c.json", folder / "d.json")  # in place: the folder is as it was
    os.utime(folder, (old, old))
    assert index.entries(folder, newest=1)[0].command == "other.py"


def test_a_damaged_index_is_made_again(folder: Path) -> None:
    index.entries(folder)
    for path in (folder / ".samerun").iterdir():
        path.unlink()
    (folder / index.NAME).write_bytes(b"not a database" * 1000)
    assert len(index.entries(folder)) == 4
    (folder / index.NAME).write_bytes(b"")
    assert len(index.entries(folder)) == 4


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(SamerunError, match="no folder"):
        index.entries(tmp_path / "nothing")


READER = """
import sys
from pathlib import Path
from samerun.record.receipt import index, receipt_file
sys.path.insert(0, sys.argv[2])
from receipts import made
folder = Path(sys.argv[1])
print("ready", flush=True)
for number in range(1000):
    receipt_file.write(folder / f"{sys.argv[3]}-{number}.json", made(circumstances={"began": str(number)}))
    index.entries(folder)
"""


def test_writers_at_once_and_killed_ones_leave_a_whole_index(folder: Path) -> None:
    processes = []
    for name in ("x", "y", "z"):
        words = [sys.executable, "-c", READER, str(folder), str(Path(__file__).parent), name]
        processes.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(1.5)
    for process in processes:
        assert process.poll() is None, "a writer failed"
        process.send_signal(signal.SIGKILL)
        process.communicate()
    found = index.entries(folder)
    there = [path.name for path in folder.glob("[!.]*.json")]
    assert sorted(names(found)) == sorted(there) and len(there) > 10
    assert [one.file for one in found if one.problem] == ["notes.json"]


def test_the_command(folder: Path) -> None:
    done = samerun(["log", "."], folder)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == 5 and lines[-1].endswith("c.json: other.py")
    assert samerun(["log", "--last", "--command", "train", "."], folder).stdout == "./b.json\n"
    put(folder, "e.json", "2026-01-05", sections=[section(other={(2, "loss"): "x"})])
    put(folder, "f.json", "2026-01-06")
    done = samerun(["log", "--diff", "--command", "train", "--json", "-", "."], folder)
    assert done.returncode == 1 and json.loads(done.stdout)["first_difference"]["step"] == 2
    done = samerun(["log", "--diff", "--command", "nothing", "."], folder)
    assert done.returncode == 2 and "0 receipts" in done.stderr
    assert samerun(["log", "nowhere"], folder).returncode == 2


def test_remote_folders(folder: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for path in folder.glob("*.json"):
        memory.pipe_file(f"/samerun-test/{path.name}", path.read_bytes())
    assert names(remote.entries("memory://samerun-test")) == ["notes.json", "a.json", "b.json", "c.json"]
    assert names(remote.entries("memory://samerun-test", "train", 1)) == ["b.json"]
    with remote.fetched("memory://samerun-test", "a.json") as path:
        assert receipt_file.read(path)["circumstances"]["began"] == "2026-01-01"
    with pytest.raises(SamerunError, match="cannot be"):
        remote.entries("nosuchthing://x")
    done = samerun(["log", "--last", "--command", "train", f"file://{folder}"], folder)
    assert done.stdout == f"file://{folder}/b.json\n", done.stderr
