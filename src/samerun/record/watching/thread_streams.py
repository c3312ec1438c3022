"""Gives every thread but the main one a state of its own in torch's global generator, as an experiment.

A thread that prepares batches waits for those that take them, so it cannot be run to its end before the others go on.
What it draws can be kept apart: then it no longer matters in which order the threads come.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from samerun.record import pins
from samerun.record.watching.thread_state import ThreadState


class ThreadStreams:
    """The states of the threads of a process. Draws take turns: the generator holds one thread's state at a time."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.states: dict[str, Any] = {}

    @contextmanager
    def turn(self, thread: ThreadState) -> Iterator[None]:
        """For one draw of this thread."""
        generator = torch.default_generator
        with self.lock:
            if thread.number <= 0:
                yield
                return
            kept = generator.get_state()
            state = self.states.get(thread.role)
            if state is None:
                generator.manual_seed(pins.pinned_seed(f"thread {thread.role}"))
            else:
                generator.set_state(state)
            try:
                yield
            finally:
                self.states[thread.role] = generator.get_state()
                generator.set_state(kept)
