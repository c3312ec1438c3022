"""What becomes of a clock's reading: only shown, which is no sign of a race, or maybe decisive, which is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from check_command import check

from samerun.check.evidence.clock_uses import clock_may_affect_results
from samerun.check.evidence.durations import find_duration_starts, is_end_of_duration

BEGIN = "import time, logging\nfrom time import perf_counter as clock\n"
SHOWN = {
    "printed": "t = time.time()\nprint(f'{time.time() - t:.2f} s')",
    "formatted": "t = clock()\nlogging.info('took {:.1f}'.format(round(clock() - t, 2)))",
    "attribute": "class A:\n def go(self):\n  self.t = time.time()\n  self.dt = time.time() - self.t\n"
    "a = A()\na.go()\nprint(a.dt)",
    "function": "def since(t):\n return clock() - t\nt = clock()\nprint('took', since(t))",
    "list": "times = []\nfor _ in range(3):\n times.append(clock())\nprint(sum(times) / len(times))",
    "list of a module": "times = []\ndef go():\n times.append(clock())\ngo()\nprint(max(times))",
    "dictionary": "t, log = time.time(), {}\nlog[3] = {'t': time.time() - t}\nprint(log)",
    "choice of values": "mean = -1.0\ndt = clock()\nmean = dt if mean == -1.0 else 0.9 * mean + 0.1 * dt\nprint(mean)",
    "same name elsewhere": "def go():\n t = clock()\n print(clock() - t)\ngo()\nt = 3\nwhile t > 0:\n t -= 1",
    "log": "logging.info('a line of a log has its time')",
}
DECIDES = {
    "deadline": "until = time.time() + 1\nwhile time.time() < until:\n pass",
    "condition": "t = clock()\nif clock() - t > 1:\n x = 2",
    "seed": "import random\nrandom.seed(int(time.time()))",
    "attribute": "class A:\n def go(self):\n  self.t = time.time()\na = A()\na.go()\nif a.t > 3:\n x = 2",
    "attribute by name": "class A: pass\na = A()\na.t = time.time()\nif getattr(a, 't') > 3:\n x = 2",
    "attribute of a class": "class A:\n t = time.time()\n def go(self):\n  return range(int(self.t))\nA().go()",
    "function": "def since(t):\n return clock() - t\nif since(0) > 1:\n x = 2",
    "argument": "def wait(a, limit=0):\n while a < limit:\n  a += 1\nwait(0, limit=clock())",
    "method": "class A:\n def late(self, at):\n  return at > 3\nif A().late(time.time()):\n x = 2",
    "global": "t = 0\ndef go():\n global t\n t = clock()\ngo()\nif t > 2:\n x = 2",
    "closure": "def go():\n t = clock()\n def late():\n  return [0][t > 2]\n return late()\ngo()",
    "fastest": "taken = {}\nfor n in (1, 2):\n taken[n] = clock()\nrange(min(taken, key=taken.get))",
    "length of a list": "for x in [0] * int(clock()):\n pass",
    "list of another name": "a = []\nb = a\nb.append(clock())\nif a[0] > 3:\n x = 2",
    "two names at once": "a = b = []\nb.append(clock())\nif a[0] > 3:\n x = 2",
    "list of the caller": "def note(to):\n to.append(clock())\na = []\nnote(a)\nif a[0] > 3:\n x = 2",
    "place in a list": "x = [1, 2][time.time_ns() % 2]",
    "call in a choice": "x = abs(-1) if clock() > 2 else 0",
    "call after and": "clock() > 2 and abs(1)",
    "own print": "def print(x):\n while x > 0:\n  x -= 1\nprint(clock())",
    "own write": "class A:\n def __init__(self):\n  self.write = self.go\n def go(self, x):\n  return [0][x]\n"
    "A().write(clock())",
    "string": "hour = time.strftime('%H')\nif hour == '12':\n x = 2",
    "parts": "a, b = 1, clock()\nwhile b > 3:\n b -= 1",
    "assigned in a condition": "if (t := clock()) > 2:\n x = t",
    "identifier": "import uuid\nx = uuid.uuid1()",
    "generated": "def go():\n yield clock()\nx = [0 for t in go() if t > 1]",
    "default": "def go(t=time.time()):\n return t > 3\ngo()",
    "dunder": "class A:\n def __len__(self):\n  return int(clock())\nx = range(len(A()))",
    "decorated": "from functools import cache\n@cache\ndef now():\n return clock()\nx = now()",
}


def notes_but_busy(report: dict[str, Any]) -> list[str]:
    """The notes of a report without the one on other programs' load: that is the machine's, not the program's."""
    return [note for note in report["notes"] if not note.startswith("The machine was busy")]


def decides(tmp_path: Path, text: str) -> bool:
    """Whether the reading in a program may decide something, every line that could read a clock being given."""
    path = tmp_path / "program.py"
    path.write_text(BEGIN + text + "\n")
    words = ("clock()", "time.", "uuid1", "logging.info")
    lines = [n for n, line in enumerate(path.read_text().splitlines(), 1) if n > 2 and any(w in line for w in words)]
    return clock_may_affect_results({str(path): lines})


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_only_shown_decides_nothing(name: str, tmp_path: Path) -> None:
    assert not decides(tmp_path, SHOWN[name])


@pytest.mark.parametrize("name", DECIDES)
def test_what_may_decide_is_seen(name: str, tmp_path: Path) -> None:
    assert decides(tmp_path, DECIDES[name])


def test_readings_are_followed_into_other_files(tmp_path: Path) -> None:
    timing, train = tmp_path / "timing.py", tmp_path / "train.py"
    timing.write_text("import time\nSTART = time.time()\n")
    for text, expected in (("print(timing.START)", False), ("if timing.START > 3:\n x = 2", True)):
        train.write_text(f"import timing\n{text}\n")
        assert clock_may_affect_results({str(timing): [2], str(train): []}) is expected
    train.write_text("from timing import START as S\nx = range(int(S))\n")
    assert clock_may_affect_results({str(timing): [2], str(train): []})


TIMED = """\
import logging, time, torch
logging.basicConfig(level="INFO")
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
began = time.time()
for step in range(3):
    model(torch.ones(2, 4)).mean().backward()
    print(f"step {step} took {1000 * (time.time() - began):.1f} ms")
    logging.info("one more step")
    began = time.time()
"""


@pytest.mark.slow
def test_a_program_that_prints_how_long_a_step_took_takes_two_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TIMED)
    code, report = check(["train.py"], tmp_path, OMP_NUM_THREADS="1")
    assert (code, report["verdict"], len(report["runs"]), notes_but_busy(report)) == (0, "same", 2, [])


IN_TIME = """import queue, threading, time, torch
began = time.time()
batches = queue.Queue()
def fill():
    for number in range(4):
        batches.put(torch.full((2,), float(number)))
thread = threading.Thread(target=fill)
thread.start()
thread.join()
total = torch.zeros(2)
while time.time() - began < 3600:
    try:
        total += batches.get(timeout=0.01)
    except queue.Empty:
        break
print(total.tolist())
"""


@pytest.mark.slow
def test_what_time_may_decide_is_told_of_runs_that_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(IN_TIME)
    code, report = check(["--vary", "rerun", "train.py"], tmp_path, OMP_NUM_THREADS="1")
    assert (code, report["verdict"]) == (0, "same")
    (note,) = notes_but_busy(report)
    assert note.startswith(
        "Time may decide what is computed, at train.py:2, train.py:11, train.py:13: these 4 runs are"
    )


def test_the_end_of_a_duration_decides_nothing_alone(tmp_path: Path) -> None:
    lines = (
        "t0 = time.perf_counter()",
        "tuner.observe(n, time.perf_counter() - t0)",
        "spent = time.time() - self.began",
        "late = time.time() - t0 > 5",
        "seed = int(time.time() - t0 + time.time())",
        "while time.time() - t0 < 5: pass",
        "age = time.time() - os.path.getmtime(path)",
    )
    file = tmp_path / "train.py"
    file.write_text("\n".join(lines) + "\n")
    ends = [number for number in range(1, len(lines) + 1) if is_end_of_duration(str(file), number)]
    assert ends == [2, 3]


DURATIONS = """
import time

begun = time.time()
seed = int(begun)
started, step = time.time(), 0
while time.time() - started < 5:
    step += 1
print(time.time() - started)
deadline = time.monotonic() + 60
if time.monotonic() > deadline or step > 9:
    stop()


class Timer:
    def start(self):
        self.started_at = time.time()

    def is_late(self, most):
        now = time.time()
        return now - self.started_at > most


def other():
    started = time.time()
    later(time.time() - begun, started)
    while not Timer().is_late(3):
        pass
"""


def test_the_end_of_a_duration_is_known_with_its_begin(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(DURATIONS)
    lines = [n for n, text in enumerate(DURATIONS.splitlines(), 1) if "time()" in text or "monotonic()" in text]
    assert find_duration_starts(str(file), lines) == {7: [6], 11: [10], 20: [17], 17: [20]}
