"""Handlers of signals: what one raises must not be lost in the recorder.

A time limit (`signal.alarm`) or a preemption often is a handler that raises an exception. Where it arrives while the
recorder works, the recorder would take the exception for a failure of its own and the program would go on without it.
So the signal is raised again until the recorder has returned to the program.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

from samerun.base.user_code import SAMERUN_FOLDER
from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.recorder import Recorder
from samerun.record.watching.stack_frames import LIBRARY, classify_code

_RECORDING_FILES = tuple(
    f"{SAMERUN_FOLDER}record/{name}" for name in ("trace/", "digests/", "watching/operator_mode.py")
)
_CALLS_OPERATOR = "__torch_dispatch__"
"""The one function of these files that the program's own code runs inside of."""


def defer_new_signal_handlers_while_recording(recorder: Recorder, signal: Any) -> None:
    """Wrap each handler that the program installs; the program is shown its own."""

    def must_wait(number: int, interrupted: FrameType | None) -> bool:
        return _is_recording(recorder, interrupted)

    def show_own_handler(installed: Any) -> Any:
        pair = getattr(installed, "__self__", None)
        return pair[1] if type(pair) is tuple and len(pair) == 2 and pair[0] is must_wait else installed

    def make_signal(install: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        def signal(number: Any, handler: Any, /) -> Any:
            # asyncio's handler does nothing: its loop reads each signal from a descriptor, and would read it twice.
            if callable(handler) and not str(getattr(handler, "__module__", "")).startswith(("_signal", "asyncio")):
                handler = _make_handler_that_waits_if_needed(must_wait, handler)
            return show_own_handler(install(number, handler))

        return signal

    def make_getsignal(get: Callable[[Any], Any]) -> Callable[..., Any]:
        return lambda number, /: show_own_handler(get(number))

    wrap_attribute(signal, "signal", make_signal)
    wrap_attribute(signal, "getsignal", make_getsignal)


def _make_handler_that_waits_if_needed(
    must_wait: Callable[..., bool], handler: Callable[..., Any]
) -> Callable[..., Any]:
    try:
        from samerun.record.watching import _watch  # type: ignore[attr-defined]
    except ImportError:  # it was not built, or for another Python
        return handler
    waiting: Callable[..., Any] = _watch.make_deferring_signal_handler(must_wait, handler)
    return waiting


def _is_recording(recorder: Recorder, interrupted: FrameType | None) -> bool:
    state = recorder.thread
    if state.inside_samerun or getattr(state.mode, "is_recording", False):
        return True
    frame = interrupted
    while frame is not None and classify_code(frame.f_code) == LIBRARY:
        if frame.f_code.co_filename.startswith(_RECORDING_FILES):
            return frame is interrupted or frame.f_code.co_name != _CALLS_OPERATOR
        frame = frame.f_back
    return False


HANDLERS = Interceptor("signal handlers", "_signal", defer_new_signal_handlers_while_recording)
