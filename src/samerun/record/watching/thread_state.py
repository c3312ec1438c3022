"""What the recorder knows of each thread of the program."""

from __future__ import annotations

import threading
from typing import Any


class ThreadState:
    """What is particular to a thread: its number, its module stack, whether it is inside samerun."""

    __slots__ = (
        "children", "forks", "inside", "mode", "module", "modules", "nodes", "number", "ordinal", "phase", "role",
        "sequence", "step_place",
    )  # fmt: skip

    def __init__(self) -> None:
        self.number = -1
        self.role = ""
        self.children: dict[str, int] = {}
        self.forks = 0
        """How often this thread forked: threads take turns as they come, so each counts its own."""
        self.inside = 0
        self.phase = -1
        self.modules: list[str] = []
        self.module = ""
        self.ordinal = 0
        self.nodes: dict[int, int] = {}
        self.sequence = 0
        self.mode: Any = None
        self.step_place = 0
        """Number of the line that called the optimizer's step, while it runs."""


class Threads(threading.local):
    """Each thread's state, made when it is first asked for."""

    def __init__(self) -> None:
        self.state = ThreadState()
