"""The largest and smallest value along dimensions, IEEE 754's: a NaN wins, and -0.0 is less than +0.0."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from samerun.numerics.kernels import library


def _fix_zero_sign(result: Tensor, x: Tensor, dims: list[int], keepdim: bool, largest: bool) -> Tensor:
    """Where the result is a zero, its sign: + for the largest if any value is +0.0."""
    if not result.is_floating_point() or (not library.is_off_cpu(x) and not bool((result == 0).any())):
        return result
    deciding_zeros = torch.logical_and(x == 0, torch.signbit(x).logical_xor(torch.full((), largest, device=x.device)))
    any_deciding = deciding_zeros.any() if x.dim() == 0 else torch.sum(deciding_zeros, dims, keepdim) > 0
    sign = any_deciding if largest else any_deciding.logical_not()
    zero = torch.where(sign, torch.zeros_like(result), torch.full_like(result, -0.0))
    return torch.where(result == 0, zero, result)


def _list_dims(x: Tensor, dim: Any) -> list[int]:
    dims = [dim] if isinstance(dim, int) else list(dim or ())
    return dims or list(range(x.dim()))


def amax(x: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The largest over `dim` (one, several, or all where empty)."""
    return _fix_zero_sign(torch.amax(x, dim, keepdim), x, _list_dims(x, dim), keepdim, True)


def amin(x: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The smallest over `dim` (one, several, or all where empty)."""
    return _fix_zero_sign(torch.amin(x, dim, keepdim), x, _list_dims(x, dim), keepdim, False)
