"""What a handler of the program's raises reaches the program, wherever the recorder was when the signal came."""

from __future__ import annotations

from pathlib import Path

import pytest
from watched_program import run

from samerun.record.watching import quick_mode

PROGRAM = """
import signal, sys
import torch

class TimeIsUp(Exception):
    pass

def on_alarm(number, frame):
    raise TimeIsUp

before = signal.signal(signal.SIGALRM, on_alarm)
assert before is signal.SIG_DFL and signal.getsignal(signal.SIGALRM) is on_alarm
assert signal.signal(signal.SIGALRM, on_alarm) is on_alarm

def steps(count):
    weights = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weights], 0.1)
    for _ in range(count):
        optimizer.zero_grad()
        weights.sum().backward()
        optimizer.step()
"""
WHILE_RECORDING = """
recorder = sys.modules["samerun.record.watching.start"].current_recorder
recorder.thread.inside_samerun += 1
signal.raise_signal(signal.SIGALRM)
sys.stdout.write("not yet ")
recorder.thread.inside_samerun -= 1
try:
    steps(1)
except TimeIsUp:
    print("now")
"""
AT_ANY_TIME = """
steps(1)  # imports what optimizers need: Python makes a RuntimeError of what is raised while a class is made
seen = raised = 0

def on_alarm(number, frame):
    global raised
    raised += 1
    raise TimeIsUp

signal.signal(signal.SIGALRM, on_alarm)
while raised < 100:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        steps(50)
    except TimeIsUp:
        seen += 1
    torch.set_grad_enabled(True)  # torch itself leaves it off where an exception comes at an optimizer's last line
print(raised - seen)
"""


@pytest.mark.slow
def test_a_handler_waits_until_the_recorder_has_returned(tmp_path: Path) -> None:
    assert quick_mode.load_quick_mode_class() is not None
    assert run(PROGRAM + WHILE_RECORDING, tmp_path).stdout == b"not yet now\n"


@pytest.mark.slow
def test_exceptions_of_handlers_are_not_lost(tmp_path: Path) -> None:
    """Without waiting 3 in 100 are, and 20 with two threads: the system gives the signal to either, at any time."""
    done = run(PROGRAM + AT_ANY_TIME, tmp_path, environment={"OMP_NUM_THREADS": "2"})
    assert int(done.stdout) <= 1
