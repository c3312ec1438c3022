"""Class S: sums over any dimensions of float32 and float64; bfloat16 and float16 compute in float32.

`dims`: a dimension, several, or None for all. The order of the terms is that of the reduced dimensions, row-major.
Every result is rounded to the type of x once. Also the largest and smallest value along dimensions, IEEE 754's: a NaN
wins, and -0.0 is less than +0.0.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from samerun.numerics.kernels import functions, library
from samerun.numerics.kernels.elementwise import sqrt
from samerun.numerics.kernels.tensors import (
    call_numpy_reference,
    detach_cast_contiguous,
    normalize_reduction_dims,
    outer_dim_inner_sizes,
    require_opmath_dtype,
)
from samerun.numerics.reference import sums as reference
from samerun.numerics.status import DONE

Dims = int | Sequence[int] | None

TreeTerm = Literal["x", "square", "square_from_center", "abs", "product"]
_TERMS: dict[TreeTerm, int] = {"x": 0, "square": 1, "square_from_center": 2, "abs": 3, "product": 4}
_sum = {
    torch.float32: library.declare_native_function("samerun_sum32", "iipppippu"),
    torch.float64: library.declare_native_function("samerun_sum64", "iipppippu"),
}
_row_sums = {
    torch.float32: library.declare_native_function("samerun_row_sums32", "iippplld"),
    torch.float64: library.declare_native_function("samerun_row_sums64", "iippplld"),
}
with _disable_current_modes():  # this file may be imported by an operator that a mode of the program's sees
    _total = {
        each: (
            library.declare_native_function(f"samerun_total{each.itemsize * 8}", "ippl"),
            torch.zeros((), dtype=each),
        )
        for each in (torch.float32, torch.float64)
    }
_cumulate = {
    torch.float32: library.declare_native_function("samerun_cumulate32", "vipplll"),
    torch.float64: library.declare_native_function("samerun_cumulate64", "vipplll"),
}


def tree_sum(
    term: TreeTerm, x: torch.Tensor, dims: list[int], center: torch.Tensor | None = None, divisor: float = 1
) -> torch.Tensor:
    """The class S tree of the terms, divided by `divisor` (rounded to the type first) unless that is 1.

    `x`: float32 or float64. `center`: one value for each result, contiguous.
    """
    size = x.shape
    here, first = not library.is_off_cpu(x), x.ndim - len(dims)
    if here and not library.is_available():
        return _tree_sum_by_reference(term, x, dims, center, divisor)
    where = 0 if center is None else center.data_ptr()
    if here and (not dims or dims[0] == first) and x.is_contiguous():
        shape = list(size)[:first]  # of a torch.Size it takes a third longer
        out = x.new_empty(shape)
        count, n = (math.prod(shape), math.prod(size[first:])) if shape else (1, x.numel())
        status = _row_sums[x.dtype].for_device_of(x)(
            _TERMS[term], x.data_ptr(), where, out.data_ptr(), count, n, divisor
        )
        divisor = 1
    else:
        out = x.new_empty([each for dim, each in enumerate(size) if dim not in dims])
        layout, mask = array("q", (*size, *x.stride())), 0
        at = layout.buffer_info()[0]
        for dim in dims:
            mask |= 1 << dim
        total = _sum[x.dtype].for_device_of(x)
        status = total(_TERMS[term], x.data_ptr(), where, out.data_ptr(), x.ndim, at, at + 8 * x.ndim, mask)
    if status != DONE:
        raise MemoryError(f"no memory for the block sums of {x.numel()} values")
    return out if divisor == 1 else _divide_unless_one(out, divisor)


def _tree_sum_by_reference(
    term: TreeTerm, x: torch.Tensor, dims: list[int], center: torch.Tensor | None, divisor: float
) -> torch.Tensor:
    kept = [dim for dim in range(x.ndim) if dim not in dims]
    shape = [x.shape[dim] for dim in kept]
    rows = x.permute([*kept, *dims]).reshape(math.prod(shape), math.prod(x.shape[dim] for dim in dims))
    centers = None if center is None else center.reshape(-1)
    found: torch.Tensor = call_numpy_reference(
        lambda *given: reference.tree_reduce_term_rows(term, *given), rows, centers
    )
    return _divide_unless_one(found.reshape(shape), divisor)


def _widen_and_normalize_dims(operator: str, x: torch.Tensor, dims: Dims) -> tuple[torch.Tensor, list[int]]:
    dtype = require_opmath_dtype(operator, x)
    if x.requires_grad:
        x = x.detach()
    return x if x.dtype == dtype else x.to(dtype), normalize_reduction_dims(dims, x.ndim)


def _round_and_keep_dims(result: torch.Tensor, x: torch.Tensor, dims: list[int], keepdim: bool) -> torch.Tensor:
    if keepdim:
        result = result.reshape([1 if dim in dims else size for dim, size in enumerate(x.shape)])
    return result if result.dtype == x.dtype else result.to(x.dtype)


def _count_reduced_values(x: torch.Tensor, dims: list[int]) -> int:
    return math.prod(x.shape[dim] for dim in dims)


def _divide_unless_one(result: torch.Tensor, divisor: float) -> torch.Tensor:
    """One rounding; `divisor` is rounded to the type first, and changes nothing if it is 1."""
    if divisor == 1:
        return result
    if not library.is_off_cpu(result):
        return result / divisor
    return result / torch.full_like(result, divisor)  # there a number's reciprocal would be multiplied


# `_try_sum_all_contiguous` and `_try_sum_contiguous_rows` are shortcuts, not other algorithms: the C functions behind
# them take the same tree. A sum of a thousand floats spends most of its time in Python, not in the sum (decision 0038).
def _try_sum_all_contiguous(x: torch.Tensor) -> torch.Tensor | None:
    """The sum of all of x in the fewest steps, where its values lie side by side; else None.

    `tree_sum` gives the same. What its steps in Python take is a tenth of what 4 million values do.
    """
    found = _total.get(x.dtype)
    if found is None or library.is_off_cpu(x) or not x.is_contiguous() or not library.is_available():
        return None
    total, scalar = found
    out = torch.empty_like(scalar)  # in two thirds of the time that a shape takes
    if total.cpu_function_after_setting_threads()(x.data_ptr(), out.data_ptr(), x.numel()) != DONE:
        raise MemoryError(f"no memory for the block sums of {x.numel()} values")
    return out


def _try_sum_contiguous_rows(x: torch.Tensor, dims: Dims, is_mean: bool) -> torch.Tensor | None:
    """The sums or means of rows that lie side by side, or of all of x, in few steps; None for others."""
    if x.dtype not in _row_sums or library.is_off_cpu(x) or not x.is_contiguous() or not library.is_available():
        return None
    if dims is None:
        out, rows, n = x.new_empty(()), 1, x.numel()
    elif dims == x.ndim - 1 and x.ndim:
        *kept, n = x.shape
        out = x.new_empty(*kept) if kept else x.new_empty(())  # numbers are read in half the time of a torch.Size
        rows = out.numel()
    else:
        return None
    if _row_sums[x.dtype].for_device_of(x)(0, x.data_ptr(), 0, out.data_ptr(), rows, n, n if is_mean else 1) != DONE:
        raise MemoryError(f"no memory for the block sums of {x.numel()} values")
    return out


def sum(x: torch.Tensor, dims: Dims = None, keepdim: bool = False) -> torch.Tensor:
    """The sum over `dims`. Nothing sums to +0.0."""
    if (
        not keepdim
        and (out := _try_sum_all_contiguous(x) if dims is None else _try_sum_contiguous_rows(x, dims, is_mean=False))
        is not None
    ):
        return out
    wide, over = _widen_and_normalize_dims("sum", x, dims)
    return _round_and_keep_dims(tree_sum("x", wide, over), x, over, keepdim)


def prod(x: torch.Tensor, dims: Dims = None, keepdim: bool = False) -> torch.Tensor:
    """The product over `dims`, in the tree of class S. The product of nothing is 1."""
    wide, over = _widen_and_normalize_dims("prod", x, dims)
    return _round_and_keep_dims(tree_sum("product", wide, over), x, over, keepdim)


def mean(x: torch.Tensor, dims: Dims = None, keepdim: bool = False) -> torch.Tensor:
    """sum / n. The mean of nothing is NaN."""
    if not keepdim and (out := _try_sum_contiguous_rows(x, dims, is_mean=True)) is not None:
        return out
    wide, over = _widen_and_normalize_dims("mean", x, dims)
    return _round_and_keep_dims(tree_sum("x", wide, over, divisor=_count_reduced_values(x, over)), x, over, keepdim)


def var_mean(
    x: torch.Tensor, dims: Dims = None, correction: float = 1, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """The variance and the mean: m = sum(x) / n, then sum((x - m)^2) / max(0, n - correction)."""
    wide, over = _widen_and_normalize_dims("var", x, dims)
    n = _count_reduced_values(x, over)
    center = tree_sum("x", wide, over, divisor=n)
    variance = tree_sum("square_from_center", wide, over, center, divisor=max(0, n - correction))
    return _round_and_keep_dims(variance, x, over, keepdim), _round_and_keep_dims(center, x, over, keepdim)


def var(x: torch.Tensor, dims: Dims = None, correction: float = 1, keepdim: bool = False) -> torch.Tensor:
    """The variance; see `var_mean`."""
    return var_mean(x, dims, correction, keepdim)[0]


def std(x: torch.Tensor, dims: Dims = None, correction: float = 1, keepdim: bool = False) -> torch.Tensor:
    """The square root of the variance, before that is rounded to the type of x."""
    wide, over = _widen_and_normalize_dims("std", x, dims)
    return _round_and_keep_dims(sqrt(var(wide, over, correction)), x, over, keepdim)


def vector_norm(x: torch.Tensor, order: float = 2, dims: Dims = None, keepdim: bool = False) -> torch.Tensor:
    """The vector norm: order 2 is sqrt(sum(x*x)), 1 sum(|x|), 0 the number of values that are not 0, inf and -inf
    the largest and smallest |x|. Other orders: |x|^order summed, then to the power 1/order.
    """
    wide, over = _widen_and_normalize_dims("norm", x, dims)
    if order == 2:
        result = sqrt(tree_sum("square", wide, over))
    elif order == 1:
        result = tree_sum("abs", wide, over)
    elif order == 0:
        result = tree_sum("x", (wide != 0).to(wide.dtype), over)
    elif math.isinf(order):
        result = wide.abs().amax(over) if order > 0 else wide.abs().amin(over)
    else:
        terms = functions.pow(wide.abs(), torch.full_like(wide, order))
        result = tree_sum("x", terms, over)
        result = functions.pow(result, torch.full_like(result, 1 / order))
    return _round_and_keep_dims(result, x, over, keepdim)


def _cumulate_along(operator: str, is_product: bool, x: torch.Tensor, dim: int) -> torch.Tensor:
    wide = detach_cast_contiguous(x, require_opmath_dtype(operator, x))
    outer, n, inner = outer_dim_inner_sizes(wide, *normalize_reduction_dims(dim, x.ndim) or [0])
    if not library.uses_native_kernels(x):
        shaped = wide.reshape(outer, n, inner)
        found: torch.Tensor = call_numpy_reference(
            lambda given: reference.cumulative_sum_or_product_along_dim_1(is_product, given), shaped
        )
        return found.reshape(x.shape).to(x.dtype)
    out = torch.empty_like(wide)
    _cumulate[wide.dtype].for_device_of(wide)(is_product, wide.data_ptr(), out.data_ptr(), outer, n, inner)
    return out.to(x.dtype)


def cumsum(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Running sums along `dim`, one addition after the other."""
    return _cumulate_along("cumsum", False, x, dim)


def cumprod(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Running products along `dim`, one multiplication after the other."""
    return _cumulate_along("cumprod", True, x, dim)


def _fix_sign_of_zero_extremum(result: Tensor, x: Tensor, dims: list[int], keepdim: bool, is_max: bool) -> Tensor:
    """Where the result is a zero, its sign: + for the largest if any value is +0.0."""
    if not result.is_floating_point() or (not library.is_off_cpu(x) and not bool((result == 0).any())):
        return result
    deciding_zeros = torch.logical_and(x == 0, torch.signbit(x).logical_xor(torch.full((), is_max, device=x.device)))
    any_deciding = deciding_zeros.any() if x.dim() == 0 else torch.sum(deciding_zeros, dims, keepdim) > 0
    sign = any_deciding if is_max else any_deciding.logical_not()
    zero = torch.where(sign, torch.zeros_like(result), torch.full_like(result, -0.0))
    return torch.where(result == 0, zero, result)


def _dims_as_given_or_all(x: Tensor, dim: Dims) -> list[int]:
    dims = [dim] if isinstance(dim, int) else list(dim or ())
    return dims or list(range(x.dim()))


def amax(x: Tensor, dim: int | list[int] | tuple[int, ...] = (), keepdim: bool = False) -> Tensor:
    """The largest over `dim` (one, several, or all where empty)."""
    return _fix_sign_of_zero_extremum(torch.amax(x, dim, keepdim), x, _dims_as_given_or_all(x, dim), keepdim, True)


def amin(x: Tensor, dim: int | list[int] | tuple[int, ...] = (), keepdim: bool = False) -> Tensor:
    """The smallest over `dim` (one, several, or all where empty)."""
    return _fix_sign_of_zero_extremum(torch.amin(x, dim, keepdim), x, _dims_as_given_or_all(x, dim), keepdim, False)
