"""What the recorder knows of each thread of the program. `native/watch` reads the slots by their offsets.

How often a thread has waited for another one counts too: what it reads after that was handed over.
"""

from __future__ import annotations

import threading
import time
from typing import Any


class ThreadState:
    """State of one thread: its number, its stack of modules, whether it executes samerun's own code."""

    __slots__ = (
        "child_counts", "fork_count", "generator_before", "inside_samerun", "last_loss", "last_sequence", "mode",
        "module", "node_location_ids", "number", "operator_count", "outer_modules", "phase", "role",
        "step_location_id",
    )  # fmt: skip

    def __init__(self) -> None:
        self.number = -1
        self.role = ""
        self.child_counts: dict[str, int] = {}
        self.fork_count = 0
        """How often this thread forked. Counted per thread, because the order of threads differs from run to run."""
        self.inside_samerun = 0
        self.generator_before: tuple[Any, int, bytes] | None = None
        """The generator of the operator that runs, with its seed and the digest of its state before."""
        self.phase = -1
        self.outer_modules: list[str] = []
        self.module = ""
        self.operator_count = 0
        self.node_location_ids: dict[int, int] = {}
        self.last_sequence = 0
        self.last_loss = bytes(16)
        """Digest of the tensor that this thread called `backward` on last."""
        self.mode: Any = None
        self.step_location_id = 0
        """Number of the line that called the optimizer's step, while the step runs."""


class ThreadLocalState(threading.local):
    """Each thread's state, made when it is first asked for."""

    def __init__(self) -> None:
        self.state = ThreadState()


unwatched_sleep = time.sleep
"""Bound at import, before the module's own is watched."""
_local = threading.local()


def count_waits_of_this_thread() -> int:
    """Waits of the present thread so far."""
    return int(getattr(_local, "count", 0))


def count_wait() -> None:
    _local.count = count_waits_of_this_thread() + 1
