"""Callbacks of torch's futures: in which thread torch would call them is no result, and they do what they did."""

from __future__ import annotations

from pathlib import Path

from check_command import check
from watched_program import run

COMPLETED_AT_ANY_TIME = """
import _thread, random, time  # a thread as gloo's are: nobody is told that it starts
import torch

wait = random.SystemRandom().random

def complete(future, tensor):
    time.sleep(wait() * 0.01)
    future.set_result(tensor)

weights = torch.ones(4)
for step in range(12):
    futures = [torch.futures.Future() for _ in range(3)]
    for future in futures:
        _thread.start_new_thread(complete, (future, weights * step))
    time.sleep(wait() * 0.01)
    weights = sum(future.then(lambda done: done.value().sin() + 1).wait() for future in futures)
print(weights)
"""


def test_which_thread_calls_them_is_no_difference(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(COMPLETED_AT_ANY_TIME, encoding="utf-8")
    code, report = check(["--vary", "rerun", "train.py"], tmp_path)
    assert (code, report["verdict"]) == (0, "same"), (report["first_difference"], report["cause"])


WHAT_THEY_DO = """
import threading
import torch

def complete(value=None, wait=False):
    future = torch.futures.Future()
    if wait:
        threading.Timer(0.05, future.set_result, (value,)).start()
    else:
        future.set_result(value)
    return future

def fail(done):
    raise LookupError(f"no {done.value()}")

with torch.no_grad():
    print(complete(torch.ones(1)).then(lambda done: torch.is_grad_enabled()).wait())
print(complete(torch.ones(1, requires_grad=True)).then(lambda done: done.value().exp().requires_grad).wait())
for wait in (False, True):
    try:
        complete(3, wait).then(fail).wait()
    except Exception as error:
        print(type(error).__name__, "no 3" in str(error))

def wait_for_others(done):  # callbacks that wait for callbacks, each while it runs
    depth = done.value()
    return depth if depth == 20 else complete(depth + 1, wait=depth % 5 == 0).then(wait_for_others).wait()

print(complete(0).then(wait_for_others).wait())
try:
    complete(3).then(4)
except TypeError:
    print("TypeError")
torch.manual_seed(3)
print(complete(2).then(lambda done: torch.rand(done.value())).wait(), torch.rand(1))
unfinished = torch.futures.Future()
unfinished.then(print)
"""


def test_they_do_what_they_do_unwatched(tmp_path: Path) -> None:
    plain, watched = (run(WHAT_THEY_DO, tmp_path / name, watched=name == "watched") for name in ("plain", "watched"))
    assert watched.stdout == plain.stdout and watched.stderr == plain.stderr
    assert watched.traces.failures == []
    assert [event.thread > 0 for event in watched.operators("exp")] == [True]
