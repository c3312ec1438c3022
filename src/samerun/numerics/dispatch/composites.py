"""Kernels for operators that torch takes apart before a dispatch mode sees them, and takes apart in several ways.

Which way it goes depends on the machine and on what libraries torch was built with. Each kernel looks whether its
thread is inside `portable()`; outside it calls what torch would have called.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch._ops import OpOverload

from samerun.numerics.aten_handlers import recurrent
from samerun.numerics.aten_handlers.attention import scaled_dot_product_attention
from samerun.numerics.aten_handlers.checks import AcceptedShapesAndDtypes, raise_torch_error_unless_accepted
from samerun.numerics.aten_handlers.norms import rms_norm

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_aten = torch.ops.aten


def _resolve_aten_overload(name: str) -> OpOverload:
    packet, _, overload = name.partition(".")
    found: OpOverload = getattr(getattr(_aten, packet), overload or "default")
    return found


_PORTABLE_KERNELS: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": scaled_dot_product_attention,
    "rms_norm": rms_norm,
    **{name.removeprefix("aten::"): handler for name, handler in recurrent.COMPOSED.items()},
}


def dropout_as_on_cpu(x: Tensor, p: float, train: bool) -> Tensor:
    """The steps that torch takes on the CPU. (On CUDA it fuses them, with another last one.)"""
    if not train or p == 0 or x.numel() == 0:
        return x
    noise = torch.empty_like(x).bernoulli_(1 - p) if p < 1 else torch.zeros_like(x)
    return x * (noise.div_(1 - p) if p < 1 else noise)


def ctc_loss_on_one_device(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, *settings: Any
) -> Tensor:
    """Under a dispatch mode torch divides a loss on CUDA by lengths on the CPU, where programs leave them."""
    on_device = (each.to(log_probs.device) for each in (targets, input_lengths, target_lengths))
    loss: Tensor = _aten.ctc_loss.Tensor._op_dk(_COMPOSITE, log_probs, *on_device, *settings)
    return loss


_ON_CUDA: dict[str, Callable[..., Any]] = {
    "dropout": dropout_as_on_cpu, "ctc_loss.Tensor": ctc_loss_on_one_device
}  # fmt: skip

_lock = threading.Lock()
_installed: list[torch.library.Library] = []


def install_composite_kernels(get_portable_mode: Callable[[], Any]) -> None:
    """Put the kernels into torch's dispatcher, once a process. `get_portable_mode()` is None outside `portable()`."""
    with _lock:
        if _installed:
            return
        library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
        for name, portable_kernel in _PORTABLE_KERNELS.items():
            for key in ("AutogradCPU", "AutogradCUDA"):
                kernel = _make_portable_or_torch_kernel(
                    _resolve_aten_overload(name), portable_kernel, get_portable_mode
                )
                library.impl(name, kernel, key)  # type: ignore[no-untyped-call]
        for name, portable_kernel in _ON_CUDA.items():
            kernel = _make_portable_or_torch_kernel(_resolve_aten_overload(name), portable_kernel, get_portable_mode)
            library.impl(name, kernel, "AutogradCUDA")  # type: ignore[no-untyped-call]
        _installed.append(library)


def _make_portable_or_torch_kernel(
    torch_operator: OpOverload, portable_kernel: Callable[..., Any], get_portable_mode: Callable[[], Any]
) -> Callable[..., Any]:
    accepted = AcceptedShapesAndDtypes()

    def kernel(*args: Any, **kwargs: Any) -> Any:
        if get_portable_mode() is None:
            return torch_operator._op_dk(_COMPOSITE, *args, **kwargs)
        if peek_interpreter_stack() is not None:
            # torch.func's tensors are wrapped, and torch cannot be asked what it thinks of them here. What a kernel is
            # written in comes back to the mode, which asks for each of those.
            return portable_kernel(*args, **kwargs)
        accepted.ask_torch_if_new_and_raise_refusal(torch_operator, args, kwargs)
        try:
            return portable_kernel(*args, **kwargs)
        except Exception as error:
            raise_torch_error_unless_accepted(torch_operator, args, kwargs, error)
            raise

    return kernel
