"""What is ready or done first: a program that selects among files, or that polls what it has started."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from check_command import check
from watched_program import run

WAYS = """\
import select, selectors, subprocess, time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe, Process
from multiprocessing.connection import wait
from multiprocessing.pool import ThreadPool

def late(n, end=None):  # the first that is asked for comes last
    time.sleep((2 - n) * 0.1)
    if end is not None:
        end.send(n)

def start(n):
    return subprocess.Popen(["sh", "-c", f"sleep {(2 - n) / 10}; echo {n}"], stdout=-1, text=True)

def take_done(pending, is_done):
    taken = []
    while pending:
        for n in [n for n in pending if is_done(pending[n])]:
            taken.append(n)
            del pending[n]
        time.sleep(0.01)
    return taken

def select_by(found, taken=()):
    with selectors.DefaultSelector() as selector:
        for each in found:
            selector.register(each.stdout, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                taken = (*taken, int(key.fileobj.read()))
                selector.unregister(key.fileobj)
    return list(taken)

def take_ready(files, choose, read):
    taken = []
    while files:
        for file in choose(files):
            taken.append(int(read(file)))
            files.remove(file)
    return taken

def start_process(n, end=None):
    process = Process(target=late, args=(n, end))
    process.start()
    return process

if __name__ == "__main__":
    print(("selector", select_by([start(n) for n in range(3)])))
    files = [start(n).stdout for n in range(3)]
    print(("select", take_ready(files, lambda some: select.select(some, [], [])[0], lambda file: file.read())))
    pipes = [Pipe(False) for _ in range(3)]
    processes = [start_process(n, end) for n, (_, end) in enumerate(pipes)]
    print(("wait", take_ready([begin for begin, _ in pipes], wait, lambda begin: begin.recv())))
    print(("poll", take_done({n: start(n) for n in range(3)}, lambda each: each.poll() is not None)))
    print(("is_alive", take_done({n: start_process(n) for n in range(3)}, lambda each: not each.is_alive())))
    with ThreadPool(3) as pool, ThreadPoolExecutor(3) as executor:
        print(("ready", take_done({n: pool.apply_async(late, (n,)) for n in range(3)}, lambda each: each.ready())))
        print(("done", take_done({n: executor.submit(late, n) for n in range(3)}, lambda each: each.done())))
"""


@pytest.mark.parametrize(("pins", "order"), [((), [2, 1, 0]), (("in-order",), [0, 1, 2])])
def test_the_pin_waits_for_what_was_asked_for_first(pins: tuple[str, ...], order: list[int], tmp_path: Path) -> None:
    answers = [ast.literal_eval(line.decode()) for line in run(WAYS, tmp_path, pins=pins).stdout.splitlines()]
    assert [taken for _, taken in answers] == [order] * 7, answers


AS_THEY_END = """\
import selectors, subprocess
COMMAND = "sleep 0.0$(od -An -N1 -tu1 /dev/urandom | tr -d ' '); echo 1"
selector = selectors.DefaultSelector()
for n in range(6):
    selector.register(subprocess.Popen(COMMAND, shell=True, stdout=-1).stdout, selectors.EVENT_READ, n)
came = []
while selector.get_map():
    for key, _ in selector.select():
        came.append(key.data)
        selector.unregister(key.fileobj)
print("score", sum(n / (at + 1) for at, n in enumerate(ORDER)))
"""


def check_with_order(order: str, folder: Path) -> tuple[int, dict]:
    (folder / "program.py").write_text(AS_THEY_END.replace("ORDER", order))
    return check(["--vary", "rerun", "program.py"], folder)


@pytest.mark.slow
def test_what_a_selector_gives_first_is_named_if_results_depend_on_it(tmp_path: Path) -> None:
    code, report = check_with_order("came", tmp_path)
    cause = report["cause"]
    assert (code, cause["kind"], cause["line"], cause["certain"]) == (1, "async-order", 8, True), cause


def test_what_is_put_in_order_again_is_no_difference(tmp_path: Path) -> None:
    code, report = check_with_order("sorted(came)", tmp_path)
    assert (code, report["verdict"]) == (0, "same"), report
