"""The values that a training holds after some steps, kept so that two runs can be compared number by number."""

from __future__ import annotations

import os
from typing import Any

from samerun.record.digests.digest import is_readable
from samerun.record.watching import keep
from samerun.record.watching.recorder import Recorder

MOST_ELEMENTS = 1 << 20
"""Of more parameters than this, evenly spaced elements are kept."""
ROLES = ("main", "rank0")


def file_of(folder: str, step: int) -> str:
    return os.path.join(folder, f"step-{step}.values")


def keep_step(recorder: Recorder, optimizer: Any, step: int) -> None:
    """Write the optimizer's parameters, or a sample of them, and the loss, as they are after `step`."""
    if recorder.own_role() not in ROLES:
        return
    held = [p for group in optimizer.param_groups for p in group["params"] if is_readable(p)]
    total = sum(p.numel() for p in held)
    stride = -(-total // MOST_ELEMENTS)
    sample = [p.detach().reshape(-1)[::stride] for p in held] if stride else []
    loss = recorder.loss.hex() if recorder.loss is not None else None
    keep.write(file_of(recorder.config.folder, step), sample, {"line": 0, "loss": loss, "parameters": total})
