"""The folders of killed commands go; those of living ones, and what only looks like one, stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from check_command import samerun, wait_for

from samerun.base import work_folder

pytest.importorskip("fcntl")

KILLED_WHILE_DELETING = """
import os, shutil, signal
from samerun.base.work_folder import guarded_work_folder
with guarded_work_folder() as folder:
    (folder / "a").mkdir()
    (folder / "b").write_text("trace")
    shutil.rmtree = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
"""
SLEEPS = "import time\nopen('ready', 'w').close()\ntime.sleep(60)\n"


def start(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    """A run that has begun; its folder is made before the program starts."""
    (folder / "ready").unlink(missing_ok=True)
    words = [sys.executable, "-m", "samerun", "run", "--quiet", *options, "sleeps.py"]
    process = subprocess.Popen(words, cwd=folder, env={**os.environ, "TMPDIR": str(folder)})
    wait_for(folder / "ready")
    return process


def folders(where: Path) -> set[str]:
    return {path.name for path in where.glob("samerun-*")}


@pytest.mark.parametrize("options", [["--receipt", "r.json"], ["--receipt", "r.json", "--trace", "ops"]])
def test_the_folder_of_a_killed_run_goes_with_the_next(options: list[str], tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    (tmp_path / "plain.py").write_text("print(1)")
    living, killed = start(tmp_path, *options), start(tmp_path, *options)
    assert len(both := folders(tmp_path)) == 2
    killed.kill()
    killed.wait()
    assert folders(tmp_path) == both
    done = samerun(["run", "--quiet", *options, "plain.py"], tmp_path, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert len(left := folders(tmp_path)) == 1 and left < both
    assert living.poll() is None
    living.send_signal(signal.SIGTERM)
    assert living.wait(timeout=60) == -signal.SIGTERM and not folders(tmp_path)


def test_what_is_not_marked_or_is_no_folder_of_ours_stays(tmp_path: Path) -> None:
    unmarked, elsewhere, other = (tmp_path / f"samerun-{name * 8}" for name in "abc")
    for folder in (unmarked, elsewhere, other):
        folder.mkdir()
    (elsewhere / work_folder.OWNER).write_text("another machine")
    target = tmp_path / "precious"
    target.mkdir()
    (target / work_folder.OWNER).write_bytes(work_folder._hostname_bytes())
    (tmp_path / "samerun-dddddddd").symlink_to(target)
    (other / work_folder.OWNER).symlink_to(target / work_folder.OWNER)
    (tmp_path / "samerun-keeps-this").mkdir()
    (tmp_path / "samerun-keeps-this" / work_folder.OWNER).write_bytes(work_folder._hostname_bytes())
    before = sorted(tmp_path.rglob("*"))
    with work_folder.temporary_work_folder(str(tmp_path)) as folder:
        assert folder.parent == tmp_path and folder.is_dir()
    assert sorted(tmp_path.rglob("*")) == before
    (unmarked / work_folder.OWNER).write_bytes(work_folder._hostname_bytes())  # as one that was left over
    with work_folder.temporary_work_folder(str(tmp_path)):
        assert not unmarked.exists() and target.exists()


def test_a_guarded_folder_goes_though_its_maker_is_killed_while_deleting_it(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED_WHILE_DELETING], env={**os.environ, "TMPDIR": str(tmp_path)})
    assert killed.returncode == -signal.SIGKILL
    end = time.monotonic() + 60
    while folders(tmp_path) and time.monotonic() < end:
        time.sleep(0.02)
    assert not folders(tmp_path)
