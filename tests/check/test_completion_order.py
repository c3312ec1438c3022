"""Results taken as they come: what watching leaves as it is, what the pin `in-order` does, and the check's answer."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from check_command import check
from watched_program import run

from samerun.check.evidence.trace_signs import has_no_sign_of_race
from samerun.record.trace import format as f

WAYS = """\
import asyncio, time
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, ThreadPoolExecutor, as_completed, wait
from multiprocessing.pool import ThreadPool

def late(n):  # the first that is asked for comes last
    time.sleep((4 - n) * 0.15)
    return n

async def later(n):
    await asyncio.sleep((4 - n) * 0.15)
    return n

def one_by_one(pending):
    while pending:
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in done)

async def several():
    yield "asyncio.as_completed", [await each for each in asyncio.as_completed([later(n) for n in range(5)])]
    found, pending = [], [asyncio.create_task(later(n)) for n in range(5)]
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        found += [task.result() for task in done]
    yield "asyncio.wait", found
    done, pending = await asyncio.wait({asyncio.create_task(later(n)) for n in range(5)})
    yield "asyncio.wait for all", sorted(task.result() for task in done)
    yield "gather", await asyncio.gather(*(later(n) for n in range(5)))
    yield "to_thread", await asyncio.gather(*(asyncio.to_thread(late, n) for n in range(3, 5)))
    try:
        for each in asyncio.as_completed([later(0)], timeout=0.05):
            await each
    except asyncio.TimeoutError:
        yield "timeout", [1]
    first = next(iter(asyncio.as_completed([later(4), later(4)])))
    yield "next", [await first]
    done, pending = await asyncio.wait([asyncio.create_task(later(0))], timeout=0.05)
    yield "not in time", [len(done), len(pending)]
    await asyncio.wait(pending)
    try:
        await asyncio.wait([])
    except ValueError as error:
        yield "nothing", [str(error)]

async def main():
    async for name, found in several():
        print((name, list(found)))

with ThreadPoolExecutor(5) as pool, ThreadPool(5) as other:
    print(("as_completed", [each.result() for each in as_completed([pool.submit(late, n) for n in range(5)])]))
    print(("wait", list(one_by_one([pool.submit(late, n) for n in range(5)]))))
    done, pending = wait([pool.submit(late, n) for n in range(5)], return_when=FIRST_EXCEPTION)
    print(("wait for all", sorted(each.result() for each in done) + list(pending)))
    done, pending = wait([pool.submit(late, n) for n in (0, 4)], timeout=0.2)
    print(("wait in vain", [each.result() for each in done] + [len(pending)]))
    print(("imap_unordered", list(other.imap_unordered(late, range(5)))))
asyncio.run(main())
"""
AS_THEY_COME = ("as_completed", "wait", "imap_unordered", "asyncio.as_completed", "asyncio.wait")


def answers(folder: Path, **how: Any) -> dict[str, list[object]]:
    return dict(ast.literal_eval(line.decode()) for line in run(WAYS, folder, **how).stdout.splitlines())


@pytest.mark.slow
def test_watching_leaves_what_comes_first_and_the_pin_takes_it_in_turn(tmp_path: Path) -> None:
    plain, watched = answers(tmp_path / "plain", watched=False), answers(tmp_path / "watched")
    assert watched == plain
    for name in AS_THEY_COME:
        assert plain[name] == [4, 3, 2, 1, 0], name
    pinned = answers(tmp_path / "pinned", pins=("in-order",))
    assert pinned == {**plain, **{name: [0, 1, 2, 3, 4] for name in AS_THEY_COME}}


BEGIN = """\
import asyncio, hashlib, torch
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

def load(n):
    hashlib.sha256(bytes(2_000_000)).digest()
    return torch.full((4,), float(n))

def learn(net, x):
    loss = (net(x) - x.sum()).square().mean()
    loss.backward()
    with torch.no_grad():
        for p in net.parameters():
            p -= 1e-3 * p.grad
            p.grad = None

torch.manual_seed(0)
net = torch.nn.Linear(4, 1)
"""
PROGRAMS = {
    "threads asked from asyncio": (BEGIN + """\
async def train(n):
    learn(net, await asyncio.to_thread(load, n))
async def main():
    await asyncio.gather(*(train(n) for n in range(12)))
asyncio.run(main())
""", 19),
    "futures that are done": (BEGIN + """\
with ThreadPoolExecutor(4) as pool:
    pending = [pool.submit(load, n) for n in range(12)]
    while pending:
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        for future in done:
            learn(net, future.result())
""", 21),
    "clean": (BEGIN + """\
async def main():
    for x in await asyncio.gather(*(asyncio.to_thread(load, n) for n in range(12))):
        learn(net, x)
    for job in asyncio.as_completed([asyncio.sleep(0, n) for n in range(3)]):
        await job
asyncio.run(main())
""", 0),
}  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_line_that_takes_them_is_named(name: str, tmp_path: Path) -> None:
    program, line = PROGRAMS[name]
    (tmp_path / "program.py").write_text(program)
    for _ in range(4):  # the order may be the same twice
        code, report = check(["--vary", "rerun", "--repeat", "4", "program.py"], tmp_path)
        if code == 1:
            break
    assert code == (1 if line else 0)
    if line:
        cause = report["cause"]
        assert (cause["kind"], cause["line"], cause["certain"]) == ("async-order", line, True), cause


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "in_order", "clean"), [(2, False, False), (2, True, True), (1, False, True)])
def test_a_loader_that_hands_over_what_is_ready_is_a_sign_of_a_race(
    tmp_path: Path, workers: int, in_order: bool, clean: bool
) -> None:
    """Both runs may happen to agree: the program is run more often than one without signs."""
    done = run(
        f"""
        import torch
        from torch.utils.data import DataLoader
        if __name__ == "__main__":
            torch.manual_seed(0)
            for batch in DataLoader(list(range(4)), num_workers={workers}, in_order={in_order}):
                batch.sum()
        """,
        tmp_path,
    )
    assert has_no_sign_of_race(done.traces) is clean


STORES = """\
import torch.distributed as dist
store = dist.HashStore()
dist.init_process_group("gloo", store=dist.PrefixStore("of torch", store), rank=0, world_size=1)  # it counts, too
print(store.add("next", 2), dist.PrefixStore("mine", store).add("next", 1), store.compare_set("first", "", "me"))
print(store.get("first"))
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_what_a_store_answers_to_whoever_is_first_is_recorded(tmp_path: Path) -> None:
    found = run(STORES, tmp_path)
    assert found.stdout == run(STORES, tmp_path / "plain", watched=False).stdout == b"2 1 b'me'\nb'me'\n"
    events = [event for event in found.events(f.COMPLETION) if event.name.startswith("torch.distributed.Store.")]
    assert [event.name.rsplit(".")[-1] for event in events] == ["add", "add", "compare_set"]
    assert all(event.line == 4 and event.direct for event in events)


@pytest.mark.parametrize("alone", [False, True])
def test_a_queue_that_is_polled_while_a_thread_fills_it_is_timing(alone: bool, tmp_path: Path) -> None:
    done = run(
        f"""
        import queue, threading, time, torch
        waiting, polls = queue.Queue(), 0
        def fill():
            time.sleep(0.05)
            waiting.put(torch.ones(2) * 2)
        filler = threading.Thread(target=fill)
        filler.start()
        if {alone}:
            filler.join()
        while True:
            try:
                waiting.get_nowait()
                if not {alone}:
                    break
            except queue.Empty:
                polls += 1
                if {alone}:
                    break
        """,
        tmp_path,
    )
    assert has_no_sign_of_race(done.traces) is alone
    assert {event.name for event in done.events(f.CLOCK)} == (set() if alone else {"queue.Empty"})
