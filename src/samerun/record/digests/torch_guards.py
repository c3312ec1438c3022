"""Guards: read tensors and call operators so that nothing in the program notices. Imports torch."""

from __future__ import annotations

import functools
import operator
from contextlib import nullcontext
from typing import Any

import torch

_KEYS = (
    "Tracer", "Python", "PythonTLSSnapshot", "PreDispatch", "PythonDispatcher", "Functionalize", "FuncTorchBatched",
    "FuncTorchDynamicLayerFrontMode", "FuncTorchDynamicLayerBackMode", "ADInplaceOrView", "AutogradCPU",
    "AutogradCUDA", "AutogradOther", "AutogradNestedTensor",
)  # fmt: skip


def _build_excluded_dispatch_keys() -> Any:
    """The dispatch keys whose kernels trace, transform, or call Python."""
    parse: Any = torch._C._parse_dispatch_key
    sets: list[Any] = [torch._C.DispatchKeySet(parse(name)) for name in _KEYS]
    return functools.reduce(operator.or_, sets)


no_torch_function: Any = torch._C.DisableTorchFunction
"""A guard to be entered before any attribute of a tensor is read.

Reading `tensor.shape` calls `__torch_function__` of the program's modes and subclasses. A mode that counts or logs
would see the recorder, a subclass could answer with a value of its own, and either may raise or recurse.
"""
_keys = _build_excluded_dispatch_keys()


PLAIN_TYPES = frozenset((torch.Tensor, torch.nn.Parameter))
_strided = torch.strided
ODD_DTYPES = frozenset((torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4))


def is_plain_cpu_tensor(tensor: Any) -> bool:
    """True for nearly every tensor: its elements are plain memory of this machine.

    Reads attributes: call it only inside `no_torch_function`.
    """
    return (
        tensor.is_cpu
        and type(tensor) in PLAIN_TYPES
        and tensor.layout is _strided
        and tensor.dtype not in ODD_DTYPES
        and not tensor.is_nested
    )


class HiddenFromProgram:
    """A guard for torch operators that samerun calls itself.

    They then reach no dispatch mode, subclass, tracer or transform. Otherwise a graph that the program traces would
    contain them, and a mode that counts operators would count them.
    """

    __slots__ = ("_functions", "_kernels")

    def __enter__(self) -> None:
        functions: Any = no_torch_function()
        kernels: Any = torch._C._ExcludeDispatchKeyGuard(_keys)
        self._functions, self._kernels = functions, kernels
        functions.__enter__()
        kernels.__enter__()

    def __exit__(self, *error: object) -> None:
        self._kernels.__exit__(None, None, None)
        self._functions.__exit__(None, None, None)


def has_real_values(tensor: Any) -> bool:
    """False for tensors that stand for shapes or for other tensors: fake and meta tensors, those of a transform."""
    kind = type(tensor)
    if kind.__module__ in _SYMBOLIC_MODULES:
        return False
    with no_torch_function():
        if _get_device(tensor).type == "meta":
            return False
    return not (torch._is_functional_tensor(tensor) or torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def outside_transforms() -> Any:
    """A guard: transforms of torch.func (`grad`, `vmap`) that are going on do not see what is computed inside of it."""
    if torch._C._functorch.peek_interpreter_stack() is None:
        return nullcontext()
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    return temporarily_clear_interpreter_stack()


def unwrap_transformed(tensor: Any) -> Any:
    """The tensor that transforms of torch.func (`grad`, `vmap`) have wrapped; any other tensor itself."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


_get_device = torch.Tensor.device.__get__
_SYMBOLIC_MODULES = frozenset(("torch._subclasses.fake_tensor", "torch._subclasses.functional_tensor"))


def has_own_torch_dispatch_and_values(kind: type) -> bool:
    """True for a class of tensors with a dispatch of its own and real values: DTensor, a program's wrapper."""
    return kind.__torch_dispatch__ is not _dispatch and kind.__module__ not in _SYMBOLIC_MODULES  # type: ignore[attr-defined]


_dispatch = torch.Tensor.__torch_dispatch__


def as_plain_tensor(tensor: Any) -> Any:
    """A subclass without a dispatch of its own, as a plain tensor: the methods it overrides are not called."""
    if type(tensor) in PLAIN_TYPES:
        return tensor
    with HiddenFromProgram():
        return torch.Tensor.as_subclass(tensor, torch.Tensor)
