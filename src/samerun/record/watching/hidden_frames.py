"""Keep the recorder's stack frames out of what a program shows: the lines that warnings name, and tracebacks.

`warnings.warn(..., stacklevel=3)` counts frames: one more, and the warning names a file of samerun's instead of the
user's line. Python skips frames whose file name holds both "importlib" and "_bootstrap", those of its own imports, so
wrappers get such a file name. Tracebacks of a program that fails are shown without the recorder's frames.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from samerun.record.watching.sites import RECORD_FOLDER

HIDDEN_SUFFIX = " (as importlib._bootstrap)"


def hide_frame_from_warnings(function: Any) -> Any:
    """The function, no longer counted where a warning is issued below it; anything else as it is."""
    code = getattr(function, "__code__", None)
    if code is not None and not code.co_filename.endswith(HIDDEN_SUFFIX):
        function.__code__ = code.replace(co_filename=code.co_filename + HIDDEN_SUFFIX)
    return function


def install_stripping_excepthook() -> None:
    """Python's own hook, with our frames left out. A program that sets a hook of its own gets everything."""
    shown = sys.excepthook
    if shown is not sys.__excepthook__:
        return

    def excepthook(kind: Any, error: Any, traceback: Any) -> None:
        try:
            strip_error_tracebacks(error)
            traceback = strip_recorder_frames(traceback)
        finally:
            shown(kind, error, traceback)

    # both: libraries ask whether the one is the other, to see whether a program has a hook of its own
    sys.excepthook = sys.__excepthook__ = excepthook


def strip_error_tracebacks(error: BaseException | None) -> None:
    """Take our frames from the traceback of an error, of those that it came of and of those it is made of."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = strip_recorder_frames(one.__traceback__)
        waiting += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


def strip_recorder_frames(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of the recorder.

    One that ends in them is left, because the error is then ours, unless it ends where the program's own call is
    handed on to native code.
    """
    frames = []
    at = traceback
    while at is not None:
        frames.append(at)
        at = at.tb_next
    if not frames or (_is_recorder_frame(frames[-1]) and not _hands_call_to_native_code(frames[-1])):
        return traceback
    made: TracebackType | None = None
    for one in reversed(frames):
        if not _is_recorder_frame(one):
            made = TracebackType(made, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return made


def _is_recorder_frame(traceback: TracebackType) -> bool:
    return traceback.tb_frame.f_code.co_filename.startswith(RECORD_FOLDER)


def _hands_call_to_native_code(traceback: TracebackType) -> bool:
    code = traceback.tb_frame.f_code
    return code.co_filename.endswith(HIDDEN_SUFFIX) or code.co_name == "__torch_dispatch__"
