"""What the recorder takes from torch's private interface: autograd nodes, the compiler's rules, generators.

Imports torch.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from samerun.record import pins
from samerun.record.watching.thread_state import ThreadState

NODE_RING = (1 << 17) - 1
"""So many autograd nodes back, the line that made a node is remembered."""

_current_node = torch._C._current_autograd_node
_next_sequence = torch._C._autograd._get_sequence_nr


def record_new_autograd_node_locations(state: ThreadState, location_id: int) -> None:
    """Remember the line that made the nodes that are new."""
    now = _next_sequence()
    for number in range(max(state.last_sequence, now - 64), now):
        state.node_location_ids[number & NODE_RING] = location_id
    state.last_sequence = now


def location_of_running_autograd_node(state: ThreadState) -> int:
    """Number of the line that made the node that runs; 0 where none runs or it is not known."""
    node = _current_node()
    return state.node_location_ids.get(node._sequence_nr() & NODE_RING, 0) if node is not None else 0


RECOMPUTING_MODULES = ("torch.utils.checkpoint", "torch.autograd.function")
"""What calls a forward pass again inside of a backward pass: checkpoint, and functions of the program's own."""


def is_recomputing() -> bool:
    """Whether this is a forward pass that is run again inside of a backward pass.

    By `torch.utils.checkpoint`, or by the `backward` of an autograd.Function of the program's own.
    """
    node = _current_node()
    if node is None:
        return False
    # A backward of the program's own computes gradients without recording them, and what it recomputes with.
    is_own = torch.is_grad_enabled() and isinstance(node, torch.autograd.function.BackwardCFunction)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if name == "torch.autograd.graph":
            return False  # what has called the backward pass recomputes, as the reentrant checkpoint does; not the pass
        if name == "torch.utils.checkpoint" or (is_own and name == "torch.autograd.function"):
            return True
        frame = frame.f_back
    return False


class KeepsProgramsCompiledMixin:
    """What a dispatch mode of the recorder has in common: compiled programs stay compiled under it."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import torch._dynamo at the first operator


def exclude_from_compilation(*functions: Any) -> None:
    """torch.compile leaves these functions, and all that they call, as they are."""
    try:
        frames: Any = torch._C._dynamo.eval_frame
        never = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
        for function in functions:
            frames.set_code_exec_strategy(function.__code__, never)
    except (AttributeError, TypeError):
        pass  # another torch: the compiler then takes the recorder for the user's code and gives up on it


def creates_meta_or_fake_tensor(kwargs: Any) -> bool:
    """Whether an operator without tensor inputs makes a meta or fake tensor: it draws from no generator."""
    device = kwargs.get("device") if kwargs else None
    return (device is not None and torch.device(device).type == "meta") or is_on_fake_tensors()


def is_fx_proxy_tracing() -> bool:
    """Whether operators are called to write down a graph, as by make_fx: what they make of placeholders is no value.

    torch.func.linearize hands memory that nobody wrote as tangents to the function whose graph it wants.
    """
    return _infra_mode(_PROXY) is not None


def is_on_fake_tensors() -> bool:
    """Whether operators are called to learn shapes: on fake tensors, which have no values."""
    return _infra_mode(_FAKE) is not None


_infra_mode = torch._C._get_dispatch_mode
_PROXY = torch._C._TorchDispatchModeKey.PROXY
_FAKE = torch._C._TorchDispatchModeKey.FAKE


def find_operator_generator(kwargs: Any, tensors: list[Any]) -> torch.Generator:
    """The generator that a random operator draws from: the one it was given, or its device's own."""
    given: torch.Generator | None = kwargs.get("generator") if kwargs else None
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


def wrap_numbers_as_tensor_arguments(operator: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with the tensors that the operator was called with.

    torch hands a mode the number where a tensor stands for a number (the `2` of a traced `x * 2`), but most operators
    refuse a number in the place of a tensor.
    """
    schema = getattr(operator, "_schema", None)
    if schema is None or torch._C._should_allow_numbers_as_tensors(schema.name.split("::")[-1]):
        return args
    expected = (argument.type for argument in schema.arguments)
    return tuple(
        _make_number_tensor(value)
        if isinstance(value, (int, float, complex)) and isinstance(kind, torch._C.TensorType)
        else value
        for value, kind in zip(args, expected, strict=False)
    )


def _make_number_tensor(number: complex) -> torch.Tensor:
    """A tensor of the dtype that torch gives to numbers, whatever the default dtype is."""
    kinds = ((bool, torch.bool), (int, torch.int64), (float, torch.float64), (complex, torch.complex128))
    return torch.tensor(number, dtype=next(dtype for kind, dtype in kinds if isinstance(number, kind)))


class ThreadGeneratorStates:
    """The states of the threads of a process. Draws take turns: the generator holds one thread's state at a time."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.states: dict[str, Any] = {}

    @contextmanager
    def swap_in_state_of(self, thread: ThreadState) -> Iterator[None]:
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
