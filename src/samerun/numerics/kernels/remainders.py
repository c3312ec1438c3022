"""Remainders of divisions. The truncated quotient's is exact; adding y for the floored one's rounds once.

torch's own CPU kernel for vectors gives NaN where the quotient is large; so which elements it gets depends on where
they lie, and on the processor. bfloat16 and float16 are widened, and the float is rounded again, which changes nothing
for the truncated quotient.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from samerun.numerics.kernels import library
from samerun.numerics.kernels.tensors import by_reference, compute_type, dense

_remainders = library.function("samerun_remainders", "viipppl")


def fmod(x: Any, y: Any) -> Tensor:
    """x - y * trunc(x / y), with the sign of x. Tensors or one tensor and a number, as `torch.fmod` takes them."""
    return _remainder(x, y, False)


def remainder(x: Any, y: Any) -> Tensor:
    """r = fmod(x, y); r + y where r is not 0 and has not the sign of y. As `torch.remainder` takes them."""
    return _remainder(x, y, True)


def _remainder(x: Any, y: Any, floored: bool) -> Tensor:
    some = x if isinstance(x, Tensor) else y
    dtype = torch.result_type(x, y)
    if not dtype.is_floating_point or library.elsewhere(some):  # whole numbers; CUDA's own functions are exact
        out: Tensor = (torch.remainder if floored else torch.fmod)(x, y)
        return out
    wide = compute_type("remainder" if floored else "fmod", torch.empty(0, dtype=dtype))
    pair = (
        each.to(dtype) if isinstance(each, Tensor) else torch.full((), float(each), dtype=wide) for each in (x, y)
    )
    one, other = (dense(each, wide) for each in torch.broadcast_tensors(*pair))  # type: ignore[no-untyped-call]
    if library.computes(one):
        found = torch.empty_like(one)
        _remainders.on(one)(
            wide is torch.float64, floored, one.data_ptr(), other.data_ptr(), found.data_ptr(), one.numel()
        )
    else:
        with np.errstate(all="ignore"):
            found = by_reference(_floored if floored else np.fmod, one, other)
    return found.to(dtype)


def _floored(x: Any, y: Any) -> Any:
    r = np.fmod(x, y)
    return np.where((r != 0) & ((y < 0) != (r < 0)), r + y, r).astype(r.dtype)
