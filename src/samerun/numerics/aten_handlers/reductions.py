"""Class S: sums, means, variances, norms and cumulative operators. Sums of integers are exact in any order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import Members, require_floating_or_complex_dtype, widen_half_inputs
from samerun.numerics.kernels import ordered_scatter, sums

CHUNK_VALUES = 1 << 18
"""Products that are held in memory together: what the cache holds."""


def _to_dtype_if_given(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    return x if dtype is None or x.dtype is dtype else x.to(dtype)


def _accumulates_in_non_float(x: Tensor, dtype: torch.dtype | None) -> bool:
    return not (x.is_floating_point() if dtype is None else dtype.is_floating_point)


def sum(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    if _accumulates_in_non_float(x, dtype):
        return torch.sum(x, dim, keepdim, dtype=dtype) if dim else torch.sum(x, dtype=dtype)
    return sums.sum(_to_dtype_if_given(x, dtype), dim or None, keepdim)


def sum_of_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    return sum(x, dtype=dtype) if dtype or x.dtype is not torch.float32 else sums.sum(x)


def mean(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    if _accumulates_in_non_float(x, dtype):
        raise RuntimeError(f"mean(): expected a floating point type, got {x.dtype}; pass dtype=torch.float32")
    return sums.mean(_to_dtype_if_given(x, dtype), dim or None, keepdim)


def mean_of_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    return mean(x, dtype=dtype)


def _correction_or_one(correction: Any) -> float:
    return 1 if correction is None else float(correction)


def _make_correction_handler(compute: Callable[..., Any]) -> Callable[..., Any]:
    def corrected(x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
        return compute(x, dim or None, _correction_or_one(correction), keepdim)

    return corrected


def vector_norm(
    x: Tensor, order: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    require_floating_or_complex_dtype(x.dtype)
    dims = [dim] if isinstance(dim, int) else dim
    return sums.vector_norm(_to_dtype_if_given(x, dtype), 2 if order is None else float(order), dims or None, keepdim)


def prod_of_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    return (
        torch.prod(x, dtype=dtype) if _accumulates_in_non_float(x, dtype) else sums.prod(_to_dtype_if_given(x, dtype))
    )


def prod_along_dim(x: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    if _accumulates_in_non_float(x, dtype):
        return torch.prod(x, dim, keepdim, dtype=dtype)
    return sums.prod(_to_dtype_if_given(x, dtype), dim, keepdim)


def cumsum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    return (
        torch.cumsum(x, dim, dtype=dtype)
        if _accumulates_in_non_float(x, dtype)
        else sums.cumsum(_to_dtype_if_given(x, dtype), dim)
    )


def cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    return (
        torch.cumprod(x, dim, dtype=dtype)
        if _accumulates_in_non_float(x, dtype)
        else sums.cumprod(_to_dtype_if_given(x, dtype), dim)
    )


def trace(x: Tensor) -> Tensor:
    if x.dim() != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {x.dim()}")
    return sum(x.diagonal())


def nansum(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    return sum(torch.where(torch.isnan(x), torch.zeros_like(x), x), dim, keepdim, dtype=dtype)


def sort(x: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> tuple[Tensor, Tensor]:
    """Stable, whether that is asked for or not."""
    values, places = torch.sort(x, dim=dim, descending=descending, stable=True)
    return values, places


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """The first k of a stable sort: ties go to the lower index."""
    values, places = torch.sort(x, dim=dim, descending=largest, stable=True)
    if k > (x.shape[dim] if x.dim() else 1):
        raise RuntimeError(f"topk: k={k} is more than the {x.shape[dim] if x.dim() else 1} values of dimension {dim}")
    if x.dim() == 0:
        return values, places
    return values.narrow(dim, 0, k).contiguous(), places.narrow(dim, 0, k).contiguous()


def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Weights are added in ascending order of their index."""
    if weights is None:
        return torch.bincount(x, None, minlength)
    size = max(minlength, int(x.max()) + 1 if x.numel() else 0)
    wide = weights if weights.dtype is torch.float32 else weights.double()
    return ordered_scatter.index_add_(torch.zeros(size, dtype=wide.dtype, device=x.device), 0, x, wide)


@widen_half_inputs
def trilinear(
    a: Tensor, b: Tensor, c: Tensor, expand_a: Sequence[int], expand_b: Sequence[int], expand_c: Sequence[int],
    dims: Sequence[int], unroll: int = 1,
) -> Tensor:  # fmt: skip
    """Class S over dims of (a * b) * c, each with dimensions of 1 where it is expanded. (nn.Bilinear calls it.)"""
    given = []
    for x, expand in ((a, expand_a), (b, expand_b), (c, expand_c)):
        for dim in sorted(expand):
            x = x.unsqueeze(dim)
        given.append(x)
    shape = torch.broadcast_shapes(*(x.shape for x in given))  # type: ignore[no-untyped-call]
    if not dims:
        return torch.mul(torch.mul(given[0], given[1]), given[2])
    kept = [dim for dim in range(len(shape)) if dim not in dims]
    if not kept:
        return sums.sum(torch.mul(torch.mul(given[0], given[1]), given[2]), list(dims))
    most = max(kept, key=lambda dim: int(shape[dim]))  # along it the products are taken in parts
    step = max(1, CHUNK_VALUES // max(math.prod(shape) // max(shape[most], 1), 1))
    found = []
    for at in range(0, max(shape[most], 1), step):
        size = min(step, shape[most] - at)
        x, y, z = (each if each.shape[most] == 1 else each.narrow(most, at, size) for each in given)
        found.append(sums.sum(torch.mul(torch.mul(x, y), z), list(dims)))
    return found[0] if len(found) == 1 else torch.cat(found, kept.index(most))


MEMBERS: Members = {
    "aten::sum": sum_of_all,
    "aten::sum.dim_IntList": sum,
    "aten::mean": mean_of_all,
    "aten::mean.dim": mean,
    "aten::var.correction": _make_correction_handler(sums.var),
    "aten::std.correction": _make_correction_handler(sums.std),
    "aten::var_mean.correction": _make_correction_handler(sums.var_mean),
    "aten::linalg_vector_norm": vector_norm,
    "aten::norm.Scalar": lambda x, p=2: vector_norm(x, p),
    "aten::norm.ScalarOpt_dim": vector_norm,
    "aten::prod": prod_of_all,
    "aten::prod.dim_int": prod_along_dim,
    "aten::cumsum": cumsum,
    "aten::cumprod": cumprod,
    "aten::trace": trace,
    "aten::nansum": nansum,
    "aten::sort": sort,
    "aten::topk": topk,
    "aten::bincount": bincount,
    "aten::_trilinear": trilinear,
}
