"""The dispatch mode behind `portable()`: every operator goes through the table, or is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils import _python_dispatch, _pytree

from samerun.base.errors import CudaError, NotPortableError, NotPortableWarning, SamerunError
from samerun.numerics.aten_handlers import sparse
from samerun.numerics.aten_handlers.checks import raise_torch_error_unless_accepted
from samerun.numerics.aten_handlers.declare import NoPortableKernel
from samerun.numerics.aten_handlers.table import TensorKind, resolve_runner_unless_exact
from samerun.numerics.dispatch import (
    compiled_regions,
    composites,
    cpu_fallback,
    higher_order,
    optimizer_loops,
    truncated_normal,
)
from samerun.numerics.dispatch.refusals import (
    explain_refusal,
    find_source_location_outside_torch,
    raise_no_kernel_unless_meta,
)

_Tensor = torch.Tensor
_strided = torch.strided
_dtypes = frozenset(
    (
        torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.bool, torch.uint8, torch.int8, torch.int16,
        torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
    )
)  # fmt: skip
LeaveCallback = Callable[[], None]
_resolved: dict[int, tuple[Any, Any]] = {}
"""Address of an operator -> its handler, or None where torch's own kernel gives the specified bits; and the operator,
which so keeps its address. (An operator hashes its name anew each time, in Python.)"""
_resolved_by_kind: dict[TensorKind, dict[int, tuple[Any, Any]]] = {"cuda": {}, "complex": {}, "sparse": {}}
"""The same where a tensor is of such a kind."""
_complex_dtypes = frozenset((torch.complex64, torch.complex128))


_ON_CUDA, _COMPLEX_ON_CUDA, _SPARSE = 1, 2, 4


def _get_flags_or_raise_unless_meta(unusual_tensor: Any) -> int:
    """Flags: _ON_CUDA, and _COMPLEX_ON_CUDA too, or _SPARSE; 0 for a meta tensor and a complex one of the CPU. Raises
    NoPortableKernel for any other unusual tensor.
    """
    if unusual_tensor.layout is _strided:
        if unusual_tensor.is_cuda and torch.version.cuda:
            if unusual_tensor.dtype in _dtypes:
                return _ON_CUDA
            if unusual_tensor.dtype in _complex_dtypes:
                return _ON_CUDA | _COMPLEX_ON_CUDA
        elif unusual_tensor.is_cpu and unusual_tensor.dtype in _complex_dtypes:
            return 0
    elif unusual_tensor.layout in sparse.LAYOUTS and unusual_tensor.is_cpu and unusual_tensor.dtype in _dtypes:
        return _SPARSE
    raise_no_kernel_unless_meta(unusual_tensor)
    return 0


def _has_meta_tensor(flat_args: Any) -> bool:
    return any(isinstance(value, _Tensor) and value.is_meta for value in flat_args)


def _has_complex_tensor(args: Any) -> bool:
    return any(isinstance(value, _Tensor) and value.is_complex() for value in _pytree.tree_leaves(args))


def _resolve_runner_or_none_if_exact(func: OpOverload, kind: TensorKind) -> Any:
    resolved = _resolved_by_kind[kind]
    known = resolved.get(id(func))
    if known is None:
        known = resolved[id(func)] = (resolve_runner_unless_exact(func, kind), func)
    return known[0]


# A dispatch mode, though it costs more per operator than kernels at the CPU dispatch key or a torch-function mode: only
# it sees every operator, those of the backward pass too, and so can promise "the specified bits or an error"
# (decision 0020).
class PortableMode(_python_dispatch.TorchDispatchMode):
    """One for each thread that is inside. `settings`: what each nested `portable()` says of the unsupported."""

    is_portable = True
    """Tells the rooms below which mode this is (`declare.may_fuse_operators_into_one_c_call`)."""

    supports_higher_order_operators = True

    def __init__(self, unsupported: Literal["error", "warn"]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.settings = [unsupported]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import torch._dynamo at the first operator

    def __torch_dispatch__(self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            handler = _resolved[id(func)][0]
        except KeyError:
            if isinstance(func, HigherOrderOperator):
                return self._run_higher_order_operator(func, args, kwargs or {})
            handler = resolve_runner_unless_exact(func)
            _resolved[id(func)] = handler, func
        # The loops below are written out, because every operator of a program passes here: checks for the usual case
        # (dense CPU tensors) come first, and functions are called for the others alone (decision 0038).
        for kind in types:
            if kind is not _Tensor and kind.__torch_dispatch__ is not _Tensor.__torch_dispatch__:
                return NotImplemented  # it unwraps itself, and what it holds comes back here
        flags, unusual = 0, False
        try:
            for argument in args:
                if isinstance(argument, _Tensor):
                    if not (argument.is_cpu and argument.dtype in _dtypes and argument.layout is _strided):
                        unusual = True
                        flags |= _get_flags_or_raise_unless_meta(argument)
                elif type(argument) is list or type(argument) is tuple:
                    for item in argument:
                        if isinstance(item, _Tensor) and not (
                            item.is_cpu and item.dtype in _dtypes and item.layout is _strided
                        ):
                            unusual = True
                            flags |= _get_flags_or_raise_unless_meta(item)
            if flags & _SPARSE:
                if flags & _ON_CUDA:
                    raise NoPortableKernel("a sparse tensor beside one of CUDA.", "Make it dense: tensor.to_dense().")
                handler = _resolve_runner_or_none_if_exact(func, "sparse")
            elif flags:
                is_complex = bool(flags & _COMPLEX_ON_CUDA)
                handler = _resolve_runner_or_none_if_exact(func, "complex" if is_complex else "cuda")
                if handler is not None:
                    return self._run_for_cuda(handler, func, args, kwargs or {}, is_complex)
            elif (unusual and _has_meta_tensor(args)) or (kwargs and str(kwargs.get("device")) == "meta"):
                handler = None  # without values there are no bits
            elif unusual and _has_complex_tensor(args):
                handler = _resolve_runner_or_none_if_exact(func, "complex")
            if handler is None:
                out = func(*args, **kwargs) if kwargs else func(*args)
                if kwargs and isinstance(out, _Tensor) and not (out.is_cpu and out.dtype in _dtypes):
                    _get_flags_or_raise_unless_meta(out)
                return out
            return self._run_handler(handler, func, args, kwargs or {})
        except NoPortableKernel as reason:
            return self._raise_or_warn_and_run_torch(reason, func, args, kwargs or {})
        except (NotPortableError, CudaError):
            raise
        except SamerunError as error:  # a kernel refuses a type or a setting
            return self._raise_or_warn_and_run_torch(
                NoPortableKernel(error.message, error.hint), func, args, kwargs or {}
            )

    def _run_higher_order_operator(self, func: HigherOrderOperator, args: Any, kwargs: Any) -> Any:
        try:
            return higher_order.run_higher_order_operator(self, func, args, kwargs)
        except NoPortableKernel as reason:
            return self._raise_or_warn_and_run_torch(reason, func, args, kwargs)

    def _run_for_cuda(self, handler: Any, func: OpOverload, args: Any, kwargs: Any, is_complex: bool) -> Any:
        """By the kernels for CUDA; where there is none, by those for the CPU."""
        cpu_fallback.require_one_device(func, args)
        reason: Exception = NoPortableKernel("complex numbers in a CUDA graph.", "Compute with them outside of it.")
        if not is_complex:
            try:
                return self._run_handler(handler, func, args, kwargs)
            except (NoPortableKernel, SamerunError) as error:
                if isinstance(error, (NotPortableError, CudaError)):
                    raise
                reason = error
        if not cpu_fallback.can_copy_to_cpu():
            raise reason
        return cpu_fallback.run_on_cpu(self._run_on_cpu_tensors, func, args, kwargs)

    def _run_on_cpu_tensors(self, func: OpOverload, args: Any, kwargs: Any) -> Any:
        is_complex = _has_complex_tensor(args)
        handler = _resolve_runner_or_none_if_exact(func, "complex") if is_complex else _resolved[id(func)][0]
        return func(*args, **kwargs) if handler is None else self._run_handler(handler, func, args, kwargs)

    def _run_handler(self, handler: Any, func: OpOverload, args: Any, kwargs: Any) -> Any:
        try:
            return handler(self, func, args, kwargs)
        except Exception as error:
            raise_torch_error_unless_accepted(func, args, kwargs, error)
            raise NoPortableKernel(f"what it got, which torch takes: {error}") from error

    def _raise_or_warn_and_run_torch(
        self, reason: NoPortableKernel, func: OpOverload | HigherOrderOperator, args: Any, kwargs: Any
    ) -> Any:
        message, hint = explain_refusal(func, reason, find_source_location_outside_torch())
        if self.settings[-1] == "error":
            raise NotPortableError(message, hint) from None
        warnings.warn(NotPortableWarning(message), stacklevel=2)
        return func(*args, **kwargs)


def current_portable_mode() -> PortableMode | None:
    """The mode that the dispatcher has for this thread, or None."""
    for mode in reversed(_python_dispatch._get_current_dispatch_mode_stack()):
        if isinstance(mode, PortableMode):
            return mode
    return None


def enter_portable_mode(unsupported: Literal["error", "warn"]) -> LeaveCallback:
    """Put the mode in force in this thread, or nest in it; what is returned leaves again."""
    mode = current_portable_mode()
    if mode is not None:
        mode.settings.append(unsupported)
        return partial(_pop_unsupported_setting, mode.settings)
    _install_hooks_once()
    mode = PortableMode(unsupported)
    with _without_modes_above_portable():
        if not float(torch.tensor(1e-40) * torch.tensor(1.0)):
            raise SamerunError(
                "portable(): subnormal numbers are flushed to zero in this thread, but the specification keeps them.",
                "Take out torch.set_flush_denormal(True), or call torch.set_flush_denormal(False) first.",
            )
        mode.__enter__()  # type: ignore[no-untyped-call]
    return partial(_leave_mode, mode, compiled_regions.stop_compiling_frames())


_hooks_installed = False


def _install_hooks_once() -> None:
    global _hooks_installed
    composites.install_composite_kernels(current_portable_mode)
    if not _hooks_installed:
        _hooks_installed = True
        compiled_regions.install_torch_compile_hooks(current_portable_mode, find_source_location_outside_torch)
        optimizer_loops.patch_torch_optim_with_native_adam_and_sgd()
        truncated_normal.replace_torch_truncated_normal(current_portable_mode)


@contextmanager
def _without_modes_above_portable() -> Iterator[None]:
    """Take the modes of this thread off, and put them back on top.

    So the portable mode lies below all others, whenever they were entered: they see the operators that the program
    calls, with their results, and not what a kernel does in their place (memory asked for, filled through ctypes).
    """
    lifted = []
    while stack := _python_dispatch._get_current_dispatch_mode_stack():
        if isinstance(stack[-1], PortableMode):
            break
        lifted.append(stack[-1])
        _python_dispatch._pop_mode(getattr(stack[-1], "_mode_key", None))
    try:
        yield
    finally:
        for mode in reversed(lifted):
            _python_dispatch._push_mode(mode)


def _leave_mode(mode: PortableMode, resume_compiling_frames: Callable[[], object]) -> None:
    with _without_modes_above_portable():
        mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
    resume_compiling_frames()


def _pop_unsupported_setting(nested_settings: list[Any]) -> None:
    nested_settings.pop()
