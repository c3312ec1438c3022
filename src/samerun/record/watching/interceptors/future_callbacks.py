"""Callbacks of torch's futures: what the hooks of DistributedDataParallel do once a collective is complete.

torch calls them in the thread that completes the future, which may be one of gloo's, or where they are handed over if
it is complete by then: time decides. Here they run in threads of their own, whose operators are compared as those of a
pool are, and whoever calls one waits for it as before.
"""

from __future__ import annotations

import _thread
import itertools
from _queue import SimpleQueue  # the module's own may be watched
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from samerun.record.digests.storages import WrittenByCollective
from samerun.record.trace import format as f
from samerun.record.watching import thread_state
from samerun.record.watching.completion_events import make_recording_callback
from samerun.record.watching.interceptor import Interceptor, begin_recording_in_thread, wrap_attribute
from samerun.record.watching.recorder import Recorder

FUTURE_CALLBACK = "torch.futures.Future.then"
"""Name of the event that a callback is called."""
ROLE = f"main/{f.POOL_THREAD}#callbacks"
POLL_SECONDS, MAX_END_SECONDS = 0.002, 2.0


class CallbackThreads:
    """Threads that run callbacks, each one at a time. More are started when all are busy: callbacks wait for others."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.idle: list[SimpleQueue[Any]] = []
        self.busy: set[Any] = set()

    def run(self, callback: Callable[..., Any], *args: Any) -> Any:
        """Call it in one of the threads, and return what it returns or raise what it raises."""
        import torch

        if self.recorder.stopped:
            return callback(*args)
        try:
            inbox = self.idle.pop()
        except IndexError:
            inbox = SimpleQueue()
            _thread.start_new_thread(self._serve, (inbox,))
        outbox: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self.busy.add(inbox)
        inbox.put((callback, args, torch.is_grad_enabled(), outbox))
        result, error = outbox.get()
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback leads to this frame: a cycle would keep the program's tensors
        return result

    def _serve(self, inbox: SimpleQueue[Any]) -> None:
        import torch

        begin_recording_in_thread(self.recorder, ROLE)
        while True:
            callback, args, grad_enabled, outbox = inbox.get()
            result: Any = None
            failure: BaseException | None = None
            try:
                with torch.set_grad_enabled(grad_enabled):
                    result = callback(*args)
            except BaseException as error:
                failure = error
            self.busy.discard(inbox)
            self.idle.append(inbox)
            outbox.put((result, failure))
            del callback, args, result, failure, outbox  # else they would live until the next call

    def wait_until_idle(self) -> None:
        """At the end: what a callback still computes is recorded, as it is in a run where it was done earlier."""
        for _ in range(round(MAX_END_SECONDS / POLL_SECONDS)):
            if not self.busy:
                return
            thread_state.unwatched_sleep(POLL_SECONDS)

    def forget_threads(self) -> None:
        """In a forked child, which has none of them."""
        self.idle.clear()
        self.busy.clear()


def select_whole_storages(writes: Iterable[WrittenByCollective]) -> list[WrittenByCollective]:
    """Those that another thread than the main one may find complete. Of other memory the main thread may read other
    parts just then: whether it counts as written must not depend on time."""
    return [each for each in writes if each.is_whole]


def run_callbacks_in_own_threads(recorder: Recorder, futures: Any) -> None:
    import torch

    threads, numbers = CallbackThreads(recorder), itertools.count()
    writes_of_futures: WeakKeyDictionary[Any, list[WrittenByCollective]] = WeakKeyDictionary()
    """Future of a collective -> the memory that the collective writes to."""
    recorder.end_callbacks.append(threads.wait_until_idle)
    recorder.fork_callbacks.append(threads.forget_threads)

    def is_left_alone() -> bool:
        """Callbacks of collectives between GPUs are called at once, with streams of their own in that thread."""
        watches_operators = recorder.enter_operators is not None and recorder.recording
        watched = watches_operators or recorder.numbers is not None
        return not watched or recorder.stopped or torch.cuda.is_initialized()  # type: ignore[no-untyped-call]

    def wrap_to_run_callback_apart(original: Any) -> Any:
        def hand_over(self: Any, callback: Any) -> Any:
            if is_left_alone() or not callable(callback):
                return original(self, callback)
            recorder.note_order_may_vary()
            writes = select_whole_storages(writes_of_futures.get(self, ()))
            recorded = make_recording_callback(recorder, FUTURE_CALLBACK, next(numbers), callback)

            def call(future: Any) -> Any:
                recorder.note_collective_complete(writes)
                return recorded(future)

            return original(self, lambda future: threads.run(call, future))

        return hand_over

    def wrap_wait(original: Any) -> Any:
        def wait(self: Any) -> Any:
            result = original(self)
            writes = writes_of_futures.pop(self, ())
            in_main_thread = recorder.thread.number <= 0
            recorder.note_collective_complete(writes if in_main_thread else select_whole_storages(writes))
            return result

        return wait

    def wrap_get_future(original: Any) -> Any:
        def get_future(self: Any) -> Any:
            future = original(self)
            writes_of_futures[future] = recorder.take_collective_writes(self)
            return future

        return get_future

    for name in ("then", "add_done_callback"):
        wrap_attribute(torch._C.Future, name, wrap_to_run_callback_apart)
    wrap_attribute(torch._C.Future, "wait", wrap_wait)
    work = getattr(getattr(torch._C, "_distributed_c10d", None), "Work", None)
    if work is not None:
        wrap_attribute(work, "get_future", wrap_get_future)


def replace_hook_written_in_cpp(recorder: Recorder, distributed: Any) -> None:
    """In the place of one that compresses in C++: torch's own in Python computes the same bits, where it is watched."""
    import torch

    def wrap_register(original: Any) -> Any:
        def _register_builtin_comm_hook(self: Any, comm_hook_type: Any) -> None:
            is_fp16 = getattr(comm_hook_type, "name", "") == "FP16_COMPRESS"
            if not is_fp16 or recorder.stopped or torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
                original(self, comm_hook_type)
                return
            from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

            self.register_comm_hook(self.process_group, fp16_compress_hook)

        return _register_builtin_comm_hook

    wrap_attribute(distributed.DistributedDataParallel, "_register_builtin_comm_hook", wrap_register)


CPP_HOOK = Interceptor("cpp-hook", "torch.nn.parallel.distributed", replace_hook_written_in_cpp)
FUTURE_CALLBACKS = Interceptor("future-callbacks", "torch.futures", run_callbacks_in_own_threads)
