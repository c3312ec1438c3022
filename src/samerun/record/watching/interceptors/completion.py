"""What finishes first: results taken from queues and pools in the order in which they come.

With the pin `in-order`, results of tasks are taken in the order asked for. With the pin `serial` too, and tasks run
when they are submitted; whoever takes something out of a queue of limited size waits until it is full again: a thread
that fills it, as data loaders of one's own do, then runs in step with the one that empties it.
"""

from __future__ import annotations

import threading
import time
from typing import Any
from weakref import WeakKeyDictionary

from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.watching import sites
from samerun.record.watching.completion_order import InTurn, Numbers, note, note_done, takes_in_order
from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.recorder import Recorder


def install_queue(recorder: Recorder, queue: Any) -> None:
    """`queue.Queue.get` called by the program itself."""
    wrap_attribute(queue.Queue, "get", lambda original: getting(recorder, original, "queue.get"))
    if pins.SERIAL in recorder.config.pins:
        steps = InStep()
        wrap_attribute(queue.Queue, "put", steps.putting)
        wrap_attribute(queue.Queue, "get", steps.getting)


class InStep:
    """Fills queues of limited size again before what was taken out of them is used."""

    def __init__(self) -> None:
        self.fillers: WeakKeyDictionary[Any, set[threading.Thread]] = WeakKeyDictionary()
        self.failed: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
        """Queues that were once waited for in vain: who fills them waits for something else."""

    def putting(self, original: Any) -> Any:
        def put(queue: Any, *args: Any, **kwargs: Any) -> None:
            if queue.maxsize > 0 and sites.called_by_user(("queue",)):
                self.fillers.setdefault(queue, set()).add(threading.current_thread())
            original(queue, *args, **kwargs)

        return put

    def getting(self, original: Any) -> Any:
        def get(queue: Any, *args: Any, **kwargs: Any) -> Any:
            item = original(queue, *args, **kwargs)
            if queue.maxsize > 0 and queue not in self.failed and sites.called_by_user(("queue",)):
                self.wait(queue)
            return item

        return get

    def wait(self, queue: Any) -> None:
        for _ in range(int(SERIAL_SECONDS / POLL_SECONDS)):
            beside = self.fillers.get(queue, set()) - {threading.current_thread()}
            if queue.full() or not any(thread.is_alive() for thread in beside):
                return
            time.sleep(POLL_SECONDS)
        self.failed[queue] = True


def install_process_queue(recorder: Recorder, queues: Any) -> None:
    """`multiprocessing.Queue.get` and `SimpleQueue.get`."""
    for kind in (queues.Queue, queues.SimpleQueue):
        wrap_attribute(kind, "get", lambda original: getting(recorder, original, "multiprocessing.Queue.get"))


def getting(recorder: Recorder, original: Any, name: str) -> Any:
    def get(self: Any, *args: Any, **kwargs: Any) -> Any:
        item = original(self, *args, **kwargs)
        if not recorder.thread.inside_samerun and not recorder.stopped:
            note(recorder, name, item)
        return item

    return get


def install_futures(recorder: Recorder, futures: Any) -> None:
    """`concurrent.futures.as_completed`: the positions, in the order of completion. `wait`: what it says is done."""
    in_turn = takes_in_order(recorder)
    numbers = Numbers()

    def making(original: Any) -> Any:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            numbers.of(self)

        return __init__

    def waiting(original: Any) -> Any:
        def wait(fs: Any, timeout: float | None = None, return_when: str = futures.ALL_COMPLETED) -> Any:
            given = list(fs)
            if in_turn and given and return_when == futures.FIRST_COMPLETED:
                first = min(given, key=numbers.of)
                found = original([first], timeout)
                found = type(found)(found.done, found.not_done | (set(given) - {first}))
            else:
                found = original(given, timeout, return_when)
            note_done(recorder, "concurrent.futures.wait", map(numbers.of, found.done))
            return type(found)(InTurn(found.done, numbers.of), found.not_done) if in_turn else found

        return wait

    def completing(original: Any) -> Any:
        def as_completed(fs: Any, timeout: float | None = None) -> Any:
            given = list(fs)
            at = {id(future): number for number, future in enumerate(given)}
            for future in in_order(given, timeout) if in_turn else original(given, timeout):
                position = str(at.get(id(future))).encode()
                recorder.emit_host_event(f.COMPLETION, "as_completed", value=position, user_only=True)
                yield future

        return as_completed

    def in_order(given: list[Any], timeout: float | None) -> Any:
        for future in given:
            future.exception(timeout)
            yield future

    wrap_attribute(futures, "as_completed", completing)
    wrap_attribute(futures, "wait", waiting)
    wrap_attribute(futures._base.Future, "__init__", making)


def install_executor(recorder: Recorder, thread: Any) -> None:
    """`ThreadPoolExecutor.submit`: only changed by the pin, which waits for each task."""
    if pins.SERIAL not in recorder.config.pins:
        return

    def submitting(original: Any) -> Any:
        def submit(self: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            future = original(self, function, *args, **kwargs)
            try:
                future.exception(SERIAL_SECONDS)
            except Exception:  # it waits for something else, or was cancelled: the program's own affair
                pass
            return future

        return submit

    wrap_attribute(thread.ThreadPoolExecutor, "submit", submitting)


def install_pool(recorder: Recorder, pool: Any) -> None:
    """`Pool.imap_unordered`, of processes and of threads."""

    def unordered(original: Any) -> Any:
        def imap_unordered(self: Any, *args: Any, **kwargs: Any) -> Any:
            made = self.imap if takes_in_order(recorder) else original.__get__(self)
            for item in made(*args, **kwargs):
                note(recorder, "imap_unordered", item)
                yield item

        return imap_unordered

    wrap_attribute(pool.Pool, "imap_unordered", unordered)


SERIAL_SECONDS, POLL_SECONDS = 3.0, 0.002

INTERCEPTOR = Interceptor("completion-queue", "queue", install_queue)
IN_PROCESSES = Interceptor("completion-process-queue", "multiprocessing.queues", install_process_queue)
IN_FUTURES = Interceptor("completion-futures", "concurrent.futures", install_futures)
IN_EXECUTOR = Interceptor("completion-executor", "concurrent.futures.thread", install_executor)
IN_POOL = Interceptor("completion-pool", "multiprocessing.pool", install_pool)
