"""Execute an operator once more, unseen by the program: on copies of its arguments, with the same random numbers and
other fresh memory.
"""

from __future__ import annotations

import ctypes
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from samerun.record.digests import digest as d
from samerun.record.watching.thread_state import ThreadState
from samerun.record.watching.torch_internals import find_operator_generator
from samerun.record.watching.watched_operator import ASYNCHRONOUS_SPACES

ZERO, OTHER = 0x00, 0x03
"""What memory that an operator allocates for itself holds: in the program's own execution, and in the other one."""
_M_PERTURB = -6
NEVER = frozenset(("aten::from_file", "aten::record_stream", "aten::_print", "aten::_lazy_clone"))
"""Operators that do something besides computing."""
_DEVICES = ("CPU", "CUDA", "CompositeExplicitAutograd", "CompositeImplicitAutograd")


def schema_exclusion_reason(func: Any) -> str:
    """Returns why an operator is never executed again, or "" if it may be."""
    schema = func._schema
    if schema.name.split("::", 1)[0] in ASYNCHRONOUS_SPACES:  # to wait for a result again is to read it too early
        return "operators that communicate"
    if schema.name in NEVER:
        return str(schema.name)
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

    def rewind_generator_or_pass_copy(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Callable[[], None]]:
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
    replacements: Mapping[int, Any],
    draws: GeneratorSnapshot | None,
    state: ThreadState,
    malloc_fill_byte: int,
) -> Any:
    """One more execution. Raises what the operator raises; `replacements` replaces tensors by their `id`."""
    args, kwargs = substitute_tensors(args, replacements), substitute_tensors(kwargs, replacements)
    restore: Callable[[], None] = _do_nothing
    if draws is not None:
        args, kwargs, restore = draws.rewind_generator_or_pass_copy(func, args, kwargs)
    state.inside_samerun += 1
    try:
        with filling_malloc_with_if_possible(malloc_fill_byte), without_warnings():
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
def filling_malloc_with_if_possible(byte: int) -> Any:
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


ALIGNMENT = 64
"""Kernels may go another way where memory lies otherwise: copies lie on the same address modulo this."""


def view_in_storage(tensor: Any, storage: Any, byte_shift: int = 0) -> Any:
    """A tensor like the given one, but `byte_shift` bytes further on in other memory."""
    offset = tensor.storage_offset() + byte_shift // tensor.element_size()
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    made.set_(storage, offset, tensor.size(), tensor.stride())
    if tensor.is_conj():
        made = torch.conj(made)
    return torch._neg_view(made) if tensor.is_neg() else made


def byte_range_in_storage(tensor: Any) -> tuple[int, int]:
    """First byte of its memory that a tensor touches, and the one behind the last."""
    first = tensor.storage_offset() * tensor.element_size()
    last = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    return first, first + (last + 1) * tensor.element_size()


def view_bytes(storage: Any, byte_offset: int, byte_count: int) -> Any:
    """Bytes of some memory as a tensor, without a copy."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, byte_offset, (byte_count,), (1,))


def copy_tensors_by_id_preserving_aliasing(tensors: Iterable[Any]) -> dict[int, Any]:
    """A copy of each tensor, by its `id`. Tensors that share memory share it in their copies too."""
    copies: dict[int, Any] = {}
    groups: dict[int, list[Any]] = {}
    for tensor in tensors:
        if d.is_readable(tensor) and tensor.numel():
            groups.setdefault(tensor.untyped_storage()._cdata, []).append(tensor)
        else:
            copies[id(tensor)] = tensor.clone()
    for group in groups.values():
        copies.update(_copy_sharing_tensors(group))
    return copies


def _copy_sharing_tensors(group: list[Any]) -> dict[int, Any]:
    """Copies of tensors that lie in one piece of memory: the part that they touch, once."""
    storage = group[0].untyped_storage()
    spans = [byte_range_in_storage(tensor) for tensor in group]
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    room = (storage.data_ptr() + first) % ALIGNMENT
    if any((room - first) % tensor.element_size() for tensor in group):
        room = first % ALIGNMENT  # memory that is not even aligned to its elements: keep offsets whole
    copy = torch.UntypedStorage(last - first + room, device=storage.device)  # type: ignore[no-untyped-call]
    view_bytes(copy, room, last - first).copy_(view_bytes(storage, first, last - first))
    return {id(tensor): view_in_storage(tensor, copy, room - first) for tensor in group}


def substitute_tensors(arguments: Any, replacements: Mapping[int, Any]) -> Any:
    """Arguments with some tensors replaced, by their `id`, through lists, tuples and dicts."""
    kind = type(arguments)
    if kind in (list, tuple):
        return kind(substitute_tensors(item, replacements) for item in arguments)
    if kind is dict:
        return {name: substitute_tensors(item, replacements) for name, item in arguments.items()}
    return replacements.get(id(arguments), arguments)
