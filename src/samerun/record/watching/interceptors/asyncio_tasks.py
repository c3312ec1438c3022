"""Tasks of asyncio, and what `asyncio.as_completed` and `asyncio.wait` give first.

With the pin `in-order`, results are taken in the order in which the tasks were made.
"""

from __future__ import annotations

import itertools
from typing import Any

from samerun.record.trace import format as f
from samerun.record.watching import stack_frames
from samerun.record.watching.completion_events import SortedSet, record_completed_item_digest, record_done_tasks
from samerun.record.watching.interceptor import Interceptor, pins_results_to_submission_order, wrap_attribute
from samerun.record.watching.object_numbers import ObjectNumbers
from samerun.record.watching.recorder import Recorder


def intercept_asyncio_completion(recorder: Recorder, asyncio: Any) -> None:
    in_order = pins_results_to_submission_order(recorder)
    numbers = ObjectNumbers()

    def wrap_as_completed(original: Any) -> Any:
        def as_completed(fs: Any, *, timeout: float | None = None) -> Any:
            if not in_order:
                return RecordedCompletions(recorder, original(fs, timeout=timeout))
            return RecordedCompletions(recorder, [asyncio.ensure_future(future) for future in fs], timeout)

        return as_completed

    def wrap_wait(original: Any) -> Any:
        async def wait(fs: Any, *, timeout: float | None = None, return_when: str = asyncio.ALL_COMPLETED) -> Any:
            if type(fs) not in (set, frozenset, list, tuple) or not all(map(asyncio.isfuture, fs)):
                return await original(fs, timeout=timeout, return_when=return_when)  # it says what is wrong with them
            tasks = sorted(fs, key=task_creation_order) if isinstance(fs, (set, frozenset)) else list(fs)
            for future in tasks:
                numbers.get_or_assign_number(future)
            if in_order and tasks and return_when == asyncio.FIRST_COMPLETED:
                first = min(tasks, key=numbers.get_or_assign_number)
                done, pending = await original([first], timeout=timeout)
                pending = pending | (set(tasks) - {first})
            else:
                done, pending = await original(tasks, timeout=timeout, return_when=return_when)
            record_done_tasks(recorder, "asyncio.wait", map(numbers.get_or_assign_number, done))
            return (SortedSet(done, numbers.get_or_assign_number) if in_order else done), pending

        return wait

    def wrap_run_in_executor(original: Any) -> Any:
        def run_in_executor(loop: Any, *args: Any, **kwargs: Any) -> Any:
            user_line = stack_frames.find_user_line()
            found = original(loop, *args, **kwargs)
            if user_line.line:
                number = str(next(calls)).encode()
                found.add_done_callback(
                    lambda done: recorder.emit_host_event(
                        f.COMPLETION, "run_in_executor", value=number, user_line=user_line
                    )
                )
            return found

        return run_in_executor

    calls = itertools.count()
    wrap_attribute(asyncio.base_events.BaseEventLoop, "run_in_executor", wrap_run_in_executor)
    order = TaskOrder(recorder)
    wrap_attribute(asyncio.base_events.BaseEventLoop, "create_task", order.wrap_create_task)
    for name, make in (("as_completed", wrap_as_completed), ("wait", wrap_wait), ("sleep", order.wrap_sleep)):
        for module in (asyncio.tasks, asyncio):
            wrap_attribute(module, name, make)


class TaskOrder:
    """Records in which order tasks of asyncio that run beside each other go on after a sleep, and end."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.tasks, self.sleeps = itertools.count(), itertools.count()
        self.running = 0

    def wrap_create_task(self, original: Any) -> Any:
        def create_task(loop: Any, *args: Any, **kwargs: Any) -> Any:
            user_line = stack_frames.find_user_line()
            task = original(loop, *args, **kwargs)
            number = str(next(self.tasks)).encode()
            self.running += 1

            def end(task: Any) -> None:
                if self.running > 1 and user_line.line:
                    self.recorder.emit_host_event(
                        f.COMPLETION, ASYNCIO_TASK, value=number, user_line=user_line, thin_repeats=True
                    )
                self.running -= 1

            task.add_done_callback(end)
            return task

        return create_task

    def wrap_sleep(self, original: Any) -> Any:
        async def sleep(delay: float, result: Any = None) -> Any:
            number = str(next(self.sleeps)).encode()
            found = await original(delay, result)
            if self.running > 1:
                self.recorder.emit_host_event(
                    f.COMPLETION, ASYNCIO_SLEEP, value=number, only_at_user_code=True, thin_repeats=True
                )
            return found

        return sleep


ASYNCIO_TASK, ASYNCIO_SLEEP = "asyncio.Task", "asyncio.sleep"


def task_creation_order(task: Any) -> tuple[int, str]:
    """Sort key of a task: asyncio numbers tasks without a name of their own as they are created."""
    name = task.get_name() if hasattr(task, "get_name") else ""
    number = name.removeprefix("Task-")
    return (int(number), "") if number.isdecimal() else (0, name)


class RecordedCompletions:
    """What `as_completed` returns: with `for`, awaitables of results; with `async for` (Python 3.13), tasks."""

    def __init__(self, recorder: Recorder, results: Any, timeout: float | None = None) -> None:
        self.recorder, self.results, self.timeout = recorder, iter(results), timeout

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return self.await_within_timeout_and_record(next(self.results))

    async def await_within_timeout_and_record(self, awaitable: Any) -> Any:
        import asyncio

        item = await (asyncio.wait_for(awaitable, self.timeout) if self.timeout is not None else awaitable)
        record_completed_item_digest(self.recorder, "asyncio.as_completed", item)
        return item

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        import asyncio

        if hasattr(self.results, "__anext__"):
            task = await self.results.__anext__()
        else:
            task = next(self.results, None)
            if task is None:
                raise StopAsyncIteration
            await asyncio.tasks.wait([task], timeout=self.timeout)
        record_completed_item_digest(self.recorder, "asyncio.as_completed", task.exception() or task.result())
        return task


ASYNCIO = Interceptor("completion-asyncio", "asyncio", intercept_asyncio_completion)
