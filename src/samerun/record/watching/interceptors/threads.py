"""Threads: each gets a role that is the same from run to run, and the operator mode, which is per thread.

For `samerun check --double` also the points where threads wait for each other: locks of a condition, `join`, `sleep`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.watching import sites
from samerun.record.watching.double import wait_counter
from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.recorder import Recorder

SERIAL_SECONDS = 3.0
"""With the pin `serial`, starting a thread waits at most so long for it to end."""


def install_thread_roles(recorder: Recorder, threading: Any) -> None:
    """Wrap the starting of threads."""
    start, bootstrap = threading.Thread.start, threading.Thread._bootstrap_inner

    serial = pins.SERIAL in recorder.config.pins

    def start_with_role(self: Any) -> None:
        self._samerun_role = recorder.next_child_thread_role(stable_thread_name(self))
        start(self)
        if serial and sites.called_by_user():
            self.join(SERIAL_SECONDS)  # a thread that waits for others then runs beside them

    def run_with_role(self: Any) -> None:
        role = getattr(self, "_samerun_role", "")
        if role:
            try:
                recorder.begin_thread(role)
                if recorder.enter_operators is not None and recorder.recording:
                    recorder.enter_operators()
            except Exception as error:
                recorder.stop(f"samerun's recorder failed in a new thread: {error!r}")
        try:
            bootstrap(self)
        finally:
            leave_operators()

    def leave_operators() -> None:
        """Leave the mode while the interpreter is still there.

        Torch would drop it when the system's thread ends, and would need the interpreter for that: where
        the program ends just then, the process is aborted.
        """
        mode, recorder.thread.mode = recorder.thread.mode, None
        if mode is not None:
            try:
                mode.__exit__(None, None, None)
            except Exception as error:
                recorder.stop(f"samerun's recorder failed in a thread that ends: {error!r}")

    start_with_role.__doc__ = start.__doc__
    threading.Thread.start = start_with_role
    threading.Thread._bootstrap_inner = run_with_role


def stable_thread_name(thread: Any) -> str:
    """A thread's own name without the counters that Python adds; pool threads share one name."""
    name = re.sub(r"^Thread-\d+( \((.*)\))?$", r"\2", thread.name) or "thread"
    target = getattr(thread, "_target", None)
    pool = getattr(target, "__module__", "") == "concurrent.futures.thread" or re.match(r"^Thread-Pool.*_\d+$", name)
    if pool or type(thread).__name__ == "DummyProcess" or name == "worker":
        return f.POOL_THREAD
    return name


INTERCEPTOR = Interceptor("threads", "threading", install_thread_roles)


def install_wait_counting(recorder: Recorder, threading: Any) -> None:
    """Queues, futures, events, semaphores and barriers are made of conditions."""
    if recorder.config.executions:
        wrap_attribute(threading.Condition, "__enter__", wrap_to_count_wait)
        wrap_attribute(threading.Event, "is_set", wrap_to_count_wait)
        wrap_attribute(threading.Thread, "join", wrap_to_count_wait)


def install_sleep_waits(recorder: Recorder, time: Any) -> None:
    """A program that polls sleeps in between."""
    if recorder.config.executions:
        wrap_attribute(time, "sleep", wrap_to_count_wait)


def wrap_to_count_wait(original: Callable[..., Any]) -> Callable[..., Any]:
    def wait(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            wait_counter.count_wait()

    return wait


WAITS = Interceptor("waits", "threading", install_wait_counting)
WAITS_IN_TIME = Interceptor("waits-time", "time", install_sleep_waits)
