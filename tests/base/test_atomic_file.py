"""Files that are replaced as a whole: by several writers at once, by killed ones, beside hostile names."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from check_command import wait_for

from samerun.base import files
from samerun.base.files import make_temporary_path_beside, replace_file_atomically, write_file_atomically

pytest.importorskip("fcntl")

HALF = """
import os, signal, sys
from pathlib import Path
from samerun.base.files import replace_file_atomically
def write(file):
    file.write(b"half")
    file.flush()
    print("half", flush=True)
    sys.stdin.read()
replace_file_atomically(Path(sys.argv[1]), write)
"""


def start_half(path: Path) -> subprocess.Popen[str]:
    """A writer that has written half of its file, and ends it when its standard input does."""
    writer = subprocess.Popen(
        [sys.executable, "-c", HALF, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None and writer.stdout.readline() == "half\n"
    return writer


def end(writer: subprocess.Popen[str]) -> int:
    writer.communicate(timeout=60)
    return writer.returncode


def test_the_file_of_a_killed_writer_goes_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    killed, living = start_half(path), start_half(path)
    assert len(list(tmp_path.glob(".run.json.*.part"))) == 2
    killed.kill()
    end(killed)
    write_file_atomically(path, b"whole")
    assert len(list(tmp_path.glob(".run.json.*.part"))) == 1 and path.read_bytes() == b"whole"
    assert end(living) == 0
    assert os.listdir(tmp_path) == ["run.json"] and path.read_bytes() == b"half"


def test_of_another_machine_the_age_decides(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    fresh, old = (make_temporary_path_beside(path) for _ in range(2))
    fresh, old = (one.with_name(one.name.replace(one.name[6:14], "0" * 8)) for one in (fresh, old))
    fresh.write_bytes(b"1"), old.write_bytes(b"1")
    os.utime(old, (1, 1))
    write_file_atomically(path, b"whole")
    assert fresh.exists() and not old.exists()


def test_no_link_in_the_place_of_a_temporary_file_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even one whose name was guessed."""
    victim, path = tmp_path / "victim", tmp_path / "c.pt"
    victim.write_text("precious")
    guessed = [tmp_path / name for name in (".c.pt.1.part", ".c.pt.2.part", ".c.pt.previous.1.part", "c.pt.part")]
    for link in guessed[:3]:
        link.symlink_to(victim)
    names = iter([guessed[0], tmp_path / ".c.pt.9.part", guessed[1], tmp_path / ".c.pt.8.part", guessed[2],
                  tmp_path / ".c.pt.previous.9.part"])  # fmt: skip
    monkeypatch.setattr("samerun.base.files.make_temporary_path_beside", lambda _: next(names))
    write_file_atomically(path, b"one")
    monkeypatch.setattr(os, "link", _no_links)
    with pytest.raises(FileExistsError):  # the third guess: refused too, and not followed
        replace_file_atomically(path, lambda file: file.write(b"two"), backup_path=tmp_path / "c.pt.previous")
    assert victim.read_text() == "precious" and path.read_bytes() == b"one"


def _no_links(*_: object) -> None:
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize("links", [True, False])
def test_the_earlier_file_is_kept_also_without_links(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", _no_links)
    path = tmp_path / ("x" * 250)  # a temporary name longer than 255 bytes could not be made
    for number in range(3):
        replace_file_atomically(path, lambda file, n=number: file.write(b"%d" % n), backup_path=tmp_path / "earlier")
    assert (path.read_bytes(), (tmp_path / "earlier").read_bytes()) == (b"2", b"1")
    assert len(os.listdir(tmp_path)) == 2


def test_what_is_read_only_or_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        write_file_atomically(tmp_path / "none" / "a", b"")
    assert not os.listdir(tmp_path)


# --- two jobs on one path --------------------------------------------------------------------------------

JOB = """
import os, sys
from pathlib import Path
from samerun.base.files import replace_file_atomically
path, number = Path(sys.argv[1]), 0
while True:
    number += 1
    line = f"{os.getpid()} {number}\\n".encode()
    def write(file):
        for _ in range(200):
            file.write(line * 50)
            file.flush()
    replace_file_atomically(path, write, backup_path=path.with_name("c.previous"))
"""


def assert_whole(path: Path) -> None:
    lines = path.read_bytes().splitlines()
    assert len(lines) == 10_000 and len(set(lines)) == 1, path.name


def killed_jobs(folder: Path, rounds: int) -> None:
    """Two jobs that save to one path without a pause, one of them killed each round and started again."""
    path, chance = folder / "c", random.Random(11)
    jobs = [subprocess.Popen([sys.executable, "-c", JOB, str(path)]) for _ in range(2)]
    try:
        wait_for(folder / "c.previous")
        for number in range(rounds):
            time.sleep(chance.uniform(0.02, 0.12))
            which = number % 2
            jobs[which].send_signal(chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
            jobs[which].communicate(timeout=60)
            for name in ("c", "c.previous"):
                assert_whole(folder / name)
            jobs[which] = subprocess.Popen([sys.executable, "-c", JOB, str(path)], stderr=subprocess.DEVNULL)
    finally:
        for job in jobs:
            job.kill()
            job.wait()
    write_file_atomically(path, b"end")
    replace_file_atomically(path, lambda file: file.write(b"end"), backup_path=folder / "c.previous")
    assert sorted(os.listdir(folder)) == ["c", "c.previous"]


def test_two_jobs_that_save_to_one_path_and_are_killed(tmp_path: Path) -> None:
    killed_jobs(tmp_path, 15)


@pytest.mark.exhaustive
def test_two_jobs_that_save_to_one_path_and_are_killed_often(tmp_path: Path) -> None:
    killed_jobs(tmp_path, 400)


@pytest.mark.filterwarnings("ignore")  # a descriptor may be left to the interpreter
@pytest.mark.parametrize("write", ["one file", "with a backup", "nothing"])
def test_an_interrupt_before_any_line_leaves_no_temporary_file(write: str, tmp_path: Path) -> None:
    path, backup = tmp_path / "c.pt", tmp_path / "c.pt.previous" if write == "with a backup" else None
    path.write_bytes(b"0")
    lines = 0

    def interrupt_before(number: int) -> Any:
        left = itertools.count(1)

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            if frame.f_code.co_filename != files.__file__:
                return None
            if event == "line" and next(left) == number:
                sys.settrace(None)
                raise KeyboardInterrupt
            return trace

        return trace

    while True:
        lines += 1
        before = sys.gettrace()
        sys.settrace(interrupt_before(lines))
        try:
            if write == "nothing":
                files.require_file_replaceable(path)
            else:
                replace_file_atomically(path, lambda file: file.write(b"1"), backup_path=backup)
            break
        except KeyboardInterrupt:
            assert {one.name for one in tmp_path.iterdir()} <= {"c.pt", "c.pt.previous"}, lines
            assert path.read_bytes() in (b"0", b"1")
        finally:
            sys.settrace(before)
    assert lines > 10
