"""The ways a process ends or multiplies: the trace must be whole before it ends, and split at a fork."""

from __future__ import annotations

import sys
from typing import Any

from samerun.base import first_at_exit
from samerun.record.watching.interceptor import Interceptor, replace
from samerun.record.watching.recorder import Recorder


def finish(recorder: Recorder) -> None:
    """At exit. Python ends a program that Ctrl-C ended by the signal itself, unless code was run from a string since.

    What is imported for the end of a trace does that (`dataclasses`); a string that raises it once more undoes it.
    """
    recorder.finish()
    if getattr(sys, "last_type", None) is KeyboardInterrupt and not hasattr(sys, "ps1"):
        try:
            exec("raise KeyboardInterrupt")
        except KeyboardInterrupt:
            pass


def install(recorder: Recorder, os: Any) -> None:
    """Finish the trace at exit and before `os._exit`; begin another in a forked child."""
    first_at_exit.register(lambda: finish(recorder))

    def leaving(original: Any) -> Any:
        def _exit(status: int) -> Any:
            try:
                recorder.finish()
            finally:
                original(status)

        return _exit

    replace(os, "_exit", leaving)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=recorder.before_fork, after_in_child=recorder.in_child)

    def replaces_process(original: Any) -> Any:
        def execute(*args: Any, **kwargs: Any) -> Any:
            if recorder.writer is not None:
                recorder.writer.flush()
            return original(*args, **kwargs)

        return execute

    for name in ("execv", "execve"):
        replace(os, name, replaces_process)


INTERCEPTOR = Interceptor("exits", "os", install)
