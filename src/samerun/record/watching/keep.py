"""Keep one operator's tensors in a file, so that two runs' values can be compared element by element."""

from __future__ import annotations

import json
from typing import Any

from samerun.record.config import TensorCapture
from samerun.record.digests.digest import is_readable, lies_in_storage, memory
from samerun.record.watching.recorder import Recorder

LIMIT_BYTES = 1 << 28


def keep(capture: TensorCapture, recorder: Recorder, tensors: list[Any], operator: str, place: int) -> None:
    """Write the tensors of the operator that is asked for."""
    if recorder.own_role() != capture.role:
        return
    writer = recorder.writer
    line = writer.line_of_location(place) if writer is not None else 0
    write(capture.path, tensors, {"operator": operator, "line": line})


def write(path: str, tensors: list[Any], facts: dict[str, Any]) -> None:
    """Write tensors as raw bytes behind one line of JSON, with some facts about them; nothing is pickled."""
    from samerun.record.digests.undisturbed import Undisturbed, as_plain

    parts: list[bytes] = []
    heads = []
    for tensor in tensors:
        # The size comes first: an expanded tensor may be larger than all memory.
        if not is_readable(tensor) or tensor.nbytes > LIMIT_BYTES or not lies_in_storage(tensor):
            continue
        with Undisturbed():
            dense = as_plain(tensor).resolve_conj().resolve_neg().cpu().contiguous()
            # not `view`: a contiguous tensor of one element may have any stride, which `view` refuses
            raw = bytes(memory(dense.data_ptr(), dense.nbytes)) if dense.nbytes else b""
        heads.append({"dtype": str(tensor.dtype), "shape": list(tensor.shape), "bytes": len(raw)})
        parts.append(raw)
    head = json.dumps({**facts, "tensors": heads}).encode() + b"\n"
    with open(path, "wb") as file:
        file.write(head + b"".join(parts))
