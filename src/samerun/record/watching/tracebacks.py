"""A program that fails shows its own traceback: without the lines of ours that stand between it and torch."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from samerun.record.watching.sites import RECORD
from samerun.record.watching.unseen import MARK


def install() -> None:
    """Python's own hook, with our frames left out. A program that sets a hook of its own gets everything."""
    shown = sys.excepthook
    if shown is not sys.__excepthook__:
        return

    def excepthook(kind: Any, error: Any, traceback: Any) -> None:
        try:
            leave_out(error)
            traceback = without_ours(traceback)
        finally:
            shown(kind, error, traceback)

    # both: libraries ask whether the one is the other, to see whether a program has a hook of its own
    sys.excepthook = sys.__excepthook__ = excepthook


def leave_out(error: BaseException | None) -> None:
    """Take our frames from the traceback of an error, of those that it came of and of those it is made of."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = without_ours(one.__traceback__)
        waiting += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


def without_ours(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of the recorder.

    One that ends in them is left, because the error is then ours, unless it ends where the program's own call is
    handed on to native code.
    """
    frames = []
    at = traceback
    while at is not None:
        frames.append(at)
        at = at.tb_next
    if not frames or (_is_ours(frames[-1]) and not _hands_on(frames[-1])):
        return traceback
    made: TracebackType | None = None
    for one in reversed(frames):
        if not _is_ours(one):
            made = TracebackType(made, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return made


def _is_ours(traceback: TracebackType) -> bool:
    return traceback.tb_frame.f_code.co_filename.startswith(RECORD)


def _hands_on(traceback: TracebackType) -> bool:
    code = traceback.tb_frame.f_code
    return code.co_filename.endswith(MARK) or code.co_name == "__torch_dispatch__"
