"""What is ready or done first, where the program itself asks: it selects among files, or polls processes and tasks.

With the pin `in-order` the first one that was registered or listed is waited for, and it alone is handed over; what is
polled is waited for as well. Who waits in vain is given what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from samerun.record.trace import format as f
from samerun.record.watching import stack_frames
from samerun.record.watching.interceptor import Interceptor, pins_results_to_submission_order, wrap_attribute
from samerun.record.watching.object_numbers import ObjectNumbers
from samerun.record.watching.recorder import Recorder
from samerun.record.watching.serial_waits import (
    SERIAL_SECONDS,
    read_cpu_seconds_of_process,
    wait_for_program,
    wait_while_working,
)

SELECTORS = ("SelectSelector", "PollSelector", "EpollSelector", "DevpollSelector", "KqueueSelector")


def is_asked_by_program(recorder: Recorder) -> bool:
    """Whether the user's code made the call: asyncio, pools and servers select and poll for themselves."""
    return not (recorder.stopped or recorder.thread.inside_samerun) and stack_frames.is_called_by_user()


def record_ready_positions(recorder: Recorder, event_name: str, listed: Sequence[Any], ready: Sequence[Any]) -> None:
    """Record which of what was listed is ready, by position."""
    positions = [at for at, item in enumerate(listed) if any(item is one for one in ready)]
    recorder.emit_host_event(
        f.COMPLETION, event_name, value=repr(positions).encode(), only_at_user_code=True, thin_repeats=True
    )


def intercept_selectors(recorder: Recorder, selectors: Any) -> None:
    in_order = pins_results_to_submission_order(recorder)

    def wait_for_first_registered(selector: Any) -> list[Any]:
        first = next(iter(selector.get_map().values()), None)
        if first is None:
            return []
        recorder.thread.inside_samerun += 1
        try:
            with selectors.SelectSelector() as alone:
                alone.register(first.fd, first.events)
                return [(first, events) for _, events in alone.select(SERIAL_SECONDS)]
        finally:
            recorder.thread.inside_samerun -= 1

    def wrap_select(original: Any) -> Any:
        def select(self: Any, timeout: float | None = None) -> Any:
            if not is_asked_by_program(recorder):
                return original(self, timeout)
            ready = (wait_for_first_registered(self) if in_order else []) or original(self, timeout)
            listed = list(self.get_map().values())
            record_ready_positions(recorder, "selector.select", listed, [key for key, _ in ready])
            return ready

        return select

    for name in SELECTORS:
        if "select" in vars(getattr(selectors, name, object)):
            wrap_attribute(getattr(selectors, name), "select", wrap_select)


def intercept_select(recorder: Recorder, module: Any) -> None:
    in_order = pins_results_to_submission_order(recorder)

    def wrap_select(original: Any) -> Any:
        def select(rlist: Any, wlist: Any, xlist: Any, *timeout: Any) -> Any:
            if not is_asked_by_program(recorder):
                return original(rlist, wlist, xlist, *timeout)
            listed = list(rlist)
            found = original(listed[:1], [], [], SERIAL_SECONDS) if in_order and listed else ([], [], [])
            if not found[0]:
                found = original(listed, wlist, xlist, *timeout)
            record_ready_positions(recorder, "select.select", listed, found[0])
            return found

        return select

    wrap_attribute(module, "select", wrap_select)


def intercept_connection_wait(recorder: Recorder, connection: Any) -> None:
    """`multiprocessing.connection.wait`, of connections and of sentinels of processes."""
    in_order = pins_results_to_submission_order(recorder)

    def wrap_wait(original: Any) -> Any:
        def wait(object_list: Any, timeout: float | None = None) -> Any:
            if not is_asked_by_program(recorder):
                return original(object_list, timeout)
            listed = list(object_list)
            found = original(listed[:1], SERIAL_SECONDS) if in_order and listed else []
            found = found or original(listed, timeout)
            record_ready_positions(recorder, "connection.wait", listed, found)
            return found

        return wait

    wrap_attribute(connection, "wait", wrap_wait)


class PolledObjects:
    """Records when polled processes and tasks are seen to be done, and in which order; waits for each if pinned."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.in_order = pins_results_to_submission_order(recorder)
        self.numbers = ObjectNumbers()
        self.polls: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        """How often each was found not to be done yet."""
        self.done: WeakSet[Any] = WeakSet()
        self.awaited: WeakSet[Any] = WeakSet()

    def make_wrapper(
        self,
        event_name: str,
        is_done: Callable[[Any], bool],
        wait: Callable[[Any, float], object],
        read_cpu_seconds: Callable[[Any], float] | None = None,
    ) -> Callable[[Any], Any]:
        """For a method without arguments that is polled. `is_done`: of what it returned."""

        def wrap(original: Any) -> Any:
            def poll(polled: Any) -> Any:
                if not is_asked_by_program(self.recorder):
                    return original(polled)
                number = self.numbers.get_or_assign_number(polled)
                if self.in_order and polled not in self.awaited:
                    self.awaited.add(polled)
                    cpu_seconds = () if read_cpu_seconds is None else (lambda: read_cpu_seconds(polled),)
                    wait_while_working(
                        lambda seconds: wait(polled, seconds), lambda: is_done(original(polled)), *cpu_seconds
                    )
                found = original(polled)
                polls = self.polls.get(polled, 0)
                if not is_done(found):
                    self.polls[polled] = polls + 1
                elif polled not in self.done:
                    self.done.add(polled)
                    value = f"{number} after {polls}".encode()
                    self.recorder.emit_host_event(f.COMPLETION, event_name, value=value, only_at_user_code=True)
                return found

            return poll

        return wrap


def intercept_polls_of_programs(recorder: Recorder, subprocess: Any) -> None:
    wrapper = PolledObjects(recorder).make_wrapper(
        "Popen.poll",
        lambda code: code is not None,
        wait_for_program,
        lambda process: read_cpu_seconds_of_process(process.pid),
    )
    wrap_attribute(subprocess.Popen, "poll", wrapper)


def intercept_polls_of_processes(recorder: Recorder, process: Any) -> None:
    wrapper = PolledObjects(recorder).make_wrapper(
        "Process.is_alive",
        lambda alive: not alive,
        lambda process, seconds: process.join(seconds),
        lambda process: read_cpu_seconds_of_process(process.pid),
    )
    wrap_attribute(process.BaseProcess, "is_alive", wrapper)


def intercept_polls_of_pool_results(recorder: Recorder, pool: Any) -> None:
    wrapper = PolledObjects(recorder).make_wrapper(
        "AsyncResult.ready", bool, lambda result, seconds: result.wait(seconds)
    )
    wrap_attribute(pool.ApplyResult, "ready", wrapper)


def intercept_polls_of_futures(recorder: Recorder, futures: Any) -> None:
    def wait(future: Any, seconds: float) -> None:
        futures._base.wait([future], seconds)

    wrap_attribute(futures._base.Future, "done", PolledObjects(recorder).make_wrapper("Future.done", bool, wait))


SELECTORS_SELECT = Interceptor("readiness-selectors", "selectors", intercept_selectors)
SELECT = Interceptor("readiness-select", "select", intercept_select)
CONNECTION_WAIT = Interceptor("readiness-connections", "multiprocessing.connection", intercept_connection_wait)
PROGRAMS = Interceptor("readiness-programs", "subprocess", intercept_polls_of_programs)
PROCESSES = Interceptor("readiness-processes", "multiprocessing.process", intercept_polls_of_processes)
POOL_RESULTS = Interceptor("readiness-pool", "multiprocessing.pool", intercept_polls_of_pool_results)
FUTURES = Interceptor("readiness-futures", "concurrent.futures", intercept_polls_of_futures)
