"""Execute an operator once more: same arguments, same random numbers, other fresh memory, unseen by the program."""

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
from samerun.record.watching.torch_generators import find_operator_generator
from samerun.record.watching.watched_operator import WatchedOperator

ZERO, OTHER = 0x00, 0x03
"""What memory that an operator allocates for itself holds: in the program's own execution, and in the other one."""
_M_PERTURB = -6
NEVER = frozenset(("aten::from_file", "aten::record_stream", "aten::_print", "aten::_lazy_clone"))
"""Operators that do something besides computing."""
_DEVICES = ("CPU", "CUDA", "CompositeExplicitAutograd", "CompositeImplicitAutograd")


def schema_exclusion_reason(func: Any, operator: WatchedOperator) -> str:
    """Returns why an operator is never executed again, or "" if it may be."""
    schema = func._schema
    if operator.asynchronous or schema.name in NEVER:
        return "operators that communicate" if operator.asynchronous else schema.name
    name = schema.name.replace("::", "/") + (f".{schema.overload_name}" if schema.overload_name else "")
    if any(f"{name}/{key}" in torch.library._impls for key in _DEVICES):
        return "operators written in Python"
    return ""


def writes_only_as_declared(func: Any) -> bool:
    """True for torch's own operators. Others may write to what their schemas do not name: all arguments are copied."""
    return bool(func._schema.name.startswith(("aten::", "prims::", "quantized::", "mkldnn::")))


class GeneratorSnapshot:
    """The generator that a random operator draws from, and its state before the draw."""

    __slots__ = ("generator", "given", "other", "state")

    def __init__(self, func: Any, args: Any, kwargs: Any, tensors: list[Any]) -> None:
        given = next((arg for arg in (*args, *kwargs.values()) if isinstance(arg, torch.Generator)), None)
        self.generator: Any = given if given is not None else find_operator_generator(kwargs, tensors)
        names = [argument.name for argument in func._schema.arguments]
        self.given = "generator" in names
        """True if the operator takes a generator: the other execution then gets a copy. Otherwise the generator itself
        is set back for a moment, and no other thread may draw from it meanwhile.
        """
        self.other: Any = None
        self.state = self.generator.get_state()

    def only_operator_drew(self) -> bool:
        """True if the generator is where the other execution left its copy; else another thread drew from it too."""
        return not self.given or bool(torch.equal(self.other.get_state(), self.generator.get_state()))

    def rewind(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Callable[[], None]]:
        """Arguments for an execution that draws the same numbers, and a function that restores the generator."""
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


def execute_again(
    func: Any,
    args: Any,
    kwargs: Any,
    others: Mapping[int, Any],
    draws: GeneratorSnapshot | None,
    state: ThreadState,
    fill: int,
) -> Any:
    """One more execution. Raises what the operator raises; `others` replaces tensors by their `id`."""
    args, kwargs = substitute_tensors(args, others), substitute_tensors(kwargs, others)
    restore: Callable[[], None] = _do_nothing
    if draws is not None:
        args, kwargs, restore = draws.rewind(func, args, kwargs)
    state.inside_samerun += 1
    try:
        with filling_malloc_with(fill), without_warnings():
            return func(*args, **kwargs)
    finally:
        state.inside_samerun -= 1
        restore()


def _do_nothing() -> None:
    pass


def _find_mallopt() -> Callable[[int, int], int] | None:
    """glibc's; None elsewhere, or where another allocator stands before it."""
    if "jemalloc" in os.environ.get("LD_PRELOAD", "") or "tcmalloc" in os.environ.get("LD_PRELOAD", ""):
        return None
    library = ctypes.CDLL(None)
    return library.mallopt if hasattr(library, "gnu_get_libc_version") else None


_mallopt = _find_mallopt()
_usual_perturb = int(os.environ.get("MALLOC_PERTURB_", "0") or 0)
fills_memory = _mallopt is not None and _usual_perturb == 0xFF
"""Can the memory that operators allocate for themselves be filled? The check starts the program filling zeros."""


@contextmanager
def filling_malloc_with(byte: int) -> Any:
    """What malloc gives holds this byte, in every thread."""
    if byte == ZERO or not fills_memory or _mallopt is None:
        yield
        return
    _mallopt(_M_PERTURB, 0xFF ^ byte)
    try:
        yield
    finally:
        _mallopt(_M_PERTURB, _usual_perturb)


_silenced = threading.local()


@contextmanager
def without_warnings() -> Any:
    """Warnings of this thread are not shown: the program's own execution has given them already."""
    _silenced.depth = getattr(_silenced, "depth", 0) + 1
    try:
        yield
    finally:
        _silenced.depth -= 1


def install_warning_filter() -> None:
    """Let `without_warnings` work. `warnings.catch_warnings` would make warnings that were shown once appear again."""
    shown: Any = getattr(warnings, "_showwarnmsg", None)
    if shown is None:
        return

    def _showwarnmsg(message: Any) -> None:
        if not getattr(_silenced, "depth", 0):
            shown(message)

    warnings._showwarnmsg = _showwarnmsg  # type: ignore[attr-defined]
