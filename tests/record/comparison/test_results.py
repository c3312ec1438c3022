"""Two runs whose threads came in another order: with the same results they are the same, with others they are not."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from check_command import check
from watched_program import run

from samerun.record.comparison.compare import find_first_difference
from samerun.record.comparison.results import is_harmless_order_difference
from samerun.record.trace.run import RunTraces

CLEAN = (
    "whole_numbers", "numbers_by_class", "counters", "queue_then_sorted", "completed_then_placed", "pool_then_sorted",
    "seeded_tasks", "own_models", "tasks_gathered_in_order",
)  # fmt: skip
RACY = (
    "floats", "floats_by_class", "unread_floats", "last_writer", "trained_in_order", "read_on_the_way",
    "models_merged_as_they_end", "tasks_that_add_as_they_come", "remainders",
)  # fmt: skip
PROGRAM = """
import os, queue, sys, threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from samerun.record.config import ROLE_VARIABLE, WatchConfig
from samerun.record.watching import start

folder, names = Path(sys.argv[1]), sys.argv[2:]
kept = []

def recorded(name, order):
    watch = WatchConfig(folder=str(folder / f"{name}{order[0]}"), depth="ops")
    Path(watch.folder).mkdir()
    recorder = start.current_recorder
    if recorder is None:
        recorder = start.start(watch)
        import torch
    else:
        recorder.restart_after_finish(watch)
    kept.clear()
    globals()[name](order)
    for one in recorder.cleared_on_restart:
        one.clear()
    recorder.finish()
    recorder.pause_operators_until_restart()
    os.environ.pop(ROLE_VARIABLE, None)  # each record is one of a main process

def in_turn(work, order):
    "Threads that do their work in this order."
    turns = {number: threading.Event() for number in order}
    def wait_and_work(number):
        turns[number].wait()
        work(number)
    threads = {number: threading.Thread(target=wait_and_work, args=(number,)) for number in sorted(order)}
    for thread in threads.values():
        thread.start()
    for number in order:
        turns[number].set()
        threads[number].join()

def completed(order, job):
    "What futures return, as they complete in this order."
    turns = {number: threading.Event() for number in order}
    def wait_and_do(number):
        turns[number].wait()
        return number, job(number)
    with ThreadPoolExecutor(len(order)) as pool:
        futures = {number: pool.submit(wait_and_do, number) for number in sorted(order)}
        for number in order:
            turns[number].set()
            done = next(as_completed([futures[number]]))
            yield done.result()

def whole_numbers(order):
    import torch
    total = torch.zeros(3, dtype=torch.int64)
    in_turn(lambda n: total.add_(n * 7 + 1), order)
    kept.append(total)

def numbers_by_class(order):
    import torch
    total = torch.zeros(4, dtype=torch.int64)
    def work(n):
        for k in range(6):
            total[(n + k) % 4] += n * k
    in_turn(work, order)
    kept.append(total.sum().item())

def counters(order):
    import torch
    seen = {}
    def work(n):
        for word in "abc"[: n + 1]:
            seen[word] = seen.get(word, torch.zeros((), dtype=torch.int64)) + 1
    in_turn(work, order)
    kept.extend(seen[word].item() for word in sorted(seen))

def queue_then_sorted(order):
    import torch
    items = queue.Queue()
    in_turn(lambda n: items.put((n, torch.full((2,), 1.5) * n)), order)
    found = dict(items.get() for _ in order)
    kept.append(torch.stack([found[n] for n in sorted(found)]).sum().item())

def completed_then_placed(order):
    import torch
    out, count = torch.zeros(3), torch.zeros((), dtype=torch.int64)
    for n, value in completed(order, lambda n: (torch.ones(3) * n).sum().sqrt()):
        out[n] = value
        count += n
    kept.extend((out, value, n))

def pool_then_sorted(order):
    import torch
    found = {n: value * 2 for n, value in completed(order, lambda n: torch.ones(2) * n)}
    kept.append(torch.cat([found[n] for n in sorted(found)]).sum().item())

def seeded_tasks(order):
    import torch
    generators = {n: torch.Generator().manual_seed(n) for n in order}
    found = {}
    in_turn(lambda n: found.__setitem__(n, torch.rand(2, generator=generators[n])), order)
    kept.append(torch.cat([found[n] for n in sorted(found)]).sum().item())

def floats(order):
    import torch
    total = torch.zeros(64)
    in_turn(lambda n: total.add_(torch.arange(64.0).sin() * 10 ** (4 * n)), order)
    kept.append(total.sum().item())

def floats_by_class(order):
    import torch
    total = torch.zeros(2, 64)
    in_turn(lambda n: total[1].add_(torch.arange(64.0).sin() * 10 ** (4 * n)), order)
    kept.append(total)

def unread_floats(order):
    import torch
    total = torch.zeros(64)
    in_turn(lambda n: total.add_(torch.arange(64.0).sin() * 10 ** (4 * n)), order)
    kept.append(total)

def remainders(order):
    "What one order ends with, the other has on the way: there are few remainders."
    import torch
    total = torch.ones(3, dtype=torch.int64)
    def work(n):
        for k in range(4):
            total.mul_(3).add_(n * k).remainder_(11)
    in_turn(work, order)
    kept.append(total)

def last_writer(order):
    import torch
    shared = torch.zeros(3)
    in_turn(lambda n: shared.copy_(torch.full((3,), n + 0.5).sqrt()), order)
    kept.append(shared.sum().item())

def trained_in_order(order):
    import torch
    torch.manual_seed(0)
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _, x in completed(order, lambda n: torch.full((1, 2), n + 0.25)):
        optimizer.zero_grad()
        net(x).square().sum().backward()
        optimizer.step()

def in_turn_by_stages(work, order, stages):
    "Threads that do each stage of their work in this order; all of them are alive until the last stage."
    begins, ends = ({(n, stage): threading.Event() for n in order for stage in range(stages)} for _ in range(2))
    def wait_and_work(number):
        for stage, _ in enumerate(work(number, begins)):
            ends[number, stage].set()
    threads = [threading.Thread(target=wait_and_work, args=(number,)) for number in sorted(order)]
    for thread in threads:
        thread.start()
    for stage in range(stages):
        for number in order:
            begins[number, stage].set()
            ends[number, stage].wait()
    for thread in threads:
        thread.join()

def own_models(order):
    import torch
    torch.manual_seed(0)
    models = [torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)) for _ in order]
    def train(n, begins):
        optimizer = torch.optim.SGD(models[n].parameters(), lr=0.1)
        begins[n, 0].wait()
        models[n](torch.eye(2) * (n + 1)).square().sum().backward()
        yield
        begins[n, 1].wait()
        optimizer.step()
        yield
    in_turn_by_stages(train, order, 2)
    kept.append(models)

def models_merged_as_they_end(order):
    import torch
    torch.manual_seed(0)
    models = [torch.nn.Linear(2, 2) for _ in order]
    merged = torch.zeros(2, 2)
    def train(n):
        models[n](torch.eye(2) * (n + 1)).square().sum().backward()
        torch.optim.SGD(models[n].parameters(), lr=0.1).step()
        merged.mul_(0.7).add_(models[n].weight.detach(), alpha=0.3)
    in_turn(train, order)
    kept.append(merged)

def sleeping_tasks(order, take):
    "Tasks of asyncio that go on in this order."
    import asyncio, torch
    async def fetch(n):
        await asyncio.sleep(0.02 * order.index(n))
        return take(torch.linspace(0, 1, 4) * (n + 1))
    async def main():
        return await asyncio.gather(*(fetch(n) for n in sorted(order)))
    return asyncio.run(main())

def tasks_gathered_in_order(order):
    import torch
    total = torch.ones(4)
    for part in sleeping_tasks(order, lambda part: part):
        total = total * 1.5 + part
    kept.append(total)

def tasks_that_add_as_they_come(order):
    import torch
    total = torch.ones(4)
    sleeping_tasks(order, lambda part: total.mul_(1.5).add_(part))
    kept.append(total)

def read_on_the_way(order):
    import torch
    total = torch.zeros((), dtype=torch.int64)
    in_turn(lambda n: kept.append(total.add_(n + 1).item()), order)

for name in names:
    for order in ((0, 1, 2), (2, 0, 1)):
        recorded(name, order)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("orders")
    run(PROGRAM, folder, str(folder), *CLEAN, *RACY, watched=False)
    return folder


@pytest.mark.parametrize(("name", "clean"), [*((name, True) for name in CLEAN), *((name, False) for name in RACY)])
def test_only_results_tell_orders_apart(recorded: Path, name: str, clean: bool) -> None:
    a, b = RunTraces(recorded / f"{name}0"), RunTraces(recorded / f"{name}2")
    assert not a.failures and not b.failures
    difference = find_first_difference(a, b)
    if clean:
        assert difference is None or is_harmless_order_difference(a, b, difference), difference
    else:
        assert difference is not None
        assert not is_harmless_order_difference(a, b, difference), difference


def test_partial_sums_differ(recorded: Path) -> None:
    """Else the clean ones would show nothing."""
    for name in (
        "whole_numbers",
        "numbers_by_class",
        "completed_then_placed",
        "pool_then_sorted",
        "tasks_gathered_in_order",
    ):
        assert find_first_difference(RunTraces(recorded / f"{name}0"), RunTraces(recorded / f"{name}2")), name


@pytest.mark.slow
def test_a_value_of_a_single_thread_is_a_result(tmp_path: Path) -> None:
    sides = []
    for number in (1, 2):
        done = run(f"import torch\nx = torch.ones(2) * {number}\n", tmp_path / str(number))
        sides.append(done.traces)
    difference = find_first_difference(*sides)
    assert difference is not None and not is_harmless_order_difference(*sides, difference)


@pytest.mark.slow
def test_memory_that_nobody_wrote_comes_from_no_order(tmp_path: Path) -> None:
    """Its order is the same wherever it holds one number; what another run's memory holds is no such number."""
    program = """
        import sys, threading
        from concurrent.futures import ThreadPoolExecutor, as_completed
        import torch
        turns = [threading.Event() for _ in range(2)]
        with ThreadPoolExecutor(2) as pool:
            done = as_completed([pool.submit(turn.wait) for turn in turns])
            for number in map(int, sys.argv[1]):
                turns[number].set()
                next(done)
        order = torch.empty(4).argsort()
        print(order.sum().item())
    """
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(program), encoding="utf-8")
    sides = [run(script, tmp_path / order, order, fresh_memory=fill).traces
             for order, fill in (("01", "zeros"), ("10", "pattern"))]  # fmt: skip
    difference = find_first_difference(*sides)
    assert difference is not None and not is_harmless_order_difference(*sides, difference)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("dtype", "code"), [("int64", 0), ("float32", 1)])
def test_a_check_of_threads_that_add_under_a_lock(tmp_path: Path, dtype: str, code: int) -> None:
    # Every element adds up other numbers: that another order rounds all of them alike is out of the question.
    (tmp_path / "program.py").write_text(f"""\
import threading, time, torch
total, lock = torch.zeros(64, dtype=torch.{dtype}), threading.Lock()
scale = torch.arange(1, 65, dtype=torch.{dtype})
def work(n):
    for k in range(100):
        with lock:
            total.add_(scale * (n + 1) * 7 if total.dtype == torch.int64 else scale * (n + 0.1) * 3 ** (k % 9))
        time.sleep(0.0001)
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(total.tolist())
""")
    found, report = check(["--vary", "rerun", "program.py"], tmp_path)
    assert found == code, json.dumps(report)[:2000]
    if code:
        cause = report["cause"]
        assert (cause["kind"], cause["line"]) == ("thread-race", 7)
