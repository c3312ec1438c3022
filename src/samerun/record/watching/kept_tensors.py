"""Keep tensors in a file, so that two runs' values can be compared element by element."""

from __future__ import annotations

import json
import os
from typing import Any

from samerun.record.config import TensorCapture
from samerun.record.digests.digest import buffer_at_address, fits_in_storage, is_readable
from samerun.record.watching.recorder import Recorder

LIMIT_BYTES = 1 << 28


def write_tensors_if_role_matches(
    capture: TensorCapture, recorder: Recorder, tensors: list[Any], operator: str, location_id: int
) -> None:
    """Write the tensors of the operator that is asked for."""
    if recorder.process_role_path() != capture.role:
        return
    writer = recorder.writer
    line = writer.line_of_location_or_zero(location_id) if writer is not None else 0
    write_readable_tensors(capture.path, tensors, {"operator": operator, "line": line})


def write_readable_tensors(path: str, tensors: list[Any], header: dict[str, Any]) -> None:
    """Write tensors as raw bytes behind one line of JSON, with some facts about them; nothing is pickled."""
    from samerun.record.digests.torch_guards import HiddenFromProgram, as_plain_tensor

    parts: list[bytes] = []
    heads = []
    for tensor in tensors:
        # The size comes first: an expanded tensor may be larger than all memory.
        if not is_readable(tensor) or tensor.nbytes > LIMIT_BYTES or not fits_in_storage(tensor):
            continue
        with HiddenFromProgram():
            dense = as_plain_tensor(tensor).resolve_conj().resolve_neg().cpu().contiguous()
            # not `view`: a contiguous tensor of one element may have any stride, which `view` refuses
            raw = bytes(buffer_at_address(dense.data_ptr(), dense.nbytes)) if dense.nbytes else b""
        heads.append({"dtype": str(tensor.dtype), "shape": list(tensor.shape), "bytes": len(raw)})
        parts.append(raw)
    head = json.dumps({**header, "tensors": heads}).encode() + b"\n"
    with open(path, "wb") as file:
        file.write(head + b"".join(parts))


MOST_ELEMENTS = 1 << 20
"""Of more parameters than this, evenly spaced elements are kept."""
ROLES = ("main", "rank0")


def step_values_path(folder: str, step: int) -> str:
    return os.path.join(folder, f"step-{step}.values")


def write_sampled_parameters_and_loss(recorder: Recorder, optimizer: Any, step: int) -> None:
    """Write the optimizer's parameters, or a sample of them, and the loss, as they are after `step`."""
    if recorder.process_role_path() not in ROLES:
        return
    held = [p for group in optimizer.param_groups for p in group["params"] if is_readable(p)]
    total = sum(p.numel() for p in held)
    stride = -(-total // MOST_ELEMENTS)
    sample = [p.detach().reshape(-1)[::stride] for p in held] if stride else []
    loss = recorder.last_loss_value.hex() if recorder.last_loss_value is not None else None
    write_readable_tensors(
        step_values_path(recorder.config.folder, step), sample, {"line": 0, "loss": loss, "parameters": total}
    )
