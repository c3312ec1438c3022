"""Where in the forward pass an operator of the backward pass came from, asked after it has failed.

Only torch's anomaly mode knows, and it costs time at every operator. When it is on, its line is told. Otherwise
the program's own files are searched for the name of the function, which may give several lines, and are called
likely; and it is said how to learn more.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from samerun.base.user_code import is_user_code, place

_BACKWARD = re.compile(r"Backward\d*$")
_STEP = re.compile(r'\s*File "(.+)", line (\d+)')
_WORD = re.compile(r"[A-Za-z_]\w*")
_MOST = 4
# Operators that the functions which people call do not share their name with.
_CALLED = {
    "upsample": ("interpolate", "upsample", "upsamplingbilinear2d"),
    "gridsampler": ("gridsample",),
    "nllloss": ("nllloss", "crossentropy", "crossentropyloss"),
    "reflectionpad": ("reflectionpad1d", "reflectionpad2d", "reflectionpad3d", "pad"),
    "replicationpad": ("replicationpad1d", "replicationpad2d", "replicationpad3d", "pad"),
}


def forward(operator: str, frames: list[FrameType]) -> list[str]:
    """What can be said; nothing if no backward pass runs in `frames`, those inside the user's line."""
    run = [frame for frame in frames if str(frame.f_globals.get("__name__")).startswith("torch.autograd")]
    if not run:
        return []
    wanted = _plain(operator.partition("_backward")[0])
    lines = {found for frame in run for node in _nodes(frame, wanted) for found in [_made_at(node)] if found}
    if lines:
        return [f"It is the backward of what {' and '.join(sorted(lines))} called."]
    likely = list(_likely(wanted))
    told = "It belongs to the backward pass"
    if likely:
        more = f" and {len(likely) - _MOST} more" if len(likely) > _MOST else ""
        told += f"; likely of {', '.join(likely[:_MOST])}{more}"
    return [
        f"{told}. For the line of the forward pass, run once with"
        " torch.autograd.set_detect_anomaly(True, check_nan=False) before the model is called."
    ]


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _nodes(frame: FrameType, wanted: str) -> list[Any]:
    """The nodes of the graph under the tensors that `frame` differentiates whose operator this is."""
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


def _likely(wanted: str) -> Iterator[str]:
    """Lines of the program's own files that name the function, or the module of the same name."""
    names = {wanted}
    for operator, called in _CALLED.items():
        if wanted.startswith(operator):
            names.update(called)
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    for file in sorted(file for file in files if isinstance(file, str) and is_user_code(file, "")):
        for number, line in enumerate(linecache.getlines(file), 1):
            if any(_plain(word) in names for word in _WORD.findall(line.partition("#")[0])):
                yield place(file, number)
