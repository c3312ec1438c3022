"""Tell the user's line and a way out when torch refuses an operator in deterministic mode.

Nothing is done until such an error leaves the mode, or ends the program: then a note is added to it.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

from samerun.base.user_code import is_user_code, place
from samerun.control.backward import forward

_REFUSED = re.compile(r"^(\S+) does not have a deterministic implementation")
_MARK = "samerun: "


def add_note(error: BaseException) -> None:
    """Add the note to an error of torch's deterministic mode, once; leave others alone."""
    refused = _REFUSED.match(str(error)) if isinstance(error, RuntimeError) else None
    if refused is None or _MARK in str(error) or any(_MARK in one for one in getattr(error, "__notes__", ())):
        return
    note = _note(refused[1], error.__traceback__)
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:
        error.args = (f"{error}\n{note}", *error.args[1:])


def at_exit() -> Callable[[], None]:
    """Add the note to an error that ends the program; what is returned undoes it."""
    before = sys.excepthook
    if getattr(before, "__module__", None) == __name__:  # once is enough
        return lambda: None

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        try:
            add_note(error)
        finally:
            before(kind, error, trace)

    sys.excepthook = excepthook

    def undo() -> None:
        if sys.excepthook is excepthook:
            sys.excepthook = before

    return undo


def _note(operator: str, trace: TracebackType | None) -> str:
    steps = list(_steps(trace))
    own = [(frame, line) for frame, line in steps if _is_own(frame)]
    told = [_at(*own[-1], operator)] if own else [f"{operator} gives other bits in every run."]
    inner = [frame for frame, _ in steps]
    told += forward(operator, inner[inner.index(own[-1][0]) + 1 :] if own else inner)
    told.append(
        "Neither torch nor samerun computes it in a fixed order: use another operator there."
        " Where other bits do no harm, allow it around this call:"
        " torch.use_deterministic_algorithms(True, warn_only=True);"
        ' for the whole program: samerun.deterministic(..., level="warn").'
    )
    return _MARK + "\n  ".join(told)


def _steps(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _is_own(frame: FrameType) -> bool:
    return is_user_code(frame.f_code.co_filename, str(frame.f_globals.get("__name__")))


def _at(frame: FrameType, line: int, operator: str) -> str:
    file = frame.f_code.co_filename
    text = linecache.getline(file, line, frame.f_globals).strip()
    return f"{place(file, line)} called {operator}, which gives other bits in every run" + (
        f": {text}" if text else "."
    )
