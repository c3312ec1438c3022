"""Whatever goes wrong ends with exit code 2 and one message; nothing is half written, and what was there is kept."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from samerun.record.receipt import receipt_file

SAMERUN = [sys.executable, "-m", "samerun"]
PLAIN = "import sys\nprint('seen', len(sys.argv))\nopen('out.txt', 'w').close()\n"
SAVES = """
import sys
import torch
import samerun
from samerun.base.errors import CheckpointError
try:
    samerun.checkpoint.save(sys.argv[1], model=torch.nn.Linear(600, 600), extra=2)
except CheckpointError as error:
    print(error)
    sys.exit(2)
"""


def run(line: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A line for the shell, in which `samerun` is the one under test."""
    words = " ".join(SAMERUN)
    return subprocess.run(
        ["bash", "-c", f"samerun() {{ {words} \"$@\"; }}\n{line}"], cwd=cwd, env={**os.environ, **variables},
        capture_output=True, text=True, timeout=300, errors="surrogateescape", check=False,
    )  # fmt: skip


def assert_trouble(done: subprocess.CompletedProcess[str], said: str) -> None:
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert said in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) <= 3, done.stderr


@pytest.fixture(scope="module")
def receipts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two receipts of one program."""
    folder = tmp_path_factory.mktemp("receipts")
    (folder / "plain.py").write_text(PLAIN)
    for name in ("a.json", "b.json"):
        done = run(f"samerun run --quiet --receipt {name} plain.py", folder)
        assert done.returncode == 0, done.stderr
    return folder


# --- a bug in samerun --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shown", ["", "1"])
def test_an_error_that_nobody_expected_is_trouble_and_says_how_to_see_more(shown: str, tmp_path: Path) -> None:
    broken = (
        "import samerun.commands.diff as room, samerun.cli as cli\n"
        "def fail(*_): raise KeyError('\\x1b[2J' + 'x' * 10**6)\n"
        "room.compare_receipts_or_traces = fail\n"
        "import sys; sys.argv = ['samerun', 'diff', 'a', 'b']; cli.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", broken], cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env={**os.environ, "SAMERUN_TRACEBACK": shown},
    )  # fmt: skip
    assert done.returncode == 2
    assert "samerun: this is a bug in samerun: KeyError" in done.stderr and "SAMERUN_TRACEBACK=1" in done.stderr
    assert ("Traceback" in done.stderr) == bool(shown)
    if not shown:
        assert "\x1b" not in done.stderr and len(done.stderr) < 1000


# --- streams -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    "line", ["diff a.json b.json", "diff --json - a.json b.json", "log .", "log --json - .", "log --last .", "--help",
             "verify --json - a.json"],
)  # fmt: skip
def test_a_full_disk_behind_standard_output_is_trouble(line: str, receipts: Path) -> None:
    assert_trouble(run(f"samerun {line} > /dev/full", receipts), "No space left on device")
    assert run(f"samerun {line} > /dev/full 2>&1", receipts).returncode == 2


def test_the_next_option_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(PLAIN)
    for line in (
        "check --html --json plain.py",
        "check --json --neutral recompute plain.py",
        "diff --json --quiet a b",
    ):
        option, name = re.findall("--[a-z]+", line)[:2]
        assert_trouble(run(f"samerun {line}", tmp_path), f"{option} needs the name of a file, and the next option came")
        assert not (tmp_path / name).exists()


def test_closed_streams_are_no_trouble(receipts: Path) -> None:
    for closed in (">&-", "2>&-", "<&-", "<&- >&- 2>&-"):
        assert run(f"samerun diff --quiet --json found.json a.json b.json {closed}", receipts).returncode == 0, closed
        assert json.loads((receipts / "found.json").read_text())["verdict"] == "same"
        (receipts / "found.json").unlink()


@pytest.mark.exhaustive
def test_a_terminal_that_knows_ascii_only(receipts: Path) -> None:
    (receipts / "tränen.py").write_text(PLAIN)
    assert run("samerun run --quiet --receipt ü.json tränen.py", receipts).returncode == 0
    for variables in (
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ):
        for line in ("diff ü.json a.json", "log .", "diff nicht-da-ü.json a.json", "run --quiet tränen.py", "--help"):
            done = run(f"samerun {line}", receipts, **variables)
            assert "Traceback" not in done.stderr and "bug" not in done.stderr, done.stderr
            expected = 2 if "nicht" in line else 0
            assert done.returncode == expected, (line, done.stderr)
    (receipts / "tränen.py").unlink(), (receipts / "ü.json").unlink()


# --- names and folders ---------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_names_that_are_not_utf_8(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    try:
        os.mkdir(folder)
    except OSError:
        pytest.skip("the file system takes names in UTF-8 only")
    with open(folder + b"/tr\xe4in.py", "wb") as file:
        file.write(b"import sys, torch\nprint(torch.ones(2) + len(sys.argv))\nopen(sys.argv[1], 'w').close()\n")
    name, there = "$'tr\\xe4in.py' $'\\xfc.txt'", "cd $'caf\\xe9'; "
    for line, expected in (
        (f"samerun check --vary rerun --html $'r\\xe9.html' --json $'r\\xe9.json' {name}", 0),
        (f"samerun run --receipt $'\\xe9.json' {name}", 0),
        (f"samerun run --receipt b.json {name} x", 0),
        ("samerun diff $'\\xe9.json' b.json", 0),
        ("samerun verify --yes $'\\xe9.json'", 0),
        ("samerun log .", 0),
    ):
        done = run(there + line, tmp_path)
        assert done.returncode == expected, (line, done.stdout, done.stderr)
        assert "bug" not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.exhaustive
def test_a_deleted_working_directory(receipts: Path, tmp_path: Path) -> None:
    gone = "mkdir gone; cd gone; rmdir ../gone; "
    a, b = receipts / "a.json", receipts / "b.json"
    assert run(f"{gone}samerun diff {a} {b}", tmp_path).returncode == 0
    assert run(f"{gone}samerun log {receipts}", tmp_path).returncode == 0
    (tmp_path / "leaves.py").write_text("print('here')\n")
    for option in ("", f"--receipt {tmp_path}/gone.json"):
        done = run(f"{gone}samerun run --quiet {option} {tmp_path}/leaves.py", tmp_path)
        assert (done.returncode, done.stdout) == (0, "here\n"), done.stderr
    assert receipt_file.read_and_verify_digest(tmp_path / "gone.json")["ended"]["exit_code"] == 0
    for line in (f"check --quiet {tmp_path}/leaves.py", "diff a.json b.json"):
        done = run(f"{gone}samerun {line}", tmp_path)
        assert done.returncode == 2 and "Traceback" not in done.stderr and "bug" not in done.stderr, done.stderr
    (tmp_path / "deletes.py").write_text(
        "import os, shutil\nopen('x', 'w').close()\nshutil.rmtree(os.getcwd())\nprint('gone')\n"
    )
    (tmp_path / "w").mkdir()
    done = run(f"cd w; samerun run --quiet --receipt {tmp_path}/c.json {tmp_path}/deletes.py", tmp_path)
    assert (done.returncode, done.stdout) == (0, "gone\n"), done.stderr
    assert receipt_file.read_and_verify_digest(tmp_path / "c.json")["ended"]["complete"]


@pytest.mark.exhaustive
def test_eight_checks_at_once_with_temporary_files_in_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\ntorch.manual_seed(1)\nprint(torch.rand(3))\n")
    (tmp_path / "tmp").mkdir()
    for where in (tmp_path, tmp_path / "tmp"):
        begun = [
            subprocess.Popen([*SAMERUN, "check", "--quiet", "train.py"], cwd=tmp_path, stderr=subprocess.PIPE,
                             env={**os.environ, "TMPDIR": str(where)}, text=True)
            for _ in range(8)
        ]  # fmt: skip
        for process in begun:
            said = process.communicate(timeout=900)[1]
            assert process.returncode == 0, said
    assert sorted(os.listdir(tmp_path)) == ["tmp", "train.py"] and not os.listdir(tmp_path / "tmp")


# --- full and read-only disks --------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if (
        shutil.which("mount") is None
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("needs the right to mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def fill(folder: Path) -> None:
    with open(folder / "filling", "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            pass


COMMANDS = [
    "run --quiet --json disk/found.json plain.py",
    "run --quiet --receipt disk/found.json plain.py",
    "run --quiet --receipt disk/runs/ plain.py",
    "run --quiet --receipt disk/found.json --trace ops plain.py",
    "diff --quiet --json disk/found.json a.json b.json",
    "verify --quiet --json disk/found.json a.json",
    "log --quiet --json disk/found.json .",
    "check --quiet --vary rerun --save disk/kept plain.py",
    "check --quiet --vary rerun --json disk/found.json train.py",
]


@pytest.mark.exhaustive
def test_a_full_or_read_only_disk_is_trouble_and_nothing_is_half_written(receipts: Path, small_disk: Path) -> None:
    here = small_disk.parent
    for name in ("a.json", "b.json", "plain.py"):
        shutil.copy(receipts / name, here)
    (here / "saves.py").write_text(SAVES)
    (here / "train.py").write_text("import torch\nprint(torch.ones(2) + 1)\n")
    (small_disk / "found.json").write_text('{"earlier": 1}')
    (small_disk / "c.pt").write_bytes(b"earlier")

    def try_all(said: str) -> None:
        before = {path: path.read_bytes() for path in small_disk.rglob("*") if path.is_file()}
        for line in COMMANDS:
            done = run(f"samerun {line}", here)
            assert done.returncode == 2, (line, done.stdout, done.stderr)
            assert said in done.stderr and "Traceback" not in done.stderr and "bug" not in done.stderr, done.stderr
            after = {path: path.read_bytes() for path in small_disk.rglob("*") if path.is_file()}
            assert after == before, line
        done = run(f"{sys.executable} saves.py disk/c.pt", here)
        assert done.returncode == 2 and said in done.stdout, done.stdout + done.stderr
        assert {path: path.read_bytes() for path in small_disk.rglob("*") if path.is_file()} == before
        done = run("samerun check --quiet --vary rerun plain.py", here, TMPDIR=str(small_disk))
        assert_trouble(done, "")

    fill(small_disk)
    try_all("No space left on device")
    (small_disk / "filling").unlink()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    try_all("Read-only file system")


CURRENT = "from samerun.record.watching.start import current_recorder as current"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ("import resource; resource.prlimit(0, resource.RLIMIT_FSIZE, (600, 600))", "Raise the limit on the size"),
        (f"{CURRENT}; current.stop('the trace could not be written: No space left on device')", "Free some space"),
        (f"{CURRENT}; current.stop('samerun could not do it: KeyError(1)')", "bug"),
        (f"{CURRENT}; current.stop('torch 2.1 is not supported')", "not supported"),
    ],
)
def test_what_to_do_where_a_run_could_not_be_recorded(change: str, hint: str, tmp_path: Path) -> None:
    """Space is the reason only where a file could not be written."""
    (tmp_path / "train.py").write_text(f"import torch\nprint(torch.ones(2) + 1)\n{change}\n")
    done = run("samerun check --quiet --vary rerun train.py", tmp_path)
    assert done.returncode == 2 and "could not be recorded" in done.stderr + done.stdout, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert ("Free some space" in said) == (hint == "Free some space") and hint in said, said
    assert "Traceback" not in said


@pytest.mark.exhaustive
def test_no_file_may_grow(receipts: Path, tmp_path: Path) -> None:
    """The same where nothing can be mounted: the limit of a file's size fails in the middle of a write."""
    shutil.copy(receipts / "a.json", tmp_path), shutil.copy(receipts / "b.json", tmp_path)
    (tmp_path / "saves.py").write_text(SAVES)
    (tmp_path / "found.json").write_text('{"earlier": 1}')
    before = sorted(os.listdir(tmp_path))
    assert_trouble(run("ulimit -f 0; samerun diff --quiet --json found.json a.json b.json", tmp_path), "File too large")
    assert (tmp_path / "found.json").read_text() == '{"earlier": 1}'
    assert sorted(os.listdir(tmp_path)) == before
    for blocks in (0, 3, 900):
        done = run(f"ulimit -f {blocks}; {sys.executable} saves.py c.pt", tmp_path)
        assert done.returncode == 2 and "File too large" in done.stdout, done.stdout + done.stderr
        assert sorted(os.listdir(tmp_path)) == before
