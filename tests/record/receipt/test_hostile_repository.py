"""A stranger's repository is asked which version of the code it holds, and runs nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sample_receipts import made

from samerun.base import machine
from samerun.base.launch import find_trusted_program
from samerun.record.receipt import receipt_file
from samerun.record.receipt.code_version import digest_source_file, read_code_version
from samerun.record.receipt.environment_diff import list_environment_differences_here

GIT = find_trusted_program("git")
pytestmark = pytest.mark.skipif(GIT is None or os.name != "posix", reason="needs git")
SAMERUN = [str(Path(sys.executable).with_name("samerun"))]


def git(folder: Path, *words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    for name in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"):
        environment[name] = "a"
    for name in ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"):
        environment[name] = "a@b"
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "train.py").write_text("print(1)\n")
    (folder / ".gitignore").write_text("ignored.py\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "one")
    return folder


def set_traps(folder: Path, ran: Path) -> None:
    """Everything in a repository by which git can be made to run something; each trap makes the file `ran`."""
    trap = folder.parent / "trap.sh"
    trap.write_text(f'#!/bin/sh\necho "$0 $@" >> {ran}\ncat\n')
    trap.chmod(0o755)
    for key in ("core.fsmonitor", "core.pager", "pager.diff", "pager.ls-files", "core.editor", "core.sshCommand",
                "core.alternateRefsCommand", "core.askPass", "credential.helper", "diff.external",
                "filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "diff.evil.command",
                "diff.evil.textconv", "merge.evil.driver", "gpg.program", "uploadpack.packObjectsHook"):  # fmt: skip
        git(folder, "config", key, str(trap))
    git(folder, "config", "protocol.ext.allow", "always")
    git(folder, "config", "remote.origin.url", f"ext::{trap}")
    git(folder, "config", "remote.origin.promisor", "true")
    git(folder, "config", "extensions.partialClone", "origin")
    included = folder.parent / "included"
    included.write_text(f"[core]\n\tfsmonitor = {trap}\n")
    git(folder, "config", "include.path", str(included))
    hooks = folder / "hooks"
    hooks.mkdir()
    git(folder, "config", "core.hooksPath", str(hooks))
    for place in (hooks, folder / ".git" / "hooks"):
        for name in ("post-index-change", "post-checkout", "fsmonitor-watchman", "reference-transaction"):
            (place / name).write_text(trap.read_text())
            (place / name).chmod(0o755)
    (folder / ".gitattributes").write_text("*.py filter=evil diff=evil merge=evil\n")
    for name in ("git", "uname", "locale"):
        (folder / name).write_text(trap.read_text())
        (folder / name).chmod(0o755)


def test_what_is_committed_and_what_is_not(repository: Path) -> None:
    clean = read_code_version(repository)
    assert clean == {"commit": git(repository, "rev-parse", "HEAD"), "diff": None, "untracked": {}}
    os.utime(repository / "train.py", (1, 1))
    assert read_code_version(repository)["diff"] is None, "another time is no other content"
    (repository / "train.py").write_text("print(2)\n")
    (repository / "more.py").write_text("")
    (repository / "ignored.py").write_text("")
    os.mkfifo(repository / "pipe.py")
    os.symlink("/dev/zero", repository / "zeros.py")
    changed = read_code_version(repository)
    assert changed["commit"] == clean["commit"]
    assert changed["diff"] is not None
    assert set(changed["untracked"]) == {"more.py", "zeros.py"}
    git(repository, "pack-refs", "--all")
    assert read_code_version(repository) == changed
    below = repository / "below"
    below.mkdir()
    assert read_code_version(below) == changed
    git(repository, "worktree", "add", "-q", "--detach", str(repository.parent / "other"))
    assert read_code_version(repository.parent / "other") == clean
    (repository / ".git" / "index").unlink()
    os.mkfifo(repository / ".git" / "index")
    begin = time.monotonic()
    assert read_code_version(repository)["commit"] is None
    assert time.monotonic() - begin < 5
    assert read_code_version(Path("/proc")) == {"commit": None, "diff": None, "untracked": None}


@pytest.mark.slow
def test_a_repository_costs_no_more_time_and_memory_than_granted(repository: Path) -> None:
    (repository / "big.bin").write_bytes(b"")
    os.truncate(repository / "big.bin", 1 << 30)
    git(repository, "-c", "core.bigFileThreshold=1m", "add", "big.bin")
    git(repository, "commit", "-q", "-m", "a blob of 1 GiB in 1 MiB")
    (repository / "big.bin").write_bytes(b"x")
    code = (
        "import resource, sys\nfrom pathlib import Path\nfrom samerun.record.receipt.code_version import *\n"
        "assert read_code_version(Path(sys.argv[1]))['diff'] is not None\n"
        "assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 300_000\n"
    )
    subprocess.run([sys.executable, "-c", code, str(repository)], check=True, timeout=60)
    os.mkfifo(repository / ".git" / "objects" / "info" / "commit-graph")
    begin = time.monotonic()
    assert read_code_version(repository, time_limit_seconds=0.5)["commit"] is None
    assert time.monotonic() - begin < 5


def test_recorded_sources_are_read_within_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("1\n")
    (tmp_path / "big.bin").write_bytes(b"")
    os.truncate(tmp_path / "big.bin", 1 << 40)
    monkeypatch.chdir(tmp_path)
    sources = {"a.py": "0" * 64, **{"./" * times + "big.bin": "0" * 64 for times in range(1000)}}
    receipt = made(facts={"sources": sources}).receipt
    begin = time.monotonic()
    unmet = list_environment_differences_here(
        receipt, {key: receipt[key] for key in ("machine", "packages", "variables")}
    )
    assert [one["b"] for one in unmet if one["path"] == "code.sources"] == [
        {"a.py": digest_source_file(tmp_path / "a.py")} | dict.fromkeys(list(sources)[1:], "not there")
    ]
    assert time.monotonic() - begin < 10


def test_a_repository_with_submodules_and_links(repository: Path) -> None:
    inner = repository.parent / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "a.py").write_text("")
    git(inner, "add", "-A")
    git(inner, "commit", "-q", "-m", "inner")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "inner")
    git(repository, "commit", "-q", "-m", "two")
    clean = read_code_version(repository)
    assert clean["diff"] is None
    assert read_code_version(repository / "inner")["commit"] == git(inner, "rev-parse", "HEAD")
    ran = repository.parent / "ran"
    git(repository / "inner", "config", "core.fsmonitor", f"touch {ran}")
    (repository / "inner" / "a.py").write_text("1")
    assert read_code_version(repository)["commit"] == clean["commit"]
    assert not ran.exists()


@pytest.mark.parametrize("as_module", [False, True], ids=["command", "module"])
def test_verify_runs_nothing_of_the_folder(repository: Path, as_module: bool) -> None:
    ran = repository.parent / "ran"
    set_traps(repository, ran)
    (repository / "train.py").write_text("print(2)\n")
    for name in ("rich", "click", "xxhash", "json", "__future__", "typing", "re", "enum"):
        (repository / f"{name}.py").write_text(f"open({str(ran)!r}, 'w').write({name!r})\n")
    receipt_file.write(repository / "run.json", made(code={"commit": "0" * 40, "diff": None, "untracked": {}}))
    words = [sys.executable, "-m", "samerun"] if as_module else SAMERUN
    done = subprocess.run(
        [*words, "verify", "run.json"], cwd=repository, capture_output=True, text=True, timeout=60,
        env={**os.environ, "PATH": f".:{repository}::{os.environ['PATH']}", "GIT_CONFIG_COUNT": "1",
             "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": str(repository.parent / "trap.sh"),
             "GIT_EXTERNAL_DIFF": str(repository.parent / "trap.sh")},
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "code.commit" in done.stdout
    assert "Traceback" not in done.stderr
    assert not ran.exists(), ran.read_text()
    # and the traps are traps: plain git runs them
    subprocess.run([str(GIT), "diff"], cwd=repository, capture_output=True)
    assert ran.exists()


def test_programs_are_never_taken_from_where_the_user_works(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "bin").mkdir()
    for place in (repository, repository / "bin"):
        (place / "git").write_text("#!/bin/sh\n")
        (place / "git").chmod(0o755)
    monkeypatch.chdir(repository)
    before = os.environ["PATH"]
    for path in (".", "", "bin", str(repository), str(repository / "bin")):
        monkeypatch.setenv("PATH", path)
        assert find_trusted_program("git") is None
        monkeypatch.setenv("PATH", f"{path}:{before}")
        assert find_trusted_program("git") == GIT
    os.symlink(repository / "git", repository.parent / "git")
    monkeypatch.setenv("PATH", str(repository.parent))
    assert find_trusted_program("git") is None, "a link that leads there"
    monkeypatch.chdir("/")
    monkeypatch.setenv("PATH", before)
    assert find_trusted_program("git") == GIT


def test_the_processor_is_told_without_a_program_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "uname").write_text(f"#!/bin/sh\ntouch {ran}\n")
    (tmp_path / "uname").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    assert isinstance(machine._run_uname_for_processor(), str)
    assert not ran.exists()


def test_a_file_is_digested_in_bounded_time(tmp_path: Path) -> None:
    with open(tmp_path / "sparse.py", "wb") as file:
        file.truncate(1 << 40)
    begin = time.monotonic()
    assert digest_source_file(tmp_path / "sparse.py") is not None
    assert time.monotonic() - begin < 5
    os.mkfifo(tmp_path / "pipe.py")
    assert digest_source_file(tmp_path / "pipe.py") is None
