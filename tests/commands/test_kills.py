"""Killed at random moments: what was there is there, no process is left, no file is half written."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import samerun
from samerun.record.receipt import receipt_file

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
CHECKED = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(300)"], start_new_session=True)
import torch
torch.manual_seed(1)
for _ in range(5):
    print(torch.rand(3).sum())
    time.sleep(0.05)
child.kill()
"""
RECORDED = """
import time
for number in range(20):
    with open("out.txt", "w") as file:
        file.write(str(number))
    time.sleep(0.02)
"""
SAVING = """
import os, sys
import torch
import samerun
torch.set_num_threads(1)
step = samerun.checkpoint.load("c.pt")["step"] if os.path.exists("c.pt") else 0
print("begun", flush=True)
while True:
    step += 1
    samerun.checkpoint.save("c.pt", model=torch.nn.Linear(300, 300), extra={"step": step})
"""


class Moments:
    """Random moments in what takes longer or shorter as the machine is busy: most of them before it is over."""

    def __init__(self, seed: int, first: float) -> None:
        self.chance, self.latest = random.Random(seed), first

    def wait(self, process: subprocess.Popen[str]) -> None:
        try:
            process.wait(timeout=self.latest * self.chance.uniform(0, 1))
        except subprocess.TimeoutExpired:
            pass
        self.latest = min(max(self.latest * (1.1 if process.poll() is None else 0.7), 0.3), 60)

    def kill(self, process: subprocess.Popen[str], number: int) -> int:
        """Send it and wait for the end; some get a second one, as an impatient person sends it."""
        process.send_signal(number)
        if self.chance.random() < 0.2:
            time.sleep(self.chance.uniform(0, 0.2))
            process.send_signal(number)
        process.communicate(timeout=120)
        return process.returncode


def marked_processes(mark: str) -> list[str]:
    """Command lines of the living processes whose environment names the folder."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if state not in "ZX" and mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def wait_until(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + 60
    while not true() and time.monotonic() < end:
        time.sleep(0.05)
    return true()


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "MARKED": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *words], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip


def complete(folder: Path, *words: str) -> None:
    process = start(folder, *words)
    process.communicate(timeout=120)
    assert process.returncode == 0


def assert_clean(folder: Path, allowed: set[str]) -> None:
    """Nobody lives, and in the working directory and the temporary one lies what may lie there."""
    assert wait_until(lambda: not marked_processes(str(folder))), marked_processes(str(folder))
    left = [name for name in os.listdir(folder / "tmp") if name.startswith("samerun-")]
    assert not left, left
    assert set(os.listdir(folder)) <= allowed, sorted(os.listdir(folder))


def kill_checks(folder: Path, times: int) -> int:
    """Returns how many of them were killed before they had ended."""
    (folder / "tmp").mkdir()
    (folder / "checked.py").write_text(CHECKED)
    (folder / "found.json").write_text('{"earlier": 1}')
    moments, early = Moments(1, 8.0), 0
    for number in range(times):
        before = (folder / "found.json").read_bytes()
        process = start(folder, "-m", "samerun", "check", "--vary", "rerun", "--json", "found.json", "checked.py")
        moments.wait(process)
        early += process.poll() is None
        code = moments.kill(process, sent := SIGNALS[number % 3])
        now = (folder / "found.json").read_bytes()
        report = json.loads(now)
        assert now == before or report["verdict"] == "same", report["notes"]
        assert code in (0, 2, -sent) or (code, sent) == (1, signal.SIGINT), (code, sent)  # 1: Python was starting
        assert_clean(folder, {"tmp", "checked.py", "found.json"})
    return early


def kill_runs(folder: Path, times: int) -> int:
    (folder / "tmp").mkdir()
    (folder / "recorded.py").write_text(RECORDED)
    run = ("-m", "samerun", "run", "--quiet", "--receipt", "r.json", "recorded.py")
    complete(folder, *run)
    moments, early = Moments(2, 1.5), 0
    for number in range(times):
        before = (folder / "r.json").read_bytes()
        process = start(folder, *run)
        moments.wait(process)
        early += process.poll() is None
        code = moments.kill(process, sent := SIGNALS[number % 3])
        ended = receipt_file.read_and_verify_digest(folder / "r.json")["ended"]
        if (folder / "r.json").read_bytes() != before:
            assert ended["complete"] or ended["why"]
        assert code in (0, 2, -sent) or (code, sent) == (1, signal.SIGINT), (code, sent)
        assert wait_until(lambda: not marked_processes(str(folder))), marked_processes(str(folder))
        if sent == signal.SIGKILL:  # the next one deletes what this one could not
            complete(folder, *run)
        assert_clean(folder, {"tmp", "recorded.py", "r.json", "out.txt"})
    return early


def kill_saves(folder: Path, times: int) -> int:
    (folder / "tmp").mkdir()
    (folder / "saving.py").write_text(SAVING)
    chance, last = random.Random(3), 0
    for number in range(times):
        process = start(folder, "saving.py")
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        time.sleep(chance.uniform(0, 0.3))
        process.send_signal(sent := SIGNALS[number % 3])
        process.communicate(timeout=120)
        assert process.returncode == -sent
        names = {"c.pt", "c.pt.previous"} & set(os.listdir(folder))
        steps = {name: samerun.checkpoint.load(folder / name, rng=False)["step"] for name in names}
        if names:
            assert steps["c.pt"] >= last, (steps, last)
            assert len(names) == 1 or steps["c.pt.previous"] in (steps["c.pt"], steps["c.pt"] - 1), steps
            last = steps["c.pt"]
        assert wait_until(lambda: not marked_processes(str(folder)))
    samerun.checkpoint.save(folder / "c.pt", model=torch.nn.Linear(2, 2))
    assert_clean(folder, {"tmp", "saving.py", "c.pt", "c.pt.previous"})
    return times


KILLERS = {"check": kill_checks, "run": kill_runs, "save": kill_saves}


@pytest.mark.slow
@pytest.mark.parametrize("what", sorted(KILLERS))
def test_killed_at_random_moments(what: str, tmp_path: Path) -> None:
    assert KILLERS[what](tmp_path, 3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("what", sorted(KILLERS))
def test_killed_a_hundred_times(what: str, tmp_path: Path) -> None:
    early = KILLERS[what](tmp_path, 100)
    print(f"{what}: {early} of 100 were still running")
    assert early >= 50  # else the moments were badly chosen
