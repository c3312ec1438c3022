"""Threads and processes: how they start, are named, wait for each other, fork and end.

Each thread gets a role that is the same from run to run, and the operator mode, which is per thread. A trace must be
complete before its process ends, and split at a fork. With the pin `serial`, threads and processes that the program
starts run one after the other. For `samerun check --double` the points where threads wait for each other are counted:
locks of a condition, `join`, `sleep`.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from samerun.base import hooks
from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.watching import stack_frames, thread_state
from samerun.record.watching.interceptor import Interceptor, begin_recording_in_thread, wrap_attribute
from samerun.record.watching.recorder import Recorder
from samerun.record.watching.serial_waits import (
    emit_not_serial,
    read_cpu_seconds_of_process,
    wait_for_program,
    wait_while_working,
)


def intercept_thread_start(recorder: Recorder, threading: Any) -> None:
    """Wrap the starting of threads."""
    start, bootstrap = threading.Thread.start, threading.Thread._bootstrap_inner

    serial = pins.SERIAL in recorder.config.pins

    def start_with_role(self: Any) -> None:
        self._samerun_role = recorder.count_child_and_make_thread_role(stable_thread_name(self))
        start(self)
        waits = serial and stack_frames.is_called_by_user()
        if waits and not wait_while_working(self.join, lambda: not self.is_alive()):
            emit_not_serial(recorder)

    def run_with_role(self: Any) -> None:
        role = getattr(self, "_samerun_role", "")
        if role:
            begin_recording_in_thread(recorder, role)
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


THREADS = Interceptor("threads", "threading", intercept_thread_start)


def intercept_thread_waits_if_doubling(recorder: Recorder, threading: Any) -> None:
    """Queues, futures, events, semaphores and barriers are made of conditions."""
    if recorder.config.executions:
        wrap_attribute(threading.Condition, "__enter__", wrap_to_count_wait)
        wrap_attribute(threading.Event, "is_set", wrap_to_count_wait)
        wrap_attribute(threading.Thread, "join", wrap_to_count_wait)


def intercept_sleep_if_doubling(recorder: Recorder, time: Any) -> None:
    """A program that polls sleeps in between."""
    if recorder.config.executions:
        wrap_attribute(time, "sleep", wrap_to_count_wait)


def wrap_to_count_wait(original: Callable[..., Any]) -> Callable[..., Any]:
    def wait(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            thread_state.count_wait()

    return wait


WAITS = Interceptor("waits", "threading", intercept_thread_waits_if_doubling)
WAITS_IN_TIME = Interceptor("waits-time", "time", intercept_sleep_if_doubling)


GLOO_THREAD = "pt_gloo_runloop"
REST_SECONDS = 0.005
"""Between two looks at gloo's threads: they are at rest when none of them was running in three looks."""
MAX_REST_SECONDS = 2.0


def wait_for_gloo_threads_to_rest(proc_task_folder: Path = Path("/proc/self/task")) -> None:
    """Let the threads of gloo release the tensors of the last collectives while the interpreter is still there.

    A thread that releases one later is ended in the middle of a destructor, and the process aborts (before Python 3.14;
    pytorch issue 190489). 2 of 100 sharded programs end like that alone; here it would pass for a difference of runs.
    """
    looks_at_rest = 0
    for _ in range(round(MAX_REST_SECONDS / REST_SECONDS)):
        states = read_states_of_threads(GLOO_THREAD, proc_task_folder)
        looks_at_rest = 0 if "R" in states else looks_at_rest + 1
        if not states or looks_at_rest > 2:
            return
        thread_state.unwatched_sleep(REST_SECONDS)  # it lets the interpreter's lock go, for which they may wait


def read_states_of_threads(name: str, proc_task_folder: Path) -> str:
    """A letter for each thread of this process with that name: R for a running one; proc_pid_stat(5). "" off Linux."""
    states = ""
    for stat in sorted(proc_task_folder.glob("*/stat")):
        with contextlib.suppress(OSError):  # a thread that has just ended
            command, _, state = stat.read_text(encoding="utf-8", errors="replace").rpartition(") ")
            states += state[0] if command.endswith(f"({name}") else ""
    return states


def finish_trace_at_exit(recorder: Recorder) -> None:
    """At exit. Python ends a program that Ctrl-C ended by the signal itself, unless code was run from a string since.

    What is imported for the end of a trace does that (`dataclasses`); a string that raises it once more undoes it.
    """
    recorder.finish()
    wait_for_gloo_threads_to_rest()
    if getattr(sys, "last_type", None) is KeyboardInterrupt and not hasattr(sys, "ps1"):
        try:
            exec("raise KeyboardInterrupt")
        except KeyboardInterrupt:
            pass


def intercept_exits_and_forks(recorder: Recorder, os: Any) -> None:
    """Finish the trace at exit and before `os._exit`; begin another in a forked child."""
    hooks.register_in_reserved_atexit_slot(lambda: finish_trace_at_exit(recorder))

    def wrap_exit(original: Any) -> Any:
        def _exit(status: int) -> Any:
            try:
                recorder.finish()
            finally:
                original(status)

        return _exit

    wrap_attribute(os, "_exit", wrap_exit)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=recorder.flush_and_count_fork, after_in_child=recorder.begin_new_trace_in_forked_child
        )

    def wrap_exec(original: Any) -> Any:
        def execute(*args: Any, **kwargs: Any) -> Any:
            if recorder.writer is not None:
                recorder.writer.flush()
            return original(*args, **kwargs)

        return execute

    for name in ("execv", "execve"):
        wrap_attribute(os, name, wrap_exec)


EXITS = Interceptor("exits", "os", intercept_exits_and_forks)


def reserve_trace_space_before_file_size_limit(recorder: Recorder, resource: Any) -> None:
    """A program that limits the size of its files would limit its trace, too."""

    def wrap_limit(original: Any) -> Any:
        def setrlimit(*args: Any) -> Any:
            if len(args) == 2 and args[0] == resource.RLIMIT_FSIZE:
                writer = recorder.writer or recorder.open_writer()
                if writer is not None:
                    writer.try_reserve_and_map_space()
            return original(*args)

        return setrlimit

    wrap_attribute(resource, "setrlimit", wrap_limit)


FILE_SIZE_LIMIT = Interceptor("file-size-limit", "resource", reserve_trace_space_before_file_size_limit)


def set_default_start_method_if_configured(recorder: Recorder, context_module: Any) -> None:
    """Replace the context that stands for Python's own choice; what a program sets itself stays."""
    wanted = recorder.config.start_method
    if wanted is None:
        return
    default = context_module._default_context
    default._default_context = context_module._concrete_contexts[wanted]


START_METHOD = Interceptor("start-method", "multiprocessing.context", set_default_start_method_if_configured)


TORCH_SPAWN = "torch.multiprocessing.spawn"
"""What it starts, the program has asked for."""


def intercept_process_start(recorder: Recorder, process: Any) -> None:
    serial = pins.SERIAL in recorder.config.pins

    def wrap_start(original: Any) -> Any:
        def start(self: Any) -> None:
            by_user = stack_frames.is_called_by_user()
            if by_user or getattr(getattr(self, "_target", None), "__module__", "") == TORCH_SPAWN:
                recorder.emit_host_event(f.FACT, f.PROCESS_STARTED, only_at_user_code=True, thin_repeats=True)
            original(self)
            if serial and by_user:
                recorder.thread.inside_samerun += 1
                try:
                    has_ended = wait_while_working(
                        self.join, lambda: self.exitcode is not None, lambda: read_cpu_seconds_of_process(self.pid)
                    )
                finally:
                    recorder.thread.inside_samerun -= 1
                if not has_ended:
                    emit_not_serial(recorder)

        return start

    wrap_attribute(process.BaseProcess, "start", wrap_start)


def intercept_program_start(recorder: Recorder, subprocess: Any) -> None:
    """`Popen` where the program itself makes one, and does not wait for it as `subprocess.run` does."""
    serial = pins.SERIAL in recorder.config.pins

    def wrap_init(original: Any) -> Any:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            by_user = stack_frames.is_called_by_user()
            if by_user:  # before: the programs take their roles from what this process is by then
                recorder.emit_host_event(f.FACT, f.PROGRAM_STARTED, only_at_user_code=True, thin_repeats=True)
            original(self, *args, **kwargs)
            if by_user and serial:
                has_ended = wait_while_working(
                    lambda seconds: wait_for_program(self, seconds),
                    lambda: self.returncode is not None,
                    lambda: read_cpu_seconds_of_process(self.pid),
                )
                if not has_ended:
                    emit_not_serial(recorder)

        return __init__

    wrap_attribute(subprocess.Popen, "__init__", wrap_init)


def record_process_pools(recorder: Recorder, pools: Any) -> None:
    """That the program makes a pool of processes; what they do is recorded if they compute."""

    def wrap_init(original: Any) -> Any:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            if stack_frames.is_called_by_user(("multiprocessing",)):
                recorder.emit_host_event(f.FACT, f.POOL_STARTED, only_at_user_code=True, thin_repeats=True)
            original(self, *args, **kwargs)

        return __init__

    for name in ("Pool", "ProcessPoolExecutor"):
        if hasattr(pools, name):
            wrap_attribute(getattr(pools, name), "__init__", wrap_init)


def flush_trace_before_sending(recorder: Recorder, connection: Any) -> None:
    """What led to a message must be in the trace before it is sent: its receiver may kill the sender at once, as a pool
    that ends kills its workers.
    """

    def wrap_send(original: Any) -> Any:
        def _send_bytes(self: Any, *args: Any, **kwargs: Any) -> Any:
            if recorder.writer is not None:
                recorder.writer.flush()
            return original(self, *args, **kwargs)

        return _send_bytes

    wrap_attribute(connection.Connection, "_send_bytes", wrap_send)


CHILD_PROGRAMS = Interceptor("child-programs", "subprocess", intercept_program_start)
PROCESS_POOLS = Interceptor("process-pools", "multiprocessing.pool", record_process_pools)
PROCESS_EXECUTORS = Interceptor("process-executors", "concurrent.futures.process", record_process_pools)
SENDING = Interceptor("sending", "multiprocessing.connection", flush_trace_before_sending)
CHILD_PROCESSES = Interceptor("child-processes", "multiprocessing.process", intercept_process_start)
