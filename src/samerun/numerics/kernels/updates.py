"""Steps of optimizers, in place and in one pass; one rounding an operation, as in `operators/arithmetic.py`."""

from __future__ import annotations

import torch

from samerun.numerics.kernels import library

NAMES = ("lerp", "addcmul", "addcdiv")
"""x + (y - x) * value, x + (y * value) * z, x + (y * value) / z."""

_LARGEST = 3.4028234663852886e38
_update = library.function("samerun_update", "vipppfl")


def update(name: str, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, value: float) -> bool:
    """Write the result into x, and say so; False, with nothing done, for what the kernel does not take.

    It takes float32 of one shape on the CPU that lies in one piece, and `value` in the range of float32, to which it is
    rounded.
    """
    if not library.available() or not isinstance(value, (int, float)) or not -_LARGEST <= value <= _LARGEST:
        return False
    n, where = x.numel(), x.data_ptr()
    for each in (x, y, z):
        if library.elsewhere(each) or each.dtype is not torch.float32:
            return False
        if each.shape != x.shape or not each.is_contiguous():
            return False
        if each.is_neg() or 0 < abs(each.data_ptr() - where) < 4 * n:
            return False
    _update(NAMES.index(name), where, y.data_ptr(), z.data_ptr(), value, n)
    return True
