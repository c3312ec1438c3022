"""The softmax family over one dimension, in float32 and float64. One rounding a step: `reference/normalizations.py`."""

from __future__ import annotations

import math
from typing import Literal

import torch

from samerun.numerics.kernels import functions, library, sums
from samerun.numerics.kernels.tensors import (
    COMPUTE_TYPES,
    call_numpy_reference,
    detach_cast_contiguous,
    normalize_reduction_dims,
    require_opmath_dtype,
)
from samerun.numerics.reference import normalizations as reference

SoftmaxFamilyFunction = Literal["softmax", "log_softmax", "logsumexp", "softmax_backward", "log_softmax_backward"]
NAMES: tuple[SoftmaxFamilyFunction, ...] = (
    "softmax",
    "log_softmax",
    "logsumexp",
    "softmax_backward",
    "log_softmax_backward",
)

_NUMBERS = {name: number for number, name in enumerate(NAMES)}
_rows = library.declare_native_function("samerun_softmax_family_rows", "vipppll")


def compute_softmax_family_rows(
    name: SoftmaxFamilyFunction, input_or_output: torch.Tensor, grad_output: torch.Tensor | None
) -> torch.Tensor:
    """One of `NAMES` on contiguous float32 or float64 [..., n]; logsumexp makes [...]."""
    shape = input_or_output.shape
    if input_or_output.dtype is torch.float64:
        return _compute_rows_in_float64(name, input_or_output, grad_output)
    count, n = math.prod(shape[:-1]), shape[-1]
    if not library.uses_native_kernels(input_or_output):
        function = getattr(reference, name)
        flat = [each.reshape(count, n) for each in (input_or_output, grad_output) if each is not None]
        result: torch.Tensor = call_numpy_reference(function, *flat)
        return result.reshape(shape[:-1] if name == "logsumexp" else shape)
    result = input_or_output.new_empty(shape[:-1]) if name == "logsumexp" else torch.empty_like(input_or_output)
    grad_output_address = 0 if grad_output is None else grad_output.data_ptr()
    _rows.for_device_of(input_or_output)(
        _NUMBERS[name], input_or_output.data_ptr(), grad_output_address, result.data_ptr(), count, n
    )
    return result


def _compute_rows_in_float64(
    name: SoftmaxFamilyFunction, rows: torch.Tensor, grad_output: torch.Tensor | None
) -> torch.Tensor:
    """The steps of the reference, in torch's operators that round once."""
    last = rows.ndim - 1
    if grad_output is not None:
        if name == "softmax_backward":
            return (grad_output - sums.sum(grad_output * rows, last, True)) * rows
        return grad_output - functions.exp(rows) * sums.sum(grad_output, last, True)
    m = rows.amax(last, True) if rows.shape[last] else rows.new_full((*rows.shape[:last], 1), -math.inf)
    if name == "logsumexp":
        m = torch.where(torch.isinf(m), torch.zeros_like(m), m)
        return m.squeeze(last) + functions.log(sums.sum(functions.exp(rows - m), last))
    d = rows - m
    e = functions.exp(d)
    total = sums.sum(e, last, True)
    return e / total if name == "softmax" else d - functions.log(total)


def _apply_softmax_family_along(
    name: SoftmaxFamilyFunction, input_or_output: torch.Tensor, dim: int, grad_output: torch.Tensor | None = None
) -> torch.Tensor:
    """A function of rows on input_or_output [..., n, ...], with n along `dim`."""
    tensors = [input_or_output] if grad_output is None else [input_or_output, grad_output]
    dtype = require_opmath_dtype(name, *tensors, supported_dtypes=COMPUTE_TYPES)
    over = (normalize_reduction_dims(dim, input_or_output.ndim) or [0])[0]
    if grad_output is not None and grad_output.shape != input_or_output.shape:
        raise RuntimeError(f"{name}: grad has shape {list(grad_output.shape)}, output {list(input_or_output.shape)}")
    if input_or_output.ndim == 0:
        tensors = [tensor.reshape(1) for tensor in tensors]
    moved = over < input_or_output.ndim - 1
    last = [detach_cast_contiguous(tensor.movedim(over, -1) if moved else tensor, dtype) for tensor in tensors]
    result = compute_softmax_family_rows(name, last[0], None if grad_output is None else last[1])
    if name != "logsumexp" and moved:
        result = result.movedim(-1, over)
    if input_or_output.ndim == 0:
        result = result.reshape(())
    return result if result.dtype == input_or_output.dtype else result.to(input_or_output.dtype)


def softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    """m = max, e = exp(x - m), e / sum(e)."""
    return _apply_softmax_family_along("softmax", x, dim)


def log_softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    """(x - m) - log(sum(exp(x - m)))."""
    return _apply_softmax_family_along("log_softmax", x, dim)


def softmax_backward(grad_output: torch.Tensor, output: torch.Tensor, dim: int) -> torch.Tensor:
    """(grad_output - sum(grad_output * output)) * output, of what `softmax` gave."""
    return _apply_softmax_family_along("softmax_backward", output, dim, grad_output)


def log_softmax_backward(grad_output: torch.Tensor, output: torch.Tensor, dim: int) -> torch.Tensor:
    """grad_output - exp(output) * sum(grad_output), of what `log_softmax` gave."""
    return _apply_softmax_family_along("log_softmax_backward", output, dim, grad_output)


def logsumexp(x: torch.Tensor, dims: int | list[int], keepdim: bool = False) -> torch.Tensor:
    """m + log(sum(exp(x - m))) over `dims`; an infinite m is taken as 0."""
    over = normalize_reduction_dims(dims, x.ndim)
    kept = [dim for dim in range(x.ndim) if dim not in over]
    shape = [x.shape[dim] for dim in kept]
    flat = x.permute([*kept, *over]).reshape(*shape, math.prod(x.shape[dim] for dim in over))
    result = _apply_softmax_family_along("logsumexp", flat, -1)
    if keepdim:
        result = result.reshape([1 if dim in over else size for dim, size in enumerate(x.shape)])
    return result
