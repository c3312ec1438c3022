"""What finishes first among the tasks of asyncio: `as_completed`, `wait`, and calls in threads.

With the pins `serial` and `in-order`, results are taken in the order asked for. (With `serial` calls in threads run
when they are asked for: see completion.py.)
"""

from __future__ import annotations

import itertools
from typing import Any

from samerun.record.trace import format as f
from samerun.record.watching import sites
from samerun.record.watching.completion_order import InTurn, Numbers, note, note_done, takes_in_order
from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.recorder import Recorder


def install(recorder: Recorder, asyncio: Any) -> None:
    in_turn = takes_in_order(recorder)
    numbers = Numbers()

    def completing(original: Any) -> Any:
        def as_completed(fs: Any, *, timeout: float | None = None) -> Any:
            if not in_turn:
                return Completed(recorder, original(fs, timeout=timeout))
            return Completed(recorder, [asyncio.ensure_future(each) for each in fs], timeout)

        return as_completed

    def waiting(original: Any) -> Any:
        async def wait(fs: Any, *, timeout: float | None = None, return_when: str = asyncio.ALL_COMPLETED) -> Any:
            if type(fs) not in (set, frozenset, list, tuple) or not all(map(asyncio.isfuture, fs)):
                return await original(fs, timeout=timeout, return_when=return_when)  # it says what is wrong with them
            given = sorted(fs, key=made) if isinstance(fs, (set, frozenset)) else list(fs)
            for each in given:
                numbers.of(each)
            if in_turn and given and return_when == asyncio.FIRST_COMPLETED:
                first = min(given, key=numbers.of)
                done, pending = await original([first], timeout=timeout)
                pending = pending | (set(given) - {first})
            else:
                done, pending = await original(given, timeout=timeout, return_when=return_when)
            note_done(recorder, "asyncio.wait", map(numbers.of, done))
            return (InTurn(done, numbers.of) if in_turn else done), pending

        return wait

    def calling(original: Any) -> Any:
        def run_in_executor(loop: Any, *args: Any, **kwargs: Any) -> Any:
            placed = sites.find_user_line()
            found = original(loop, *args, **kwargs)
            if placed[1]:
                number = str(next(calls)).encode()
                found.add_done_callback(
                    lambda done: recorder.emit_host_event(f.COMPLETION, "run_in_executor", value=number, placed=placed)
                )
            return found

        return run_in_executor

    calls = itertools.count()
    wrap_attribute(asyncio.base_events.BaseEventLoop, "run_in_executor", calling)
    for name, make in (("as_completed", completing), ("wait", waiting)):
        for module in (asyncio.tasks, asyncio):
            wrap_attribute(module, name, make)


def made(task: Any) -> tuple[int, str]:
    """Tasks without a name of their own are numbered by asyncio as they are made."""
    name = task.get_name() if hasattr(task, "get_name") else ""
    number = name.removeprefix("Task-")
    return (int(number), "") if number.isdecimal() else (0, name)


class Completed:
    """What `as_completed` gives: iterated plainly, awaitables of results; with `async for`, in Python 3.13, tasks."""

    def __init__(self, recorder: Recorder, found: Any, timeout: float | None = None) -> None:
        self.recorder, self.found, self.timeout = recorder, iter(found), timeout

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return self.noted(next(self.found))

    async def noted(self, awaitable: Any) -> Any:
        import asyncio

        item = await (asyncio.wait_for(awaitable, self.timeout) if self.timeout is not None else awaitable)
        note(self.recorder, "asyncio.as_completed", item)
        return item

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        import asyncio

        if hasattr(self.found, "__anext__"):
            task = await self.found.__anext__()
        else:
            task = next(self.found, None)
            if task is None:
                raise StopAsyncIteration
            await asyncio.tasks.wait([task], timeout=self.timeout)
        note(self.recorder, "asyncio.as_completed", task.exception() or task.result())
        return task


INTERCEPTOR = Interceptor("completion-asyncio", "asyncio", install)
