"""Threads that wait for each other, for `samerun check --double`: locks of a condition, `join`, `sleep`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from samerun.record.watching.double import waits
from samerun.record.watching.interceptor import Interceptor, replace
from samerun.record.watching.recorder import Recorder


def install(recorder: Recorder, threading: Any) -> None:
    """Queues, futures, events, semaphores and barriers are made of conditions."""
    if recorder.config.executions:
        replace(threading.Condition, "__enter__", waiting)
        replace(threading.Event, "is_set", waiting)
        replace(threading.Thread, "join", waiting)


def install_time(recorder: Recorder, time: Any) -> None:
    """A program that polls sleeps in between."""
    if recorder.config.executions:
        replace(time, "sleep", waiting)


def waiting(original: Callable[..., Any]) -> Callable[..., Any]:
    def wait(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            waits.waited()

    return wait


INTERCEPTOR = Interceptor("waits", "threading", install)
IN_TIME = Interceptor("waits-time", "time", install_time)
