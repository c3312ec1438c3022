"""Processes: how they start, fork and end. A trace must be complete before its process ends, and split at a fork.

With the pin `serial`, processes that the program starts with `multiprocessing` run one after the other.
"""

from __future__ import annotations

import sys
from typing import Any

from samerun.base import hooks
from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.watching import sites
from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.recorder import Recorder


def finish_trace_at_exit(recorder: Recorder) -> None:
    """At exit. Python ends a program that Ctrl-C ended by the signal itself, unless code was run from a string since.

    What is imported for the end of a trace does that (`dataclasses`); a string that raises it once more undoes it.
    """
    recorder.finish()
    if getattr(sys, "last_type", None) is KeyboardInterrupt and not hasattr(sys, "ps1"):
        try:
            exec("raise KeyboardInterrupt")
        except KeyboardInterrupt:
            pass


def install_exits_and_forks(recorder: Recorder, os: Any) -> None:
    """Finish the trace at exit and before `os._exit`; begin another in a forked child."""
    hooks.register_late_at_exit(lambda: finish_trace_at_exit(recorder))

    def wrap_exit(original: Any) -> Any:
        def _exit(status: int) -> Any:
            try:
                recorder.finish()
            finally:
                original(status)

        return _exit

    wrap_attribute(os, "_exit", wrap_exit)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=recorder.before_fork, after_in_child=recorder.after_fork_in_child)

    def wrap_exec(original: Any) -> Any:
        def execute(*args: Any, **kwargs: Any) -> Any:
            if recorder.writer is not None:
                recorder.writer.flush()
            return original(*args, **kwargs)

        return execute

    for name in ("execv", "execve"):
        wrap_attribute(os, name, wrap_exec)


EXITS = Interceptor("exits", "os", install_exits_and_forks)


def set_default_start_method(recorder: Recorder, context: Any) -> None:
    """Replace the context that stands for Python's own choice; what a program sets itself stays."""
    wanted = recorder.config.start_method
    if wanted is None:
        return
    default = context._default_context
    default._default_context = context._concrete_contexts[wanted]


START_METHOD = Interceptor("start-method", "multiprocessing.context", set_default_start_method)


SERIAL_SECONDS = 3.0
"""Longest wait for a started process: one that waits for others must be allowed to run beside them."""


def install_process_start(recorder: Recorder, process: Any) -> None:
    serial = pins.SERIAL in recorder.config.pins

    def wrap_start(original: Any) -> Any:
        def start(self: Any) -> None:
            by_user = sites.called_by_user()
            if by_user:
                recorder.emit_host_event(f.FACT, "Process.start", user_only=True, thin=True)
            original(self)
            if serial and by_user:
                self.join(SERIAL_SECONDS)

        return start

    wrap_attribute(process.BaseProcess, "start", wrap_start)


CHILD_PROCESSES = Interceptor("child-processes", "multiprocessing.process", install_process_start)
