"""What finishes first: results taken from queues and pools in the order in which they arrive.

With the pin `in-order`, results of tasks are taken in the order in which the tasks were submitted. With the pin
`serial` too, and tasks run when they are submitted; whoever takes an item from a queue of limited size then waits
until it is full again, so that a thread which fills it (a hand-written data loader) runs in step with it.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from typing import Any
from weakref import WeakKeyDictionary

from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.watching import stack_frames
from samerun.record.watching.completion_events import (
    SortedSet,
    make_recording_callback,
    record_completed_item_digest,
    record_done_tasks,
)
from samerun.record.watching.interceptor import Interceptor, pins_results_to_submission_order, wrap_attribute
from samerun.record.watching.object_numbers import ObjectNumbers
from samerun.record.watching.recorder import Recorder
from samerun.record.watching.serial_waits import SERIAL_SECONDS, emit_not_serial, wait_while_working


def pin_and_intercept_thread_queue_get(recorder: Recorder, queue: Any) -> None:
    """`queue.Queue.get` called by the program itself, and whether it found nothing there."""
    wrap_attribute(queue.Queue, "get", lambda original: wrap_get_to_record_item(recorder, original, "queue.get"))
    wrap_attribute(queue.Queue, "get", lambda original: wrap_get_to_record_empty(recorder, original, queue.Empty))
    if pins.SERIAL in recorder.config.pins:
        refiller = QueueRefiller()
        wrap_attribute(queue.Queue, "put", refiller.wrap_put_to_note_filler)
        wrap_attribute(queue.Queue, "get", refiller.wrap_get_to_wait_for_refill_after)


def wrap_get_to_record_empty(recorder: Recorder, original: Any, empty: type[BaseException]) -> Any:
    """`get` that counts as a clock where it finds nothing while other threads run: what the program does then is up to
    when they put something there. A queue that one thread empties alone says nothing."""

    def get(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except empty:
            if threading.active_count() > 1:
                recorder.emit_host_event(f.CLOCK, "queue.Empty", thin_repeats=True, only_at_user_code=True)
            raise

    return get


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

    def wrap_get_to_wait_for_refill_after(self, original: Any) -> Any:
        def get(queue: Any, *args: Any, **kwargs: Any) -> Any:
            item = original(queue, *args, **kwargs)
            if queue.maxsize > 0 and queue not in self.never_refilled and stack_frames.is_called_by_user(("queue",)):
                self.wait_until_full_or_mark_never_refilled(queue)
            return item

        return get

    def wait_until_full_or_mark_never_refilled(self, queue: Any) -> None:
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
        if recorder.thread.inside_samerun or recorder.stopped:
            return item
        # A pool's worker that was forked has the lines of the program on its stack, and takes whichever task comes.
        if not stack_frames.is_called_from_module("multiprocessing.pool", "concurrent.futures"):
            record_completed_item_digest(recorder, event_name, item)
        return item

    return get


def order_and_intercept_future_completion(recorder: Recorder, futures: Any) -> None:
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


def wait_for_future_ignoring_timeout(future: Any, seconds: float) -> None:
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
            wait = functools.partial(wait_for_future_ignoring_timeout, future)
            if not wait_while_working(wait, future.done):
                emit_not_serial(recorder)
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


def record_reads_in_pool_workers(recorder: Recorder, module: Any) -> None:
    """A worker takes whichever task comes: what is read of its results counts, and not which worker computed them."""

    def wrap_worker(original: Any) -> Any:
        def worker(*args: Any, **kwargs: Any) -> Any:
            recorder.note_order_may_vary()
            return original(*args, **kwargs)

        return worker

    for name in ("worker", "_process_worker"):
        if hasattr(module, name):
            wrap_attribute(module, name, wrap_worker)


POLL_SECONDS = 0.002

THREAD_QUEUE = Interceptor("completion-queue", "queue", pin_and_intercept_thread_queue_get)
PROCESS_QUEUES = Interceptor("completion-process-queue", "multiprocessing.queues", intercept_process_queue_get)
FUTURES = Interceptor("completion-futures", "concurrent.futures", order_and_intercept_future_completion)
EXECUTOR = Interceptor("completion-executor", "concurrent.futures.thread", wait_for_each_submit_if_serial)
DONE_CALLBACKS = Interceptor("completion-callbacks", "concurrent.futures", intercept_done_callbacks)
POOL_CALLBACKS = Interceptor("completion-pool-callbacks", "multiprocessing.pool", intercept_pool_callbacks)
PROCESS_EXECUTOR = Interceptor(
    "completion-process-executor", "concurrent.futures.process", wait_for_each_submit_if_serial
)
POOL_WORKER = Interceptor("completion-pool-worker", "multiprocessing.pool", record_reads_in_pool_workers)
EXECUTOR_WORKER = Interceptor("completion-executor-worker", "concurrent.futures.process", record_reads_in_pool_workers)
POOL = Interceptor("completion-pool", "multiprocessing.pool", intercept_imap_unordered)
