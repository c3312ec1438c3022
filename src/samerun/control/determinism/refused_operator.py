"""Explain the error that torch raises for an operator without a deterministic algorithm.

Nothing is done until such an error leaves the mode or ends the program. Then a note is added to it: the user's line,
and a way out. For an operator of the backward pass the line of the forward pass matters, and only torch's anomaly
mode knows that one, at a cost for every operator. When anomaly mode is on, its line is given. Otherwise the program's
own files are searched for calls of the function, which may give several lines; those are called likely, and the note
says how to find out.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from samerun.base.user_code import format_source_location, is_user_code

if TYPE_CHECKING:
    import torch

_REFUSED = re.compile(r"^(\S+) does not have a deterministic implementation")
_MARK = "samerun: "
_BACKWARD = re.compile(r"Backward\d*$")
_TRACEBACK_LINE = re.compile(r'\s*File "(.+)", line (\d+)')
_WORD = re.compile(r"[A-Za-z_]\w*")
_MOST_LIKELY_LINES = 4
# Operators whose name differs from that of the functions that people call.
_CALLED_AS = {
    "upsample": ("interpolate", "upsample", "upsamplingbilinear2d"),
    "gridsampler": ("gridsample",),
    "nllloss": ("nllloss", "crossentropy", "crossentropyloss"),
    "reflectionpad": ("reflectionpad1d", "reflectionpad2d", "reflectionpad3d", "pad"),
    "replicationpad": ("replicationpad1d", "replicationpad2d", "replicationpad3d", "pad"),
}


def add_note_if_operator_was_refused(error: BaseException) -> None:
    """Add the note to an error of torch's deterministic mode, once; leave others alone."""
    refused = _REFUSED.match(str(error)) if isinstance(error, RuntimeError) else None
    if refused is None or _MARK in str(error) or any(_MARK in one for one in getattr(error, "__notes__", ())):
        return
    note = _compose_refusal_note(refused[1], error.__traceback__)
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:
        error.args = (f"{error}\n{note}", *error.args[1:])


def install_refusal_excepthook() -> Callable[[], None]:
    """Have the note added to an error that ends the program; return the function that undoes this."""
    before = sys.excepthook
    if getattr(before, "__module__", None) == __name__:  # an outer mode has installed it already
        return lambda: None

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        try:
            add_note_if_operator_was_refused(error)
        finally:
            before(kind, error, trace)

    sys.excepthook = excepthook

    def undo() -> None:
        if sys.excepthook is excepthook:
            sys.excepthook = before

    return undo


def _compose_refusal_note(operator: str, trace: TracebackType | None) -> str:
    steps = list(_iterate_traceback_frames(trace))
    user_steps = [(frame, line) for frame, line in steps if _is_user_frame(frame)]
    sentences = [f"{operator} gives other bits in every run."]
    if user_steps:
        sentences = [_describe_user_call(*user_steps[-1], operator)]
    frames = [frame for frame, _ in steps]
    inside = frames[frames.index(user_steps[-1][0]) + 1 :] if user_steps else frames
    sentences += describe_backward_operator_origin(operator, inside)
    sentences.append(
        "Neither torch nor samerun computes it in a fixed order: use another operator there."
        " Where other bits do no harm, allow it around this call:"
        " torch.use_deterministic_algorithms(True, warn_only=True);"
        ' for the whole program: samerun.deterministic(..., level="warn").'
    )
    return _MARK + "\n  ".join(sentences)


def _iterate_traceback_frames(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _is_user_frame(frame: FrameType) -> bool:
    return is_user_code(frame.f_code.co_filename, str(frame.f_globals.get("__name__")))


def _describe_user_call(frame: FrameType, line_number: int, operator: str) -> str:
    file = frame.f_code.co_filename
    text = linecache.getline(file, line_number, frame.f_globals).strip()
    return f"{format_source_location(file, line_number)} called {operator}, which gives other bits in every run" + (
        f": {text}" if text else "."
    )


def describe_backward_operator_origin(operator: str, frames_below_user_line: list[FrameType]) -> list[str]:
    """Sentences on where in the forward pass `operator` came from; [] if no backward pass runs in the frames.

    frames_below_user_line: those that the user's line called, directly or not.
    """
    autograd_frames = [
        frame for frame in frames_below_user_line if str(frame.f_globals.get("__name__")).startswith("torch.autograd")
    ]
    if not autograd_frames:
        return []
    wanted = _lowercase_without_underscores(operator.partition("_backward")[0])
    nodes = (node for frame in autograd_frames for node in _find_graph_nodes(frame, wanted))
    lines = {line for line in map(_find_location_kept_by_anomaly_mode, nodes) if line is not None}
    if lines:
        return [f"It is the backward of what {' and '.join(sorted(lines))} called."]
    likely = list(_iterate_user_lines_naming_operator(wanted))
    sentence = "It belongs to the backward pass"
    if likely:
        more = f" and {len(likely) - _MOST_LIKELY_LINES} more" if len(likely) > _MOST_LIKELY_LINES else ""
        sentence += f"; likely of {', '.join(likely[:_MOST_LIKELY_LINES])}{more}"
    return [
        f"{sentence}. For the line of the forward pass, run once with"
        " torch.autograd.set_detect_anomaly(True, check_nan=False) before the model is called."
    ]


def _lowercase_without_underscores(name: str) -> str:
    """Return the name as operators, functions and modules share it: "grid_sampler", "GridSampler"."""
    return name.replace("_", "").lower()


def _find_graph_nodes(autograd_frame: FrameType, normalized_operator: str) -> list[torch.autograd.graph.Node]:
    """The nodes of the graph under the tensors that `autograd_frame` differentiates whose operator this is."""
    roots = (getattr(tensor, "grad_fn", None) for tensor in _get_autograd_root_tensors(autograd_frame))
    pending = [root for root in roots if root is not None]
    seen, found = set(pending), []
    while pending:
        node = pending.pop()
        if _BACKWARD.sub("", node.name().rpartition("::")[2]).lower() == normalized_operator:
            found.append(node)
        new = {child for child, _ in node.next_functions if child is not None} - seen
        seen |= new
        pending.extend(new)
    return found


def _get_autograd_root_tensors(autograd_frame: FrameType) -> tuple[Any, ...]:
    """Return the tensors whose gradients a function of `torch.autograd` is computing, read off its local variables."""
    names = autograd_frame.f_locals
    tensors = names.get("tensors", names.get("outputs", ()))
    return tuple(tensors) if isinstance(tensors, (list, tuple)) else (tensors,)


def _find_location_kept_by_anomaly_mode(node: Any) -> str | None:
    """Return the user's line in the traceback that anomaly mode kept for `node`."""
    for step in reversed(node.metadata.get("traceback_", [])):
        parts = _TRACEBACK_LINE.match(step)
        if parts and is_user_code(parts[1], "__main__"):
            return format_source_location(parts[1], int(parts[2]))
    return None


def _iterate_user_lines_naming_operator(normalized_operator: str) -> Iterator[str]:
    """Yield the lines of the program's own files that name the operator's function or module."""
    names = {normalized_operator}
    for prefix, functions in _CALLED_AS.items():
        if normalized_operator.startswith(prefix):
            names.update(functions)
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    for file in sorted(file for file in files if isinstance(file, str) and is_user_code(file, "")):
        for number, line in enumerate(linecache.getlines(file), 1):
            if any(_lowercase_without_underscores(word) in names for word in _WORD.findall(line.partition("#")[0])):
                yield format_source_location(file, number)
