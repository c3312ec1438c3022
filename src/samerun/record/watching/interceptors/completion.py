"""What finishes first: results taken from queues and pools in the order in which they arrive.

With the pin `in-order`, results of tasks are taken in the order in which the tasks were submitted. With the pin
`serial` too, and tasks run when they are submitted; whoever takes an item from a queue of limited size then waits
until it is full again, so that a thread which fills it (a hand-written data loader) runs in step with it.
"""

from __future__ import annotations

import threading
import time
from typing import Any
from weakref import WeakKeyDictionary

from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.watching import sites
from samerun.record.watching.completion_order import (
    ObjectNumbers,
    SortedSet,
    record_completed_item,
    record_done_tasks,
    takes_results_in_submission_order,
)
from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.recorder import Recorder


def install_thread_queue(recorder: Recorder, queue: Any) -> None:
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
            if queue.maxsize > 0 and sites.called_by_user(("queue",)):
                self.fillers.setdefault(queue, set()).add(threading.current_thread())
            original(queue, *args, **kwargs)

        return put

    def wrap_get_to_wait_until_full(self, original: Any) -> Any:
        def get(queue: Any, *args: Any, **kwargs: Any) -> Any:
            item = original(queue, *args, **kwargs)
            if queue.maxsize > 0 and queue not in self.never_refilled and sites.called_by_user(("queue",)):
                self.wait_until_full(queue)
            return item

        return get

    def wait_until_full(self, queue: Any) -> None:
        for _ in range(int(SERIAL_SECONDS / POLL_SECONDS)):
            other_fillers = self.fillers.get(queue, set()) - {threading.current_thread()}
            if queue.full() or not any(thread.is_alive() for thread in other_fillers):
                return
            time.sleep(POLL_SECONDS)
        self.never_refilled[queue] = True


def install_process_queues(recorder: Recorder, queues: Any) -> None:
    """`multiprocessing.Queue.get` and `SimpleQueue.get`."""
    for kind in (queues.Queue, queues.SimpleQueue):
        wrap_attribute(
            kind, "get", lambda original: wrap_get_to_record_item(recorder, original, "multiprocessing.Queue.get")
        )


def wrap_get_to_record_item(recorder: Recorder, original: Any, event_name: str) -> Any:
    def get(self: Any, *args: Any, **kwargs: Any) -> Any:
        item = original(self, *args, **kwargs)
        if not recorder.thread.inside_samerun and not recorder.stopped:
            record_completed_item(recorder, event_name, item)
        return item

    return get


def install_future_completion(recorder: Recorder, futures: Any) -> None:
    """`concurrent.futures.as_completed`: the positions, in the order of completion. `wait`: which futures are done."""
    in_order = takes_results_in_submission_order(recorder)
    numbers = ObjectNumbers()

    def wrap_future_init(original: Any) -> Any:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            numbers.assign_number(self)

        return __init__

    def wrap_to_count_wait(original: Any) -> Any:
        def wait(fs: Any, timeout: float | None = None, return_when: str = futures.ALL_COMPLETED) -> Any:
            futures_given = list(fs)
            if in_order and futures_given and return_when == futures.FIRST_COMPLETED:
                first = min(futures_given, key=numbers.assign_number)
                found = original([first], timeout)
                found = type(found)(found.done, found.not_done | (set(futures_given) - {first}))
            else:
                found = original(futures_given, timeout, return_when)
            record_done_tasks(recorder, "concurrent.futures.wait", map(numbers.assign_number, found.done))
            return type(found)(SortedSet(found.done, numbers.assign_number), found.not_done) if in_order else found

        return wait

    def wrap_as_completed(original: Any) -> Any:
        def as_completed(fs: Any, timeout: float | None = None) -> Any:
            futures_given = list(fs)
            at = {id(future): number for number, future in enumerate(futures_given)}
            for future in yield_in_order(futures_given, timeout) if in_order else original(futures_given, timeout):
                position = str(at.get(id(future))).encode()
                recorder.emit_host_event(f.COMPLETION, "as_completed", value=position, user_only=True)
                yield future

        return as_completed

    def yield_in_order(futures_given: list[Any], timeout: float | None) -> Any:
        for future in futures_given:
            future.exception(timeout)
            yield future

    wrap_attribute(futures, "as_completed", wrap_as_completed)
    wrap_attribute(futures, "wait", wrap_to_count_wait)
    wrap_attribute(futures._base.Future, "__init__", wrap_future_init)


def install_serial_submit(recorder: Recorder, thread: Any) -> None:
    """`ThreadPoolExecutor.submit`: only changed by the pin, which waits for each task."""
    if pins.SERIAL not in recorder.config.pins:
        return

    def wrap_submit(original: Any) -> Any:
        def submit(self: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            future = original(self, function, *args, **kwargs)
            try:
                future.exception(SERIAL_SECONDS)
            except Exception:  # it waits for something else or was cancelled, which is the program's business
                pass
            return future

        return submit

    wrap_attribute(thread.ThreadPoolExecutor, "submit", wrap_submit)


def install_imap_unordered(recorder: Recorder, pool: Any) -> None:
    """`Pool.imap_unordered`, of processes and of threads."""

    def wrap_imap_unordered(original: Any) -> Any:
        def imap_unordered(self: Any, *args: Any, **kwargs: Any) -> Any:
            take = self.imap if takes_results_in_submission_order(recorder) else original.__get__(self)
            for item in take(*args, **kwargs):
                record_completed_item(recorder, "imap_unordered", item)
                yield item

        return imap_unordered

    wrap_attribute(pool.Pool, "imap_unordered", wrap_imap_unordered)


SERIAL_SECONDS, POLL_SECONDS = 3.0, 0.002

INTERCEPTOR = Interceptor("completion-queue", "queue", install_thread_queue)
IN_PROCESSES = Interceptor("completion-process-queue", "multiprocessing.queues", install_process_queues)
IN_FUTURES = Interceptor("completion-futures", "concurrent.futures", install_future_completion)
IN_EXECUTOR = Interceptor("completion-executor", "concurrent.futures.thread", install_serial_submit)
IN_POOL = Interceptor("completion-pool", "multiprocessing.pool", install_imap_unordered)
