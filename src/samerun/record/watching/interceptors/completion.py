"""What finishes first: results taken from queues, pools and tasks of asyncio in the order in which they arrive.

With the pin `in-order`, results of tasks are taken in the order in which the tasks were submitted. With the pin
`serial` too, and tasks run when they are submitted; whoever takes an item from a queue of limited size then waits
until it is full again, so that a thread which fills it (a hand-written data loader) runs in step with it.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

from samerun.record import pins
from samerun.record.digests.state_digests import digest_tree
from samerun.record.trace import format as f
from samerun.record.watching import stack_frames
from samerun.record.watching.interceptor import Interceptor, pins_results_to_submission_order, wrap_attribute
from samerun.record.watching.object_numbers import ObjectNumbers
from samerun.record.watching.recorder import Recorder
from samerun.record.watching.serial_waits import SERIAL_SECONDS, wait_while_working


class SortedSet(set[Any]):
    """A set that is iterated in the order of a key."""

    def __init__(self, items: Any, order: Any) -> None:
        super().__init__(items)
        self.order = order

    def __iter__(self) -> Any:
        return iter(sorted(super().__iter__(), key=self.order))


def record_done_tasks(recorder: Recorder, event_name: str, task_numbers: Iterable[int]) -> None:
    """Record which tasks are done, in the order in which the set of them is iterated."""
    recorder.emit_host_event(
        f.COMPLETION, event_name, value=",".join(map(str, task_numbers)).encode(), only_at_user_code=True
    )


def record_completed_item_digest(recorder: Recorder, event_name: str, item: Any) -> None:
    """Record a result that was taken, by its value."""
    recorder.thread.inside_samerun += 1
    try:
        torch = sys.modules.get("torch")
        value = digest_tree(item, torch.Tensor if torch is not None and hasattr(torch, "Tensor") else NoTensor)
    except Exception:
        value = b"\0" * 16
    finally:
        recorder.thread.inside_samerun -= 1
    recorder.emit_host_event(f.COMPLETION, event_name, outputs=value, only_at_user_code=True)


class NoTensor:
    """Stands for `torch.Tensor` while torch is not loaded."""


def pin_and_intercept_thread_queue_get(recorder: Recorder, queue: Any) -> None:
    """`queue.Queue.get` called by the program itself."""
    wrap_attribute(queue.Queue, "get", lambda original: wrap_get_to_record_item(recorder, original, "queue.get"))
    if pins.SERIAL in recorder.config.pins:
        refiller = QueueRefiller()
        wrap_attribute(queue.Queue, "put", refiller.wrap_put_to_note_filler)
        wrap_attribute(queue.Queue, "get", refiller.wrap_get_to_wait_until_full)


class QueueRefiller:
    """Waits until a queue of limited size is full again before the item taken out of it is used."""

    def __init__(self) -> None:
        self.fillers: WeakKeyDictionary[Any, set[threading.Thread]] = WeakKeyDictionary()
        self.never_refilled: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
        """Queues that did not fill up in time: their fillers wait for something else."""

    def wrap_put_to_note_filler(self, original: Any) -> Any:
        def put(queue: Any, *args: Any, **kwargs: Any) -> None:
            if queue.maxsize > 0 and stack_frames.is_called_by_user(("queue",)):
                self.fillers.setdefault(queue, set()).add(threading.current_thread())
            original(queue, *args, **kwargs)

        return put

    def wrap_get_to_wait_until_full(self, original: Any) -> Any:
        def get(queue: Any, *args: Any, **kwargs: Any) -> Any:
            item = original(queue, *args, **kwargs)
            if queue.maxsize > 0 and queue not in self.never_refilled and stack_frames.is_called_by_user(("queue",)):
                self.wait_until_full_or_timeout(queue)
            return item

        return get

    def wait_until_full_or_timeout(self, queue: Any) -> None:
        for _ in range(int(SERIAL_SECONDS / POLL_SECONDS)):
            other_fillers = self.fillers.get(queue, set()) - {threading.current_thread()}
            if queue.full() or not any(thread.is_alive() for thread in other_fillers):
                return
            time.sleep(POLL_SECONDS)
        self.never_refilled[queue] = True


def intercept_process_queue_get(recorder: Recorder, queues: Any) -> None:
    """`multiprocessing.Queue.get` and `SimpleQueue.get`."""
    for kind in (queues.Queue, queues.SimpleQueue):
        wrap_attribute(
            kind, "get", lambda original: wrap_get_to_record_item(recorder, original, "multiprocessing.Queue.get")
        )


def wrap_get_to_record_item(recorder: Recorder, original: Any, event_name: str) -> Any:
    def get(self: Any, *args: Any, **kwargs: Any) -> Any:
        item = original(self, *args, **kwargs)
        if not recorder.thread.inside_samerun and not recorder.stopped:
            record_completed_item_digest(recorder, event_name, item)
        return item

    return get


def intercept_future_completion(recorder: Recorder, futures: Any) -> None:
    """`concurrent.futures.as_completed`: the positions, in the order of completion. `wait`: which futures are done."""
    in_order = pins_results_to_submission_order(recorder)
    numbers = ObjectNumbers()

    def wrap_future_init(original: Any) -> Any:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            numbers.get_or_assign_number(self)

        return __init__

    def wrap_wait(original: Any) -> Any:
        def wait(fs: Any, timeout: float | None = None, return_when: str = futures.ALL_COMPLETED) -> Any:
            futures_given = list(fs)
            if in_order and futures_given and return_when == futures.FIRST_COMPLETED:
                first = min(futures_given, key=numbers.get_or_assign_number)
                found = original([first], timeout)
                found = type(found)(found.done, found.not_done | (set(futures_given) - {first}))
            else:
                found = original(futures_given, timeout, return_when)
            record_done_tasks(recorder, "concurrent.futures.wait", map(numbers.get_or_assign_number, found.done))
            return (
                type(found)(SortedSet(found.done, numbers.get_or_assign_number), found.not_done) if in_order else found
            )

        return wait

    def wrap_as_completed(original: Any) -> Any:
        def as_completed(fs: Any, timeout: float | None = None) -> Any:
            futures_given = list(fs)
            at = {id(future): number for number, future in enumerate(futures_given)}
            for future in yield_in_order(futures_given, timeout) if in_order else original(futures_given, timeout):
                position = str(at.get(id(future))).encode()
                recorder.emit_host_event(f.COMPLETION, "as_completed", value=position, only_at_user_code=True)
                yield future

        return as_completed

    def yield_in_order(futures_given: list[Any], timeout: float | None) -> Any:
        for future in futures_given:
            future.exception(timeout)
            yield future

    wrap_attribute(futures, "as_completed", wrap_as_completed)
    wrap_attribute(futures, "wait", wrap_wait)
    wrap_attribute(futures._base.Future, "__init__", wrap_future_init)


def intercept_done_callbacks(recorder: Recorder, futures: Any) -> None:
    """`Future.add_done_callback`, where the program itself adds one."""
    calls = itertools.count()

    def wrap_add(original: Any) -> Any:
        def add_done_callback(self: Any, fn: Any) -> None:
            if stack_frames.is_called_by_user():
                fn = make_recording_callback(recorder, ADDED_CALLBACK, next(calls), fn)
            original(self, fn)

        return add_done_callback

    wrap_attribute(futures._base.Future, "add_done_callback", wrap_add)


def intercept_pool_callbacks(recorder: Recorder, pool: Any) -> None:
    """The callback of `apply_async` and its like: a thread of the pool calls it when a result has come."""
    calls = itertools.count()

    def wrap_init(original: Any) -> Any:
        def __init__(self: Any, pool: Any, callback: Any, error_callback: Any) -> None:
            if callback is not None:
                callback = make_recording_callback(recorder, POOL_CALLBACK, next(calls), callback)
            original(self, pool, callback, error_callback)

        return __init__

    wrap_attribute(pool.ApplyResult, "__init__", wrap_init)


ADDED_CALLBACK, POOL_CALLBACK = "add_done_callback", "Pool callback"


def make_recording_callback(recorder: Recorder, event_name: str, number: int, callback: Any) -> Any:
    """The callback of the task `number`, whose calls are recorded at the user's line that hands it over."""
    user_line = stack_frames.find_user_line()

    def call(*args: Any) -> Any:
        if user_line.line:
            recorder.emit_host_event(f.COMPLETION, event_name, value=str(number).encode(), user_line=user_line)
        return callback(*args)

    return call


def wait_for_future(future: Any, seconds: float) -> None:
    try:
        future.exception(seconds)
    except Exception:  # it waits for something else or was cancelled, which is the program's business
        pass


def wait_for_each_submit_if_serial(recorder: Recorder, executors: Any) -> None:
    """`submit` of executors of threads and of processes: only changed by the pin, which waits for each task."""
    if pins.SERIAL not in recorder.config.pins:
        return

    def wrap_submit(original: Any) -> Any:
        def submit(self: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            future = original(self, function, *args, **kwargs)
            wait_while_working(lambda seconds: wait_for_future(future, seconds), future.done)
            return future

        return submit

    for name in ("ThreadPoolExecutor", "ProcessPoolExecutor"):
        if hasattr(executors, name):
            wrap_attribute(getattr(executors, name), "submit", wrap_submit)


def intercept_imap_unordered(recorder: Recorder, pool: Any) -> None:
    """`Pool.imap_unordered`, and how many workers there are, of processes and of threads."""

    def wrap_imap_unordered(original: Any) -> Any:
        def imap_unordered(self: Any, *args: Any, **kwargs: Any) -> Any:
            take = self.imap if pins_results_to_submission_order(recorder) else original.__get__(self)
            for item in take(*args, **kwargs):
                record_completed_item_digest(recorder, "imap_unordered", item)
                yield item

        return imap_unordered

    def wrap_init(original: Any) -> Any:
        def __init__(self: Any, processes: Any = None, *args: Any, **kwargs: Any) -> None:
            by_user = stack_frames.is_called_by_user(("multiprocessing",))
            original(self, 1 if by_user else processes, *args, **kwargs)

        return __init__

    wrap_attribute(pool.Pool, "imap_unordered", wrap_imap_unordered)
    if pins.SERIAL in recorder.config.pins:  # one worker takes the tasks as they were given
        wrap_attribute(pool.Pool, "__init__", wrap_init)


POLL_SECONDS = 0.002

THREAD_QUEUE = Interceptor("completion-queue", "queue", pin_and_intercept_thread_queue_get)
PROCESS_QUEUES = Interceptor("completion-process-queue", "multiprocessing.queues", intercept_process_queue_get)
FUTURES = Interceptor("completion-futures", "concurrent.futures", intercept_future_completion)
EXECUTOR = Interceptor("completion-executor", "concurrent.futures.thread", wait_for_each_submit_if_serial)
DONE_CALLBACKS = Interceptor("completion-callbacks", "concurrent.futures", intercept_done_callbacks)
POOL_CALLBACKS = Interceptor("completion-pool-callbacks", "multiprocessing.pool", intercept_pool_callbacks)
PROCESS_EXECUTOR = Interceptor(
    "completion-process-executor", "concurrent.futures.process", wait_for_each_submit_if_serial
)
POOL = Interceptor("completion-pool", "multiprocessing.pool", intercept_imap_unordered)


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
