"""Runs on other machines: a command in front of them takes away the environment and the folder, as ssh does."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from check_command import check, heed_interrupts, list_running_commands, samerun, wait_for

from samerun.base.errors import SamerunError
from samerun.check.execution import other_machine
from samerun.check.execution.engines import CommandEngine, parse_engine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and taskset")

ELSEWHERE = '#!/bin/sh\ncd / && exec env -i PATH="$PATH" HOME=/tmp "$@"\n'
SOMETIMES_SMALLER = """#!/bin/sh
# every second run has one core only
here=$(dirname "$0"); if mkdir "$here/turn" 2>/dev/null; then exec "$@"; fi
rmdir "$here/turn"; exec taskset -c 0 "$@"
"""
DRAWS = """
import os, sys, torch
torch.manual_seed(0)
noise = os.urandom(1)[0] if "--noise" in sys.argv else 1
weight = torch.ones(4, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(2):
    (weight * noise).sum().backward()
    optimizer.step()
print(os.environ["OF_THE_USER"], os.getcwd())
"""
SLEEPS = """
import pathlib, time
pathlib.Path("begun").touch()
time.sleep(600)
"""


def engine(folder: Path, text: str = ELSEWHERE) -> str:
    script = folder / "elsewhere"
    script.write_text(text, encoding="utf-8")
    script.chmod(0o755)
    return str(script)


def count_run_folders(folder: Path) -> int:
    return sum(path.is_dir() for path in folder.iterdir())


@pytest.mark.slow
def test_a_cause_is_found_by_runs_on_another_machine(tmp_path: Path) -> None:
    on, script = engine(tmp_path), tmp_path / "draws.py"
    script.write_text(DRAWS, encoding="utf-8")
    options = ["--on", on, "--at-once", "3", "--vary", "rerun", "--repeat", "3", "--save", str(tmp_path / "runs")]
    code, report = check([*options, "draws.py", "--noise"], tmp_path, OF_THE_USER="told")
    assert code == 1 and report["cause"]["kind"] == "os-entropy", report
    assert report["cause"]["line"] == 4 and report["cause"]["certain"]
    assert (tmp_path / "runs/control-3/stdout").read_text() == f"told {tmp_path}\n"  # where and with what the user is
    assert any(note.startswith(f"The runs were made by --on {on} on ") for note in report["notes"])
    assert not list((tmp_path / "runs").rglob(other_machine.REQUEST)), "it holds the whole environment"
    assert count_run_folders(tmp_path / "runs") == len(report["runs"])  # what was begun ahead and not needed is deleted


@pytest.mark.slow
def test_sides_of_a_switch_are_run_at_the_same_time(tmp_path: Path) -> None:
    (tmp_path / "draws.py").write_text(DRAWS, encoding="utf-8")
    options = ["--on", engine(tmp_path), "--at-once", "4", "--neutral", "optimizer-implementation", "--save", "runs"]
    code, report = check([*options, "draws.py"], tmp_path, OF_THE_USER="told")
    assert code == 0 and {each["outcome"] for each in report["neutral"]} <= {"same", "rounding", "skipped"}, report
    assert count_run_folders(tmp_path / "runs") == len(report["runs"])


def test_machines_that_are_not_alike_are_refused(tmp_path: Path) -> None:
    (tmp_path / "draws.py").write_text(DRAWS, encoding="utf-8")
    on = engine(tmp_path, SOMETIMES_SMALLER)
    done = samerun(["check", "--on", on, "--vary", "rerun", "draws.py"], tmp_path, OF_THE_USER="")
    assert done.returncode == 2 and "another kind of machine: cores_allowed 1 and " in done.stderr, done.stderr
    assert "samerun diff" in done.stderr and "Traceback" not in done.stderr


def test_a_time_limit_and_an_error_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS, encoding="utf-8")
    on = ["--on", engine(tmp_path)]
    done = samerun(["check", *on, "--time-limit", "1", "sleeps.py"], tmp_path)
    assert done.returncode == 2 and "still running after 1 s" in done.stderr, done.stderr
    done = samerun(["check", *on, "draws.py"], tmp_path)
    assert done.returncode == 2 and "draws.py" in done.stderr, done.stderr


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_nothing_is_left_there(sent: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "samerun", "check", "--quiet", "--on", engine(tmp_path), "sleeps.py"],
        cwd=tmp_path, preexec_fn=heed_interrupts,
    )  # fmt: skip
    wait_for(tmp_path / "begun")
    process.send_signal(sent)
    process.wait(timeout=60)
    end = time.monotonic() + 60
    while list_running_commands("sleeps.py", process.pid):
        assert time.monotonic() < end
        time.sleep(0.1)


def test_whoever_is_not_waited_for_any_more_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_machine, "LOOK_SECONDS", 0.0)
    lease = tmp_path / other_machine.LEASE
    lease.write_text("1")
    (tmp_path / other_machine.ORDER).write_text(other_machine.GO_ON)
    orders = other_machine.Orders(tmp_path, lease)
    orders.look(0.0)
    monkeypatch.setattr(other_machine, "LEASE_SECONDS", 0.0)
    lease.write_text("2")
    orders.look(0.0)  # renewed
    time.sleep(0.001)
    with pytest.raises(other_machine.Stopped):
        orders.look(0.0)
    monkeypatch.setattr(other_machine, "LEASE_SECONDS", 100.0)
    (tmp_path / other_machine.ORDER).write_text(other_machine.STOP)
    with pytest.raises(other_machine.Stopped):
        orders.look(0.0)


def test_what_cannot_run_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, word in [
        ("no-such-program -n 1", "no-such-program is not a program"), ("", "nothing is not a program"),
        ('srun "--gres', "No closing quotation"), ("ray://head:1?gpus=1", "num_cpus, num_gpus"),
        ("ray://head:1?num_gpus=one", "num_cpus, num_gpus"),
    ]:  # fmt: skip
        with pytest.raises(SamerunError, match=word):
            parse_engine(text)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "srun-of-somebody").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "srun-of-somebody").chmod(0o755)
    monkeypatch.setenv("PATH", f".:{tmp_path}")
    with pytest.raises(SamerunError, match="is not a program"):  # what lies in a folder is not started for being there
        parse_engine("srun-of-somebody")
    assert isinstance(parse_engine("./srun-of-somebody"), CommandEngine)


def test_a_command_that_runs_nothing_and_runs_at_once_without_other_machines(tmp_path: Path) -> None:
    (tmp_path / "draws.py").write_text(DRAWS, encoding="utf-8")
    done = samerun(
        ["check", "--on", engine(tmp_path, "#!/bin/sh\necho no node is free; exit 3\n"), "draws.py"], tmp_path
    )
    assert done.returncode == 2 and "exit code 3 before the program did: no node is free" in done.stderr, done.stderr
    assert "TMPDIR or --save" in done.stderr
    done = samerun(["check", "--at-once", "2", "draws.py"], tmp_path)
    assert done.returncode == 2 and "--at-once 2" in done.stderr and "--on" in done.stderr
