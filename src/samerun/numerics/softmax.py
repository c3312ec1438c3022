"""The softmax family over one dimension, in float32. One rounding a step: `reference/softmax.py`."""

from __future__ import annotations

import math

import torch

from samerun.numerics import library
from samerun.numerics.reference import softmax as reference
from samerun.numerics.tensors import by_reference, compute_type, dense, dimensions

NAMES = ("softmax", "log_softmax", "logsumexp", "softmax_backward", "log_softmax_backward")

_rows = library.function("samerun_rows", "vipppll")


def rows(name: str, x: torch.Tensor, grad: torch.Tensor | None) -> torch.Tensor:
    """One of `NAMES` on contiguous float32 [rows, n]; logsumexp makes [rows]."""
    if not library.computes(x):
        function = getattr(reference, name)
        result: torch.Tensor = by_reference(function, x) if grad is None else by_reference(function, x, grad)
        return result
    out = x.new_empty(x.shape[0]) if name == "logsumexp" else torch.empty_like(x)
    where = 0 if grad is None else grad.data_ptr()
    _rows.on(x)(NAMES.index(name), x.data_ptr(), where, out.data_ptr(), x.shape[0], x.shape[1])
    return out


def _along(name: str, x: torch.Tensor, dim: int, grad: torch.Tensor | None = None) -> torch.Tensor:
    given = (x,) if grad is None else (x, grad)
    dtype = compute_type(name, *given, types=(torch.float32,))
    over = (dimensions(dim, x.ndim) or [0])[0]
    last = [dense(each.reshape(1) if each.ndim == 0 else each.movedim(over, -1), dtype) for each in given]
    shape = last[0].shape
    n = shape[-1]
    flat = [each.view(-1, n) if n else each.reshape(math.prod(shape[:-1]), 0) for each in last]
    out = rows(name, *flat, *([None] if grad is None else []))
    if name == "logsumexp":
        return out.view(shape[:-1] if x.ndim else ()).to(x.dtype)
    return out.view(shape).movedim(-1, over).reshape(x.shape).to(x.dtype)


def softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    """m = max, e = exp(x - m), e / sum(e)."""
    return _along("softmax", x, dim)


def log_softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    """(x - m) - log(sum(exp(x - m)))."""
    return _along("log_softmax", x, dim)


def softmax_backward(grad: torch.Tensor, output: torch.Tensor, dim: int) -> torch.Tensor:
    """(grad - sum(grad * output)) * output, of what `softmax` gave."""
    return _along("softmax_backward", output, dim, grad)


def log_softmax_backward(grad: torch.Tensor, output: torch.Tensor, dim: int) -> torch.Tensor:
    """grad - exp(output) * sum(grad), of what `log_softmax` gave."""
    return _along("log_softmax_backward", output, dim, grad)


def logsumexp(x: torch.Tensor, dims: int | list[int], keepdim: bool = False) -> torch.Tensor:
    """m + log(sum(exp(x - m))) over `dims`; an infinite m is taken as 0."""
    over = dimensions(dims, x.ndim)
    kept = [dim for dim in range(x.ndim) if dim not in over]
    shape = [x.shape[dim] for dim in kept]
    flat = x.permute(*kept, *over).reshape(*shape, math.prod(x.shape[dim] for dim in over))
    result = _along("logsumexp", flat, -1)
    if keepdim:
        result = result.reshape([1 if dim in over else size for dim, size in enumerate(x.shape)])
    return result
