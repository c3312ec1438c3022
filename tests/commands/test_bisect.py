"""`samerun bisect`: which commit or setting moved the results."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from check_command import heed_interrupts, samerun, wait_for

from samerun.base.errors import SamerunError
from samerun.record.receipt.bisection import (
    SettingsState,
    apply_setting_changes,
    bisect_changes,
    list_package_changes,
    list_setting_changes,
    map_line_numbers_to_new_version,
    read_git_output,
)
from samerun.record.receipt.code_version import find_git_repository, open_sandboxed_git
from samerun.record.receipt.diff import ComparedRun

PROGRAM = """import torch
NUMBER = 0
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
for step in range(2):
    loss = model(torch.randn(8, 4)).square().mean()
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p.sub_(p.grad)
"""


def git(folder: Path, *words: str) -> str:
    author = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *author, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_programs_that_run_between_two_commands_of_git_take_nothing_of_its_time(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", ".")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "one")
    repository = find_git_repository(tmp_path)
    assert repository is not None
    with open_sandboxed_git(repository, time_limit_seconds=3) as sandboxed:
        for _ in range(2):
            assert read_git_output(sandboxed, "rev-parse", "HEAD") == repository.commit
            time.sleep(3)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_that_moved_the_results_and_its_line(tmp_path: Path) -> None:
    """Other lines move, one commit does not run, a hook would run, and nothing of the user's changes."""
    git(tmp_path, "init", "-q", ".")
    texts = [PROGRAM.replace("NUMBER = 0", f"NUMBER = {number}") for number in range(5)]
    texts[1:] = [f"# more\n{text}" for text in texts[1:]]
    texts[2] = texts[2].replace("import torch", "import torch, nothing_of_that_name")
    texts[3:] = [text.replace("import torch", "import torch\nimport math").replace(".mean()", ".mean() * math.pi")
                 for text in texts[3:]]  # fmt: skip
    for number, text in enumerate(texts):
        (tmp_path / "train.py").write_text(text, encoding="utf-8")
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-q", "-m", f"change {number}")
    git(tmp_path, "tag", "good", "HEAD~4")
    hook = tmp_path / ".git/hooks/post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n", encoding="utf-8")
    hook.chmod(0o755)
    (tmp_path / "train.py").write_text("uncommitted", encoding="utf-8")
    before = git(tmp_path, "status", "--porcelain"), git(tmp_path, "worktree", "list")
    done = samerun(["bisect", "good", "HEAD", "--quiet", "--json", "-", "--", "train.py"], tmp_path)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    assert (found["change"]["detail"], found["line"], found["file"]) == ("change 3", 8, "train.py")
    assert [each["detail"] for each in found["untested"]] == ["change 2"]
    assert found["operator"] == "aten.mul.Tensor" and found["changes"] == 4 and found["runs"] == 5
    assert (git(tmp_path, "status", "--porcelain"), git(tmp_path, "worktree", "list")) == before
    assert (tmp_path / "train.py").read_text(encoding="utf-8") == "uncommitted" and not (tmp_path / "hooked").exists()
    for words, said in (
        (["good", "good"], "No commit lies between"),
        (["good", "nowhere"], "nowhere is not a commit"),
        (["HEAD", "good"], "No commit lies between"),
    ):
        done = samerun(["bisect", *words, "--", "train.py"], tmp_path)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert samerun(["bisect", "good", "HEAD"], tmp_path).returncode == 2


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    folder, temporary, started = tmp_path / "repository", tmp_path / "temporary", tmp_path / "started"
    folder.mkdir(), temporary.mkdir()
    git(folder, "init", "-q", ".")
    for number in range(2):
        text = f"import pathlib, time\npathlib.Path({str(started)!r}).touch()\ntime.sleep(600)  # {number}\n"
        (folder / "train.py").write_text(text, encoding="utf-8")
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"change {number}")
    with subprocess.Popen(
        [sys.executable, "-m", "samerun", "bisect", "HEAD~1", "HEAD", "--quiet", "--", "train.py"], cwd=folder,
        env={**os.environ, "TMPDIR": str(temporary)}, start_new_session=True, preexec_fn=heed_interrupts,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        wait_for(started)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=300)
    assert (process.returncode, list(temporary.iterdir())) == (2, []), said
    assert "interrupted" in said and not (folder / ".git/worktrees").exists()


def make_wheel(folder: Path, version: str) -> None:
    """A package of one module, whose `value` is its version."""
    head = f"Metadata-Version: 2.1\nName: moved-numbers\nVersion: {version}\n"
    files = {
        "moved_numbers.py": f"value = {version!r}\n",
        f"moved_numbers-{version}.dist-info/METADATA": head,
        f"moved_numbers-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"moved_numbers-{version}.dist-info/RECORD"] = "".join(f"{name},,\n" for name in files)
    with zipfile.ZipFile(folder / f"moved_numbers-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)


@pytest.mark.exhaustive
def test_the_package_and_the_setting_that_moved_the_results(tmp_path: Path) -> None:
    """Two versions of a package that pip finds in a folder, and arguments of which one matters."""
    for version in ("1.0", "2.0"):
        make_wheel(tmp_path, version)
    text = "import os, sys, moved_numbers\nos.environ.get('MODE')\n"
    text += "open('out.txt', 'w').write(moved_numbers.value + sys.argv[1])\n"
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for name, version, words in (
        ("a", "1.0", ["x", "--slow"]),
        ("b", "2.0", ["x", "--slow"]),
        ("c", "1.0", ["y", "--fast"]),
    ):
        packages = tmp_path / f"packages-{version}"
        if not packages.exists():
            install = ["install", "-q", "--no-deps", "--target", str(packages), f"moved-numbers=={version}"]
            subprocess.run([sys.executable, "-m", "pip", *install], check=True, env={**os.environ, **pip})
        run = ["run", "--quiet", "--receipt", f"{name}.json", "train.py", *words]
        done = samerun(run, tmp_path, PYTHONPATH=str(packages), MODE=name)
        assert done.returncode == 0, done.stderr
    quiet = ["--quiet", "--json", "-", "--", "train.py"]
    done = samerun(["bisect", "a.json", "b.json", "--over", "packages", *quiet, "x", "--slow"], tmp_path, **pip)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["change"] == {"name": "moved-numbers", "detail": "1.0 -> 2.0"}
    done = samerun(["bisect", "a.json", "c.json", "--over", "settings", *quiet], tmp_path, PYTHONPATH=str(packages))
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["change"]["detail"] == "x -> y"
    done = samerun(["bisect", "a.json", "b.json", "--over", "settings", *quiet], tmp_path)
    assert done.returncode == 2 and "read other values of MODE: give them as arguments" in done.stderr, done.stderr


def test_halving_takes_as_few_runs_as_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "samerun.record.receipt.bisection.diff_runs",
        lambda a, b, ignored: {"verdict": "same" if (int(a.name) < 40) == (int(b.name) < 40) else "different",
                               "first_difference": None, "notes": []},
    )  # fmt: skip
    result = bisect_changes(64, lambda state: ComparedRun(str(state), None, {}, None))
    assert (result.change, result.run_count, result.untested) == (39, 8, ())
    skipping = bisect_changes(
        64, lambda state: ComparedRun(str(state), None, {}, None) if state not in (39, 40) else None
    )
    assert (skipping.change, skipping.untested) == (40, (38, 39))
    with pytest.raises(SamerunError, match="the same results"):
        bisect_changes(30, lambda state: ComparedRun(str(state), None, {}, None))


def test_settings_between_two_commands() -> None:
    good = SettingsState(("--lr", "0.1", "--fast", "data.csv"), {"SEED": "1", "A": "x"})
    bad = SettingsState(("--lr", "0.2", "data.csv", "--deep"), {"SEED": "2"})
    changes = list_setting_changes(good, bad)
    assert apply_setting_changes(good, changes) == bad
    details = [change.detail for change in changes]
    assert details[0] == "--lr 0.1 -> --lr 0.2" and details[-2:] == ["x -> (not set)", "1 -> 2"]
    assert apply_setting_changes(good, changes[:1]).words == ("--lr", "0.2", "--fast", "data.csv")


def test_packages_that_one_receipt_lacks() -> None:
    """What a new version needs is there before it, what an old one needs until it goes, what cannot go is told."""
    good = {"torch": "2.13.0", "mypy": "2.4", "old-helper": "1", "numpy": "2.4"}
    bad = {"torch": "2.15.0", "triton": "3.9", "numpy": "2.4"}
    changes, kept = list_package_changes(good, bad, {"mypy": "2.4", "torch": "2.13.0", "numpy": "2.4"})
    assert [change.name for change in changes] == ["triton", "torch", "old-helper"] and kept == ["mypy"]
    assert changes[1].detail == "2.13.0 -> 2.15.0" and changes[0].detail == "(absent) -> 3.9"


@pytest.mark.exhaustive
def test_the_file_that_moved_the_results(tmp_path: Path) -> None:
    """Of files that changed, that came and that went, one is read."""
    for side, number in (("monday", 1.0), ("friday", 2.0)):
        (tmp_path / side / "inside").mkdir(parents=True)
        for name, text in (("a.txt", f"{side} {number}"), ("b.txt", "same"), ("inside/x.txt", str(number))):
            (tmp_path / side / name).write_text(text, encoding="utf-8")
    (tmp_path / "monday/gone.txt").touch(), (tmp_path / "friday/new.txt").touch()
    (tmp_path / "train.py").write_text(
        "import pathlib, sys, torch\ntorch.manual_seed(0)\nfolder = pathlib.Path(sys.argv[1])\n"
        "numbers = [float(p.read_text()) for p in sorted(folder.glob('inside/*'))]\n"
        "model = torch.nn.Linear(1, 1)\n"
        "result = model(torch.tensor(numbers)) * 3\nopen('out.txt', 'w').write(str(result.item()))\n",
        encoding="utf-8",
    )
    words = ["bisect", "--over", "data", "monday", "friday", "--quiet", "--json", "-", "--", "train.py"]
    done = samerun([*words, "{}"], tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["change"] == {"name": "inside/x.txt", "detail": "3 -> 3 bytes"} and found["changes"] == 4
    assert (found["file"], found["line"]) == ("train.py", 6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["friday", "monday", "out.txt", "train.py"]
    for wrong, said in (
        (words, "says where its data are"),
        ([*words[:4], "monday", *words[5:], "{}"], "the same files"),
        ([*words[:4], "sunday", *words[5:], "{}"], "sunday: No such file"),
    ):
        done = samerun(wrong, tmp_path)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_lines_that_moved() -> None:
    assert map_line_numbers_to_new_version(["a", "b", "c"], ["x", "a", "B", "c"]) == {1: 2, 2: 3, 3: 4}
    assert map_line_numbers_to_new_version(["a", "b"], ["b"]) == {2: 1}
