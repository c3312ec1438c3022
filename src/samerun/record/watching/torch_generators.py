"""Which torch generator a random operator draws from, and a state of its own for every thread. Imports torch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from samerun.record import pins
from samerun.record.watching.thread_state import ThreadState


def creates_valueless_tensor(kwargs: Any) -> bool:
    """Whether an operator without tensor inputs makes a meta or fake tensor: it draws from no generator."""
    device = kwargs.get("device") if kwargs else None
    return (device is not None and torch.device(device).type == "meta") or _infra_mode(_FAKE) is not None


_infra_mode = torch._C._get_dispatch_mode
_FAKE = torch._C._TorchDispatchModeKey.FAKE


def find_operator_generator(kwargs: Any, tensors: list[Any]) -> Any:
    """The generator that a random operator draws from: the one it was given, or its device's own."""
    given = kwargs.get("generator") if kwargs else None
    if given is not None:
        return given
    device = kwargs.get("device") if kwargs else None
    if device is None and tensors:
        device = tensors[0].device
    device = torch.device(device) if device is not None else None
    if device is not None and device.type == "cuda" and torch.cuda.default_generators:
        index = device.index if device.index is not None else torch.cuda.current_device()
        return torch.cuda.default_generators[index]
    return torch.default_generator


class ThreadGeneratorStates:
    """The states of the threads of a process. Draws take turns: the generator holds one thread's state at a time."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.states: dict[str, Any] = {}

    @contextmanager
    def use_state_of(self, thread: ThreadState) -> Iterator[None]:
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
