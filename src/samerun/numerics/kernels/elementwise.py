"""Elementwise kernels besides the functions of class R: roots, remainders, steps of optimizers, gelu and silu.

Roots and remainders are rounded once in float32 or float64; bfloat16 and float16 are widened, and the result is rounded
again. torch's own CPU kernels cannot serve: its root may be MKL's, which rounds some roots otherwise on some
processors, and its vectorized remainder gives NaN for large quotients, so that a result depends on where an element
lies. gelu (both forms), silu and their backward are computed in float32, one rounding a step:
`reference/elementwise.py`.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from samerun.numerics.kernels import library
from samerun.numerics.kernels.functions import erf, exp, sigmoid, tanh
from samerun.numerics.kernels.tensors import call_numpy_reference, detach_cast_contiguous, require_opmath_dtype
from samerun.numerics.reference import elementwise as reference

_roots = library.declare_native_function("samerun_square_roots", "vippl")


def sqrt(x: torch.Tensor) -> torch.Tensor:
    """The square root of every element; NaN below 0, and -0.0 of -0.0.

    Raises SamerunError for types that are not floating.
    """
    wide = detach_cast_contiguous(x, require_opmath_dtype("sqrt", x))
    if library.uses_native_kernels(x):
        out = torch.empty_like(wide)
        _roots.for_device_of(wide)(wide.dtype is torch.float64, wide.data_ptr(), out.data_ptr(), wide.numel())
    else:
        with np.errstate(invalid="ignore"):
            out = call_numpy_reference(np.sqrt, wide.reshape(-1)).reshape(wide.shape)
    return out if x.dtype == out.dtype else out.to(x.dtype)


_remainders = library.declare_native_function("samerun_remainders", "viipppl")


def fmod(x: Any, y: Any) -> Tensor:
    """x - y * trunc(x / y), with the sign of x. Tensors or one tensor and a number, as `torch.fmod` takes them."""
    return _compute_remainder(x, y, False)


def remainder(x: Any, y: Any) -> Tensor:
    """r = fmod(x, y); r + y where r is not 0 and has not the sign of y. As `torch.remainder` takes them."""
    return _compute_remainder(x, y, True)


def _compute_remainder(x: Any, y: Any, floored: bool) -> Tensor:
    tensor = x if isinstance(x, Tensor) else y
    dtype = torch.result_type(x, y)
    if not dtype.is_floating_point or library.is_off_cpu(tensor):  # whole numbers; CUDA's own functions are exact
        return compute_torch_remainder(x, y, floored)
    wide = require_opmath_dtype("remainder" if floored else "fmod", torch.empty(0, dtype=dtype))
    pair = (each.to(dtype) if isinstance(each, Tensor) else torch.full((), float(each), dtype=wide) for each in (x, y))
    dividend, divisor = (detach_cast_contiguous(each, wide) for each in torch.broadcast_tensors(*pair))  # type: ignore[no-untyped-call]
    if library.uses_native_kernels(dividend):
        result = torch.empty_like(dividend)
        _remainders.for_device_of(dividend)(
            wide is torch.float64, floored, dividend.data_ptr(), divisor.data_ptr(), result.data_ptr(), dividend.numel()
        )
    else:
        with np.errstate(all="ignore"):
            result = call_numpy_reference(_floored_remainder if floored else np.fmod, dividend, divisor)
    return result.to(dtype)


def compute_torch_remainder(x: Any, y: Any, floored: bool) -> Tensor:
    out: Tensor = (torch.remainder if floored else torch.fmod)(x, y)
    return out


def _floored_remainder(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[Any]:
    r = np.fmod(x, y)
    floored: npt.NDArray[Any] = np.where((r != 0) & ((y < 0) != (r < 0)), r + y, r).astype(r.dtype)
    return floored


FusedUpdateName = Literal["lerp", "addcmul", "addcdiv"]
FUSED_UPDATE_NAMES: tuple[FusedUpdateName, ...] = ("lerp", "addcmul", "addcdiv")
"""x + (y - x) * value, x + (y * value) * z, x + (y * value) / z."""

_LARGEST = 3.4028234663852886e38
_update = library.declare_native_function("samerun_lerp_addcmul_or_addcdiv_inplace", "vipppfl")


def try_fused_update_in_place(
    name: FusedUpdateName, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, value: float
) -> bool:
    """Write the result into x, and say so; False, with nothing done, for what the kernel does not take.

    It takes float32 of one shape on the CPU that lies in one piece, and `value` in the range of float32, to which it is
    rounded.
    """
    if not library.is_available() or not isinstance(value, (int, float)) or not -_LARGEST <= value <= _LARGEST:
        return False
    n, address = x.numel(), x.data_ptr()
    for tensor in (x, y, z):
        if library.is_off_cpu(tensor) or tensor.dtype is not torch.float32:
            return False
        if tensor.shape != x.shape or not tensor.is_contiguous():
            return False
        if tensor.is_neg() or 0 < abs(tensor.data_ptr() - address) < 4 * n:
            return False
    _update(FUSED_UPDATE_NAMES.index(name), address, y.data_ptr(), z.data_ptr(), value, n)
    return True


ActivationName = Literal["gelu", "gelu_tanh", "silu"]
ACTIVATION_NAMES: tuple[ActivationName, ...] = ("gelu", "gelu_tanh", "silu")

_activation = library.declare_native_function("samerun_map_activation", "vipppl")


ROOT_OF_HALF = 0.70710678118654752
DENSITY = 0.39894228040143268
ROOT_OF_TWO_OVER_PI = 0.79788456080286536
CUBIC = 0.044715


def _compute_gelu_or_silu_of_float64(name: str, x: Tensor, grad: Tensor | None = None) -> Tensor:
    """ "gelu", "gelu_tanh" or "silu" of x, or the gradient of x."""
    if name == "silu":
        s = sigmoid(x)
        return x * s if grad is None else grad * (s * (1 + x * torch.rsub(s, 1)))
    if name == "gelu":
        below = 1 + erf(x * ROOT_OF_HALF)
        if grad is None:
            return (0.5 * x) * below
        return grad * (0.5 * below + x * (exp((x * x) * -0.5) * DENSITY))
    cube = (x * x) * x
    t = tanh(ROOT_OF_TWO_OVER_PI * (x + CUBIC * cube))
    if grad is None:
        return (0.5 * x) * (1 + t)
    inside = ROOT_OF_TWO_OVER_PI * (1 + (3 * CUBIC) * (x * x))
    return grad * (0.5 * (1 + t) + ((0.5 * x) * torch.rsub(t * t, 1)) * inside)


def _compute_activation_or_gradient(name: ActivationName, x: torch.Tensor, grad: torch.Tensor | None) -> torch.Tensor:
    tensors = (x,) if grad is None else (x, grad)
    dtype = require_opmath_dtype(name, *tensors)
    if tensors[-1].shape != x.shape:
        raise RuntimeError(f"{name}: grad has shape {list(tensors[-1].shape)}, input {list(x.shape)}")
    wide = [detach_cast_contiguous(tensor, dtype) for tensor in tensors]
    if dtype is torch.float64:
        return _compute_gelu_or_silu_of_float64(name, *wide)
    if library.uses_native_kernels(x):
        out = torch.empty_like(wide[0])
        number = ACTIVATION_NAMES.index(name) + (0 if grad is None else len(ACTIVATION_NAMES))
        grad_address = 0 if grad is None else wide[1].data_ptr()
        _activation.for_device_of(x)(number, wide[0].data_ptr(), grad_address, out.data_ptr(), out.numel())
    else:
        function = reference.ACTIVATIONS[name] if grad is None else reference.ACTIVATIONS_BACKWARD[name]
        out = call_numpy_reference(function, *wide)
    return out if out.dtype == x.dtype else out.to(x.dtype)


def _gelu_variant(approximate: str) -> ActivationName:
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
