"""Tell the user's line and a way out when torch refuses an operator in deterministic mode.

Nothing is done until such an error leaves the mode, or ends the program: then a note is added to it. Where an
operator of the backward pass came from is known only to torch's anomaly mode, which costs time at every
operator; so it is told when that mode is on, and otherwise how to learn it.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

from samerun.base.user_code import is_user_code, place

_REFUSED = re.compile(r"^(\S+) does not have a deterministic implementation")
_BACKWARD = re.compile(r"Backward\d*$")
_STEP = re.compile(r'\s*File "(.+)", line (\d+)')
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
    told += _forward(operator, [frame for frame, _ in steps])
    told.append(
        "Use another operator there. Where other bits do no harm, allow it around this call:"
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


def _forward(operator: str, frames: list[FrameType]) -> list[str]:
    """Where the operator of a backward pass came from."""
    run = [frame for frame in frames if str(frame.f_globals.get("__name__")).startswith("torch.autograd")]
    if not run or "_backward" not in operator:
        return []
    lines = {found for frame in run for node in _nodes(frame, operator) for found in [_made_at(node)] if found}
    if lines:
        return [f"It is the backward of what {' and '.join(sorted(lines))} called."]
    return [
        "It belongs to the backward pass. For the line of the forward pass, run once with"
        " torch.autograd.set_detect_anomaly(True, check_nan=False) before the model is called."
    ]


def _nodes(frame: FrameType, operator: str) -> list[Any]:
    """The nodes of the graph under the tensors that `frame` differentiates whose operator this is."""
    wanted = operator.partition("_backward")[0].replace("_", "").lower()
    todo = [root for tensor in _roots(frame) for root in [getattr(tensor, "grad_fn", None)] if root is not None]
    seen, found = set(todo), []
    while todo:
        node = todo.pop()
        if _BACKWARD.sub("", node.name().rpartition("::")[2]).lower() == wanted:
            found.append(node)
        new = {child for child, _ in node.next_functions if child is not None} - seen
        seen |= new
        todo.extend(new)
    return found


def _roots(frame: FrameType) -> tuple[Any, ...]:
    tensors = frame.f_locals.get("tensors", frame.f_locals.get("outputs", ()))
    return tuple(tensors) if isinstance(tensors, (list, tuple)) else (tensors,)


def _made_at(node: Any) -> str | None:
    """The user's line in the traceback that anomaly mode kept for `node`."""
    for step in reversed(node.metadata.get("traceback_", [])):
        parts = _STEP.match(step)
        if parts and is_user_code(parts[1], "__main__"):
            return place(parts[1], int(parts[2]))
    return None
