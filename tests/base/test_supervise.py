"""A program beside samerun is what it is alone: its descriptors, the signals it gets, how it ends, and when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from check_command import wait_for

import samerun

pytestmark = pytest.mark.skipif(not hasattr(signal, "sigwaitinfo"), reason="needs sigwaitinfo")
RUN = [sys.executable, "-m", "samerun", "run", "--quiet", "--receipt", "r.json"]


def is_gone(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"  # nobody has waited for it yet


def wait_until_gone(pid: int) -> None:
    end = time.monotonic() + 30
    while not is_gone(pid):
        assert time.monotonic() < end, pid
        time.sleep(0.02)


def test_what_the_shell_hands_over_stays_open(tmp_path: Path) -> None:
    (tmp_path / "read.py").write_text(
        "import os, signal, subprocess, sys\n"
        "print(open(sys.argv[1]).read(), os.read(3, 10), subprocess.run('yes | head -1', shell=True).returncode)\n"
        "os.write(4, b'written')\n"
    )
    (tmp_path / "three").write_text("drei")
    shown = []
    for words in ([sys.executable], RUN):
        line = " ".join(words) + " read.py <(echo eins) 3<three 4>four"
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        shown.append((done.stdout, done.stderr, (tmp_path / "four").read_text()))
        (tmp_path / "four").unlink()
    assert shown[0] == shown[1] and shown[0][2] == "written"


COUNTS = """
import os, signal, sys, time
seen = []
def tell(*_):
    told = sorted(map(int, seen))
    seen.clear()  # before the line is read: the next signal may come right after it
    print(told, flush=True)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
    signal.signal(number, lambda n, _: seen.append(n))
signal.signal(signal.SIGUSR2, tell)
open('ready', 'w').close()
end = time.monotonic() + 60
while time.monotonic() < end: time.sleep(0.01)
"""


def test_a_signal_to_the_group_comes_once_and_so_does_one_to_samerun(tmp_path: Path) -> None:
    (tmp_path / "counts.py").write_text(COUNTS)
    with subprocess.Popen(
        [*RUN, "counts.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            _send_signals_and_compare(process, tmp_path)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def _send_signals_and_compare(process: subprocess.Popen[str], folder: Path) -> None:
    assert process.stdout is not None
    wait_for(folder / "ready")
    time.sleep(0.5)  # the guard is starting
    numbers = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)
    for send in (os.killpg, os.kill, os.killpg, os.kill):
        for number in numbers:
            send(process.pid, number)
            time.sleep(0.2)
        os.kill(process.pid, signal.SIGUSR2)
        assert process.stdout.readline() == f"{sorted(map(int, numbers))}\n"
    os.killpg(process.pid, signal.SIGSTOP)
    os.kill(process.pid, signal.SIGCONT)  # to one process of the group alone
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGUSR1)
    os.kill(process.pid, signal.SIGUSR2)
    assert process.stdout.readline() == f"[{int(signal.SIGUSR1)}]\n"


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_threads_of_libraries_take_no_signal_from_the_one_that_passes_them_on(tmp_path: Path) -> None:
    (tmp_path / "wait.py").write_text("import time\nopen('ready', 'w').close()\ntime.sleep(60)\n")
    with subprocess.Popen([*RUN, "wait.py"], cwd=tmp_path, env={**os.environ, "OPENBLAS_NUM_THREADS": "4"}) as process:
        try:
            wait_for(tmp_path / "ready")
            tasks = Path(f"/proc/{process.pid}/task")
            others = sorted(task.name for task in tasks.iterdir() if int(task.name) != process.pid)
            for name in others:
                told = (tasks / name / "status").read_text()
                mask = int(next(line for line in told.splitlines() if line.startswith("SigBlk")).split()[1], 16)
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP):
                    assert mask >> (number - 1) & 1, (name, number)
        finally:
            process.terminate()


def test_ctrl_c_ends_samerun_as_it_ends_the_program(tmp_path: Path) -> None:
    import pty

    (tmp_path / "wait.py").write_text("import time\nopen('ready', 'w').close()\ntime.sleep(60)\n")
    ended = []
    for words in ([sys.executable], RUN):
        (tmp_path / "ready").unlink(missing_ok=True)
        said = tmp_path / "said.txt"  # a terminal that is closed may lose what was written last
        pid, master = pty.fork()
        if pid == 0:
            os.chdir(tmp_path)
            os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
            os.execv(sys.executable, [*words, "wait.py"])
        wait_for(tmp_path / "ready")
        os.write(master, b"\x03")
        _, status = os.waitpid(pid, 0)
        os.close(master)
        lines = said.read_text().splitlines()  # between them, where the signal met the program
        ended.append((os.waitstatus_to_exitcode(status), lines[0], lines[-1]))
    assert ended[0] == ended[1] == (-signal.SIGINT, "Traceback (most recent call last):", "KeyboardInterrupt")
    assert (tmp_path / "r.json").exists()


def test_ctrl_c_while_samerun_starts_in_a_program_is_not_exit_code_1(tmp_path: Path) -> None:
    """What is raised while Python imports `site` is exit code 1. What the program finds is the same as ever."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "samerun_slow.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    (tmp_path / "look.py").write_text(
        "import signal\nassert signal.getsignal(signal.SIGINT) is signal.default_int_handler\nprint('ran')\n"
    )
    bootstrap = Path(samerun.__file__).parent / "base" / "bootstrap" / "sitecustomize.py"
    replaced = bootstrap.read_text().replace("samerun.control.startup.facts_probe", "samerun_slow")
    (tmp_path / "sitecustomize.py").write_text(replaced)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SAMERUN")}
    environment["PYTHONPATH"] = os.pathsep.join((str(tmp_path), str(tmp_path / "modules")))
    codes = []
    for more in ({}, {"SAMERUN_FACTS": "1"}):
        codes.append(subprocess.run([sys.executable, "look.py"], cwd=tmp_path, env={**environment, **more}).returncode)
    assert codes == [0, -signal.SIGINT]


DEATH = """
import ctypes, os, signal, sys
prctl = ctypes.CDLL(None).prctl
asked = ctypes.c_int(-1)
prctl(2, ctypes.byref(asked), 0, 0, 0)
assert asked.value == 0, asked.value
parent = os.getppid()
prctl(1, int(signal.SIGTERM), 0, 0, 0)
if os.fork() == 0:
    prctl(1, int(signal.SIGKILL), 0, 0, 0)
    signal.pause()
import torch
assert os.getppid() == parent
print(torch.ones(3).sum())
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl")
def test_a_program_that_asks_for_its_parents_death_signal_ends_as_alone(tmp_path: Path) -> None:
    (tmp_path / "death.py").write_text(DEATH)
    check = [sys.executable, "-m", "samerun", "check", "--quiet", "--vary", "rerun"]
    for words in ([sys.executable], RUN, check):
        done = subprocess.run([*words, "death.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr


UNSEEDED = """
import resource, sys
import torch
if len(sys.argv) > 1:
    resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
files = [open(__file__) for _ in range(3)]
print(torch.rand(3))
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("inside", [True, False])
def test_a_program_with_few_free_descriptors_is_checked(inside: bool, tmp_path: Path) -> None:
    (tmp_path / "few.py").write_text(UNSEEDED)
    limit = "" if inside else "ulimit -n 20; "
    line = f"{limit}exec {sys.executable} -m samerun check --vary rerun few.py {'x' if inside else ''}"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "unseeded" in done.stdout, done.stderr


SLEEPS = """
import os, subprocess, sys, time
if len(sys.argv) == 1:
    subprocess.Popen([sys.executable, __file__, "child"], start_new_session=True)
    while len(os.listdir("pids")) < 1: time.sleep(0.01)
open(f"pids/{os.getpid()}", "w").close()
time.sleep(120)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("words", ["check", "check --save kept", "cost", "doctor", "verify r.json --"])
def test_what_it_started_does_not_outlive_a_killed_command(words: str, tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    (tmp_path / "pids").mkdir()
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, "-m", "samerun", *words.split()]
    if words.startswith("verify"):
        (tmp_path / "plain.py").write_text("print(1)")
        subprocess.run([*RUN, "plain.py"], cwd=tmp_path, check=True, timeout=60)
        command.append(sys.executable)
    options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(
        [*command, "sleeps.py"], cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path / "tmp")}, **options
    )
    end = time.monotonic() + 60
    while len(os.listdir(tmp_path / "pids")) < 2:
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    started = [int(name) for name in os.listdir(tmp_path / "pids")]
    if words.startswith("verify"):  # it is the program's parent, as a shell is: children of the program are its own
        own = [pid for pid in started if "child" not in Path(f"/proc/{pid}/cmdline").read_text()]
        for pid in set(started) - set(own):
            os.kill(pid, signal.SIGKILL)
        started = own
    for pid in started:
        wait_until_gone(pid)
    end = time.monotonic() + 30
    while not words.startswith("verify") and os.listdir(tmp_path / "tmp"):
        assert time.monotonic() < end
        time.sleep(0.02)
