"""`samerun.mark`: name a point of the program, and note what some tensors hold there."""

from __future__ import annotations

import sys
from typing import Any

from samerun.base.errors import SamerunError
from samerun.record.trace import format as f
from samerun.record.watching import start


def mark(name: str, tensors: Any = None) -> None:
    """Note a named point of the run in its receipt or trace, with a digest of what it holds.

    tensors: a tensor, an array, a number, a text, or lists, tuples, dicts and dataclasses of them, of any dtype
    and shape; a module counts by its parameters and buffers. Nothing happens, at next to no cost, where the run
    is not recorded. Raises SamerunError if `name` is no text of 1 to 200 characters.

        samerun.mark("epoch 3", model)
    """
    if not isinstance(name, str) or not 0 < len(name) <= 200:
        raise SamerunError(f"mark({name!r}): a name is a text of 1 to 200 characters.")
    recorder = start.current_recorder
    if recorder is None or recorder.stopped or recorder.thread.inside_samerun:
        return
    from samerun.record.digests.trees import digest_tree

    torch: Any = sys.modules.get("torch")
    tensor_type = getattr(torch, "Tensor", None) or _Nothing
    state = recorder.thread
    state.inside_samerun += 1
    try:
        module_type: Any = getattr(getattr(torch, "nn", None), "Module", _Nothing)
        value = dict(tensors.state_dict()) if isinstance(tensors, module_type) else tensors
        digest = digest_tree(value, tensor_type)
    finally:
        state.inside_samerun -= 1
    recorder.emit_host_event(f.MARK, name, inputs=recorder.step, outputs=digest)


class _Nothing:
    """Stands for torch's types while torch is not there."""
