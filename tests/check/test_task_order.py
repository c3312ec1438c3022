"""Threads and processes that hand their results over by themselves: what they write to is read off the source."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from check_command import check
from watched_program import run

from samerun.check.evidence.task_writes import list_task_writes, select_task_writes_read_at_lines
from samerun.check.evidence.trace_signs import has_no_sign_of_race
from samerun.record.comparison.compare import find_first_difference
from samerun.record.comparison.streams import ONLY_MAIN_THREAD
from samerun.record.trace import format as f
from samerun.record.watching import serial_waits

BEGIN = """\
import hashlib, threading
from concurrent.futures import ThreadPoolExecutor

class Server:
    def __init__(self):
        self.rows, self.log = [], {}

    def work(self, n):
        own = []
        own.append(hashlib.sha256(bytes(3_000_000 - 1000 * n)).digest())
        self.keep(n)
        return own

    def keep(self, n):
        self.rows.append(n)

    def show(self):
        self.log["shown"] = True
        print("score", sum(place * n for place, n in enumerate(self.rows)) / 7)

server = Server()
"""
PROGRAMS = {
    "a pool": BEGIN + """\
with ThreadPoolExecutor(8) as pool:
    [task.result() for task in [pool.submit(server.work, n) for n in range(24)]]
server.show()
""",
    "threads": BEGIN + """\
threads = [threading.Thread(target=lambda n=n: server.work(n)) for n in range(24)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
server.show()
""",
    "a class of threads": BEGIN + """\
class Task(threading.Thread):
    def run(self):
        self.done = server.work(int(self.name))

threads = [Task(name=str(n)) for n in range(24)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
server.show()
""",
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_writes_of_tasks_to_what_others_see_are_read_off_the_source(name: str, tmp_path: Path) -> None:
    file = str(tmp_path / "program.py")
    Path(file).write_text(PROGRAMS[name])
    kept = (file, 15, "rows")
    writes = list_task_writes([file])
    assert kept in writes and {write.container for write in writes} <= {"rows", "self"}
    assert select_task_writes_read_at_lines(writes, file, [19]) == [kept]


@pytest.mark.slow
@pytest.mark.parametrize(("handed", "clean"), [("server.work", False), ("abs", True)])
def test_threads_that_write_to_one_list_are_a_sign_of_a_race(handed: str, clean: bool, tmp_path: Path) -> None:
    """Pinned runs may happen to agree on an idle machine: without this sign one rerun that agrees was enough."""
    program = "import torch\ntorch.ones(1)\n" + PROGRAMS["a pool"].replace("server.work", handed)
    done = run(program, tmp_path)
    assert has_no_sign_of_race(done.traces) is clean


def test_what_no_task_does_is_no_such_write(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(BEGIN + "print(list(map(server.work, range(3))))\n")
    assert list_task_writes([str(tmp_path / "program.py")]) == []


APPENDED = """\
import gzip, tempfile, time
from multiprocessing import Process
from pathlib import Path

def label(numbers, path):
    for n in numbers:
        time.sleep(0.003)
        with open(path, "a") as file:
            file.write(f"{n}\\n")

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a")
        processes = [Process(target=label, args=(range(n, 24, 3), path)) for n in range(3)]
        [process.start() for process in processes], [process.join() for process in processes]
        rows = [int(line) for line in open(path)]
    print("score", sum(place * n for place, n in enumerate(ORDER)) / 7)
"""


def test_files_to_which_tasks_append_are_shared(tmp_path: Path) -> None:
    program = APPENDED + "\ndef other(name):\n    name.open('ab'), gzip.open(name, 'at'), open('a'), open(name, 'w')\n"
    (tmp_path / "program.py").write_text(program + "Process(target=other)\n")
    writes = list_task_writes([str(tmp_path / "program.py")])
    assert [(line, name) for _, line, name in writes] == [(8, "path"), (20, "gzip"), (20, "name")]


@pytest.mark.exhaustive
@pytest.mark.parametrize("order", ["rows", "sorted(rows)"])
def test_the_order_in_which_processes_append_to_a_file_is_a_race(order: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(APPENDED.replace("ORDER", order))
    for _ in range(4):  # six runs may be the same by chance
        code, report = check(["--vary", "rerun", "--repeat", "6", "program.py"], tmp_path)
        if code == 1 or order != "rows":
            break
    if order != "rows":
        assert (code, report["verdict"]) == (0, "same"), report
        return
    cause = report["cause"]
    assert (code, cause["kind"], cause["line"], cause["certain"]) == (1, "thread-race", 8, False), cause


def test_programs_that_are_started_beside_each_other_run_in_turn_with_the_pin(tmp_path: Path) -> None:
    program = """\
import subprocess
for n in range(3):
    subprocess.Popen(["sh", "-c", f"sleep {0.2 - n / 10}; echo {n} >> came"])
subprocess.run(["sh", "-c", "sleep 0.4; cat came"])
"""
    assert run(program, tmp_path, pins=("serial",)).stdout == b"0\n1\n2\n"


CALLED_BACK = """\
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool

class Rows(list):
    def __call__(self, row):
        self.append(row.result() if hasattr(row, "result") else row)

def late(n):
    time.sleep((3 - n) / 20)
    return n

rows, others = Rows(), Rows()
with ThreadPool(4) as pool, ThreadPoolExecutor(4) as executor:
    for n in range(4):
        pool.apply_async(late, (n,), callback=rows)
        executor.submit(late, n).add_done_callback(others)
    pool.close(), pool.join()
print(rows, others)
"""


@pytest.mark.parametrize(("pins", "first"), [((), 3), (("serial",), 0)])
def test_callbacks_of_pools_are_recorded_where_they_are_handed_over(
    pins: tuple[str, ...], first: int, tmp_path: Path
) -> None:
    outcome = run(CALLED_BACK, tmp_path, pins=pins)
    order = [0, 1, 2, 3] if first == 0 else [3, 2, 1, 0]
    assert outcome.stdout.decode() == f"{order} {order}\n"
    found = {(event.name, event.line) for event in outcome.events(f.COMPLETION)}
    assert {("Pool callback", 16), ("add_done_callback", 17)} <= found


@pytest.mark.slow
def test_the_order_in_which_a_pool_fills_a_list_is_a_race(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAMS["a pool"])
    code, report = check(["--vary", "rerun", "--repeat", "6", "program.py"], tmp_path)
    cause = report["cause"]
    assert (code, cause["kind"], cause["line"], cause["certain"]) == (1, "thread-race", 15, False), cause


def test_one_that_is_at_work_is_waited_for_longer_than_one_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serial_waits, "SERIAL_SECONDS", 0.1)
    monkeypatch.setattr(serial_waits, "SLICE_SECONDS", 0.02)
    monkeypatch.setattr(serial_waits, "_most_seconds", 1.5)
    for cpu_share, least, most in ((0.0, 0.1, 1.5), (1.0, 1.5, 60.0), (1.0, 0.1, 1.5)):
        begin = time.monotonic()
        serial_waits.wait_while_working(time.sleep, lambda: False, lambda share=cpu_share: share * time.monotonic())
        assert least <= time.monotonic() - begin < most, cpu_share


@pytest.mark.exhaustive
def test_a_timer_that_ends_a_loop_is_named(tmp_path: Path) -> None:
    program = """\
import threading

import torch

stop = threading.Event()
x = torch.ones(4)
timer = threading.Timer(0.1, stop.set)
timer.start()
while not stop.is_set():
    x = x * 1.01
print(x.relu().shape)
"""
    (tmp_path / "program.py").write_text(program)
    code, report = check(["--vary", "rerun", "program.py"], tmp_path)
    cause = report["cause"]
    assert (code, cause["kind"], cause["line"], cause["certain"]) == (1, "time", 7, False), cause


def test_one_worker_of_a_pool_takes_all_tasks_in_turn(tmp_path: Path) -> None:
    program = """\
import threading, time
from multiprocessing import get_context
from multiprocessing.pool import Pool, ThreadPool

def late(n):
    time.sleep(0.02 * (4 - n))
    return threading.current_thread().name

if __name__ == "__main__":
    found = []
    with ThreadPool(4) as threads, Pool(3) as one, get_context("fork").Pool(processes=2) as other:
        threads.starmap(lambda n: late(n) and found.append(n), [(n,) for n in range(4)], 1)
        print(found, len(set(threads.map(late, range(4)))), len(one._pool), len(other._pool))
"""
    assert run(program, tmp_path, pins=("serial",)).stdout.decode() == "[0, 1, 2, 3] 1 1 1\n"


def test_each_thread_draws_from_generators_of_its_own(tmp_path: Path) -> None:
    program = """\
import random, threading
import numpy as np

np.random.seed(0)
random.seed(0)
barrier, drawn = threading.Barrier(3), {}

def draw(n):
    barrier.wait()
    drawn[n] = [np.random.randint(100), np.random.sample(), random.random(), np.random.permutation(4).tolist()]

threads = [threading.Thread(target=draw, args=(n,), name=f"draw-{n}") for n in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(drawn.items()))
print(np.random.rand(), random.random())
"""
    pinned, again = (run(program, tmp_path / n, pins=("thread-streams",)).stdout for n in ("one", "other"))
    assert pinned == again
    lines = program.splitlines()
    untouched = run("\n".join([*lines[:5], lines[-1]]), tmp_path / "plain").stdout
    assert pinned.splitlines()[-1] == untouched.strip()


@pytest.mark.slow
@pytest.mark.parametrize(("in_thread", "in_main"), [("2 1", True), ("1 2", False)])
def test_the_main_thread_is_compared_alone_where_others_may_differ(
    in_thread: str, in_main: bool, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text("""\
import sys, threading
import torch
first, second = map(float, sys.argv[1:])
thread = threading.Thread(target=lambda: torch.ones(2) * second, name="watch")
thread.start(), thread.join()
torch.ones(3) * first
""")
    a, b = (
        run(tmp_path / "program.py", tmp_path / n, *given.split()).traces
        for n, given in (("one", "1 1"), ("other", in_thread))
    )
    found = find_first_difference(a, b)
    assert found is not None and (found.thread == "main") is in_main
    assert (find_first_difference(a, b, (ONLY_MAIN_THREAD,)) is not None) is in_main
