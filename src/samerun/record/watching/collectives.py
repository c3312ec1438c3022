"""Collectives that go on after they were started, and handles with which the program waits for them."""

from __future__ import annotations

import sys
from typing import Any

from samerun.base.user_code import SAMERUN_FOLDER
from samerun.record import pins
from samerun.record.digests.storages import StorageDigests, WrittenByCollective
from samerun.record.trace import format as f
from samerun.record.watching.recorder import Recorder

IN_FLIGHT_READ = "read before wait"
"""Name of the event that an operator read memory to which a collective that nobody waited for may still write."""
MESSAGES = ("send", "recv")
"""Parts of the names of operators that wait for one other rank: to wait for one at once may be a deadlock."""
_TORCH_FILE = "distributed_c10d.py"


def record_if_read_before_wait(recorder: Recorder, storages: StorageDigests, tensor: Any, name: str) -> None:
    """Record that an operator reads memory that a collective may still be writing to, if that is known."""
    if storages.is_in_flight(tensor):
        recorder.emit_host_event(f.FACT, IN_FLIGHT_READ, aux=name, thin_repeats=True)


def note_started_by_program(
    recorder: Recorder, storages: StorageDigests, out: Any, written: list[WrittenByCollective], name: str
) -> None:
    """Remember the handle that a collective gave, if Python code has started it: then Python code waits for it.

    What torch starts in C++ (the reducer of DistributedDataParallel) it also waits for there, which nobody sees.
    """
    import torch

    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(SAMERUN_FOLDER):
        frame = frame.f_back
    if frame is None or not frame.f_code.co_filename.endswith(_TORCH_FILE):
        return
    handle = out[-1] if isinstance(out, (tuple, list)) and out else out
    if not isinstance(handle, torch.ScriptObject):
        return
    unbox: Any = torch._C._distributed_c10d.Work.unbox
    work = unbox(handle)
    storages.note_started(work, written)
    if pins.WAITED in recorder.config.pins and not any(part in name for part in MESSAGES):
        work.wait()
