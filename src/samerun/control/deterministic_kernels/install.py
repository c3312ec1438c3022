"""Put the table's kernels into torch's dispatcher, and take them out again.

They are registered for a dispatch key ("CUDA", "CPU"), over torch's own kernels: user code, autograd and C++ find
them without a word. The kernel that was there before is kept, and called for what the table does not cover, and
where a program has switched torch's deterministic mode off itself.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.library import Library, get_kernel

from samerun.control.deterministic_kernels.declare import Kernel
from samerun.control.deterministic_kernels.table import OPERATORS

_lock = threading.RLock()
_library: Library | None = None


class KernelEntry(NamedTuple):
    overload: str
    dispatch_key: str
    kernel: Kernel


def iterate_kernels_for_torch_build() -> Iterator[KernelEntry]:
    """Every kernel of the table, for each overload and dispatch key, that this build of torch has a use for."""
    absent = {"CUDA"} if torch.version.cuda is None and torch.version.hip is None else set()
    for operator in OPERATORS:
        for kernel in operator.kernels:
            for overload in kernel.overloads:
                for key in kernel.keys:
                    if key.removeprefix("Quantized") not in absent:
                        yield KernelEntry(overload, key, kernel)


def install() -> None:
    """Put the table's kernels in force for the whole process, unless they are."""
    global _library
    with _lock:
        if _library is not None:
            return
        library = Library("aten", "IMPL")  # type: ignore[no-untyped-call]
        try:
            for overload, key, kernel in iterate_kernels_for_torch_build():
                override_kernel_when_deterministic(library, overload, key, kernel)
        except BaseException:
            library._destroy()  # type: ignore[no-untyped-call]
            raise
        _library = library


def uninstall() -> None:
    """Give torch's own kernels back."""
    global _library
    with _lock:
        if _library is not None:
            _library._destroy()  # type: ignore[no-untyped-call]
            _library = None


def installed_provider() -> Literal["samerun", "torch", "mixed"]:
    """Whose kernels the dispatcher has now; "mixed": another library has put kernels over ours."""
    ours = {_dispatches_to_samerun(overload, key) for overload, key, _ in iterate_kernels_for_torch_build()}
    return "mixed" if len(ours) > 1 else "samerun" if ours == {True} else "torch"


def _dispatches_to_samerun(overload: str, dispatch_key: str) -> bool:
    # The dispatcher tells where a kernel was registered: by a Library that was made in this file.
    return __file__ in str(get_kernel(f"aten::{overload}", dispatch_key))


def override_kernel_when_deterministic(library: Library, overload: str, dispatch_key: str, kernel: Kernel) -> None:
    """Register one kernel over the one that is there now."""
    dispatched = _make_kernel_with_fallback_to_torch(overload, dispatch_key, kernel)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel", UserWarning)
        library.impl(overload, dispatched, dispatch_key, with_keyset=True)  # type: ignore[no-untyped-call]


def _make_kernel_with_fallback_to_torch(overload: str, dispatch_key: str, kernel: Kernel) -> Callable[..., Any]:
    """`kernel` as the dispatcher calls it: for overloads that write into an argument too."""
    name = f"aten::{overload}"
    original = (
        get_kernel(name, dispatch_key) if torch._C._dispatch_has_kernel_for_dispatch_key(name, dispatch_key) else None
    )
    packet, _, rest = overload.partition(".")
    arguments = getattr(getattr(torch.ops.aten, packet), rest or "default")._schema.arguments
    outs = [argument.name for argument in arguments if argument.is_out]
    writes = arguments[0].alias_info is not None and arguments[0].alias_info.is_write and not outs
    compute, applies = kernel.compute, kernel.applies
    deterministic = torch._C._get_deterministic_algorithms

    def dispatched(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        inputs = {name: value for name, value in kwargs.items() if name not in outs}
        if original is not None and not (deterministic() and applies(*args, **inputs)):
            return original.call_boxed(keyset, *args, **kwargs)
        into = [kwargs[name] for name in outs]
        result = compute(*args, **inputs)
        if writes:
            return args[0] if result is args[0] else args[0].copy_(result)
        if not outs:
            return result
        for target, value in zip(into, result if isinstance(result, tuple) else (result,), strict=True):
            _resize_and_copy(target, value)
        return into[0] if len(into) == 1 else tuple(into)

    return dispatched


def _resize_and_copy(target: Tensor, value: Tensor) -> None:
    if target.shape != value.shape:
        target.resize_(value.shape)
    target.copy_(value)
