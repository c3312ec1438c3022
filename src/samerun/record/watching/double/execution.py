"""Execute an operator once more: same arguments, same random numbers, other fresh memory, no trace of it."""

from __future__ import annotations

import ctypes
import os
import threading
import warnings
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from samerun.record.watching.double.argument_copies import substitute_tensors
from samerun.record.watching.thread_state import ThreadState
from samerun.record.watching.torch_generators import operator_generator
from samerun.record.watching.watched_operator import WatchedOperator

ZERO, OTHER = 0x00, 0x03
"""What memory that an operator allocates for itself holds: in the program's own execution, and in the other one."""
_M_PERTURB = -6
NEVER = frozenset(("aten::from_file", "aten::record_stream", "aten::_print", "aten::_lazy_clone"))
"""Operators that do something besides computing."""
_DEVICES = ("CPU", "CUDA", "CompositeExplicitAutograd", "CompositeImplicitAutograd")


def why_not(func: Any, operator: WatchedOperator) -> str:
    """Why an operator is never executed again; "" if it may be."""
    schema = func._schema
    if operator.asynchronous or schema.name in NEVER:
        return "operators that communicate" if operator.asynchronous else schema.name
    name = schema.name.replace("::", "/") + (f".{schema.overload_name}" if schema.overload_name else "")
    if any(f"{name}/{key}" in torch.library._impls for key in _DEVICES):
        return "operators written in Python"
    return ""


def own_memory(func: Any) -> bool:
    """Is it torch's own? Others may write to what their schemas do not name: they get copies of everything."""
    return bool(func._schema.name.startswith(("aten::", "prims::", "quantized::", "mkldnn::")))


class Draws:
    """The generator that a random operator draws from, as it was before."""

    __slots__ = ("generator", "given", "other", "state")

    def __init__(self, func: Any, args: Any, kwargs: Any, tensors: list[Any]) -> None:
        given = next((arg for arg in (*args, *kwargs.values()) if isinstance(arg, torch.Generator)), None)
        self.generator: Any = given if given is not None else operator_generator(kwargs, tensors)
        names = [argument.name for argument in func._schema.arguments]
        self.given = "generator" in names
        """The operator takes a generator: the other execution gets one of its own. Else this one is taken back for
        a moment, and no other thread may draw from it then.
        """
        self.other: Any = None
        self.state = self.generator.get_state()

    def undisturbed(self) -> bool:
        """Is the generator where the other execution left its own? If not, somebody else drew from it."""
        return not self.given or bool(torch.equal(self.other.get_state(), self.generator.get_state()))

    def again(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Callable[[], None]]:
        """Arguments for an execution that draws the same, and what puts the generator right afterwards."""
        if not self.given:
            after = self.generator.get_state()
            self.generator.set_state(self.state)
            return args, kwargs, lambda: self.generator.set_state(after)
        other = self.other = torch.Generator(self.generator.device)
        other.set_state(self.state)
        at = next(i for i, argument in enumerate(func._schema.arguments) if argument.name == "generator")
        if at < len(args):
            return (*args[:at], other, *args[at + 1 :]), kwargs, lambda: None
        return args, {**kwargs, "generator": other}, lambda: None


def execute(
    func: Any, args: Any, kwargs: Any, others: Mapping[int, Any], draws: Draws | None, state: ThreadState, fill: int
) -> Any:
    """One more execution. Raises what the operator raises; `others` replaces tensors by their `id`."""
    args, kwargs = substitute_tensors(args, others), substitute_tensors(kwargs, others)
    restore: Callable[[], None] = _nothing
    if draws is not None:
        args, kwargs, restore = draws.again(func, args, kwargs)
    state.inside_samerun += 1
    try:
        with fresh_memory(fill), quiet():
            return func(*args, **kwargs)
    finally:
        state.inside_samerun -= 1
        restore()


def _nothing() -> None:
    pass


def _mallopt() -> Callable[[int, int], int] | None:
    """glibc's; None elsewhere, or where another allocator stands before it."""
    if "jemalloc" in os.environ.get("LD_PRELOAD", "") or "tcmalloc" in os.environ.get("LD_PRELOAD", ""):
        return None
    library = ctypes.CDLL(None)
    return library.mallopt if hasattr(library, "gnu_get_libc_version") else None


_set = _mallopt()
_usual = int(os.environ.get("MALLOC_PERTURB_", "0") or 0)
fills_memory = _set is not None and _usual == 0xFF
"""Can the memory that operators allocate for themselves be filled? The check starts the program filling zeros."""


@contextmanager
def fresh_memory(byte: int) -> Any:
    """What malloc gives holds this byte, in every thread."""
    if byte == ZERO or not fills_memory or _set is None:
        yield
        return
    _set(_M_PERTURB, 0xFF ^ byte)
    try:
        yield
    finally:
        _set(_M_PERTURB, _usual)


_silenced = threading.local()


@contextmanager
def quiet() -> Any:
    """Warnings of this thread are not shown: the program's own execution has given them already."""
    _silenced.depth = getattr(_silenced, "depth", 0) + 1
    try:
        yield
    finally:
        _silenced.depth -= 1


def silence_warnings() -> None:
    """Let `quiet` work. `warnings.catch_warnings` would make warnings that were shown once appear again."""
    shown: Any = getattr(warnings, "_showwarnmsg", None)
    if shown is None:
        return

    def _showwarnmsg(message: Any) -> None:
        if not getattr(_silenced, "depth", 0):
            shown(message)

    warnings._showwarnmsg = _showwarnmsg  # type: ignore[attr-defined]
