"""Class R: correctly rounded functions of float32 and float64. bfloat16 and float16 are widened to float32, and that
result is rounded again.

In float64 the C library finds nearly every result, and says where it is in doubt; the reference computes those. Tensors
of a CUDA device are computed on the CPU then.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from samerun.numerics.kernels import library
from samerun.numerics.kernels.tensors import call_numpy_reference, detach_cast_contiguous, require_opmath_dtype
from samerun.numerics.reference import elementwise as reference

NAMES: tuple[str, ...] = (
    *("exp", "exp2", "expm1", "sinh", "cosh", "tanh", "asin", "acos", "atan", "erf", "erfc", "rsqrt", "reciprocal"),
    *("cbrt", "sigmoid", "log", "log2", "log10", "log1p", "asinh", "acosh", "atanh", "sin", "cos", "tan"),
)
"""In the order of their numbers in the library (native/functions/float_functions.h)."""

_NUMBERS = {name: number for number, name in enumerate(NAMES)}

PAIR_NAMES = ("pow", "atan2", "hypot")

_pair_function = library.declare_native_function("samerun_map_binary_function", "vipppl")
_function = library.declare_native_function("samerun_map_function", "vippl")
_function64 = library.declare_native_function("samerun_map_float64_function", "vipppl")
_pair_function64 = library.declare_native_function("samerun_map_float64_binary_function", "vippppl")


def apply_correctly_rounded(function_name: str, x: torch.Tensor) -> torch.Tensor:
    """The correctly rounded `name` (one of `NAMES`) of every element.

    Raises SamerunError for types that are not floating.
    """
    if x.dtype is torch.float64:
        return _apply_correctly_rounded_float64(function_name, x)
    wide = detach_cast_contiguous(x, require_opmath_dtype(function_name, x, supported_dtypes=(torch.float32,)))
    if library.uses_native_kernels(x):
        out = torch.empty_like(wide)
        _function.for_device_of(wide)(_NUMBERS[function_name], wide.data_ptr(), out.data_ptr(), wide.numel())
    else:
        out = call_numpy_reference(lambda given: reference.apply_correctly_rounded(function_name, given), wide)
    return out if x.dtype == out.dtype else out.to(x.dtype)


def apply_correctly_rounded_binary(function_name: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The correctly rounded `name` (one of `PAIR_NAMES`) of every x and y, broadcast against each other.

    Raises SamerunError for types that are not floating, or two of them.
    """
    if x.dtype is torch.float64 and y.dtype is torch.float64:
        return _apply_correctly_rounded_float64(function_name, *torch.broadcast_tensors(x, y))  # type: ignore[no-untyped-call]
    dtype = require_opmath_dtype(function_name, x, y, supported_dtypes=(torch.float32,))
    wide, other = (detach_cast_contiguous(each, dtype) for each in torch.broadcast_tensors(x, y))  # type: ignore[no-untyped-call]
    if library.uses_native_kernels(x):
        out = torch.empty_like(wide)
        number = PAIR_NAMES.index(function_name)
        _pair_function.for_device_of(wide)(number, wide.data_ptr(), other.data_ptr(), out.data_ptr(), wide.numel())
    else:
        out = call_numpy_reference(
            lambda *given: reference.apply_correctly_rounded_binary(function_name, *given), wide, other
        )
    return out if x.dtype == out.dtype else out.to(x.dtype)


def _apply_correctly_rounded_float64(function_name: str, *arguments: torch.Tensor) -> torch.Tensor:
    given = [detach_cast_contiguous(each.cpu(), torch.float64) for each in arguments]
    if not library.is_available():
        out: torch.Tensor = call_numpy_reference(
            lambda *arrays: reference.apply_correctly_rounded_float64(function_name, *arrays), *given
        )
        return out.to(arguments[0].device)
    out, in_doubt = torch.empty_like(given[0]), torch.zeros(given[0].shape, dtype=torch.uint8)
    function, number = (
        (_function64, _NUMBERS[function_name])
        if len(given) == 1
        else (_pair_function64, PAIR_NAMES.index(function_name))
    )
    addresses = [each.data_ptr() for each in (*given, out, in_doubt)]
    function.cpu_function_after_setting_threads()(number, *addresses, out.numel())
    if bool(in_doubt.any()):
        where = in_doubt.to(torch.bool)
        out[where] = call_numpy_reference(
            lambda *arrays: reference.apply_correctly_rounded_float64(function_name, *arrays),
            *(each[where] for each in given),
        )
    return out.to(arguments[0].device)


def pow(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The correctly rounded power x^y; odd values as in C."""
    return apply_correctly_rounded_binary("pow", x, y)


def atan2(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The correctly rounded angle of the points (x, y)."""
    return apply_correctly_rounded_binary("atan2", y, x)


def hypot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The correctly rounded sqrt(x^2 + y^2)."""
    return apply_correctly_rounded_binary("hypot", x, y)


def _make_correctly_rounded_unary(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    def function(x: torch.Tensor) -> torch.Tensor:
        return apply_correctly_rounded(name, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The correctly rounded {name} of every element; see `apply_correctly_rounded`."
    return function


exp, exp2, expm1, sinh, cosh, tanh, asin, acos, atan, erf, erfc, rsqrt, reciprocal, cbrt = map(
    _make_correctly_rounded_unary, NAMES[:14]
)
sigmoid, log, log2, log10, log1p, asinh, acosh, atanh, sin, cos, tan = map(_make_correctly_rounded_unary, NAMES[14:])
