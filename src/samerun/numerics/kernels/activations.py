"""gelu (both forms) and silu, and their backward, in float32. One rounding a step: `reference/elementwise.py`."""

from __future__ import annotations

import torch

from samerun.numerics.kernels import library
from samerun.numerics.kernels.tensors import call_reference, compute_type, to_dense
from samerun.numerics.reference import elementwise as reference

NAMES = ("gelu", "gelu_tanh", "silu")

_activation = library.declare_function("samerun_activation", "vipppl")


def _compute_activation_or_gradient(name: str, x: torch.Tensor, grad: torch.Tensor | None) -> torch.Tensor:
    tensors = (x,) if grad is None else (x, grad)
    dtype = compute_type(name, *tensors, types=(torch.float32,))
    if tensors[-1].shape != x.shape:
        raise RuntimeError(f"{name}: grad has shape {list(tensors[-1].shape)}, input {list(x.shape)}")
    wide = [to_dense(tensor, dtype) for tensor in tensors]
    if library.uses_native_kernels(x):
        out = torch.empty_like(wide[0])
        number = NAMES.index(name) + (0 if grad is None else len(NAMES))
        grad_address = 0 if grad is None else wide[1].data_ptr()
        _activation.for_device_of(x)(number, wide[0].data_ptr(), grad_address, out.data_ptr(), out.numel())
    else:
        function = reference.FORWARD[name] if grad is None else reference.BACKWARD[name]
        out = call_reference(function, *wide)
    return out if out.dtype == x.dtype else out.to(x.dtype)


def _gelu_variant(approximate: str) -> str:
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return "gelu_tanh" if approximate == "tanh" else "gelu"


def gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """(0.5*x) * (1 + erf(x * 0.7071...)); with approximate="tanh", the form with tanh."""
    return _compute_activation_or_gradient(_gelu_variant(approximate), x, None)


def gelu_backward(grad: torch.Tensor, x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """The gradient of x; `grad` has the shape of x."""
    return _compute_activation_or_gradient(_gelu_variant(approximate), x, grad)


def silu(x: torch.Tensor) -> torch.Tensor:
    """x * sigmoid(x)."""
    return _compute_activation_or_gradient("silu", x, None)


def silu_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The gradient of x; `grad` has the shape of x."""
    return _compute_activation_or_gradient("silu", x, grad)
