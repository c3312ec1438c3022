"""The functions of `reference.float64_math` on tensors: the same operations in the same order, by torch's + - * /.

Each of these operations rounds once on any CPU and on CUDA devices, so that the bits are the same there. All take and
give float64 of any shape.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from samerun.numerics.reference import float64_math as reference

_FRACTION, _ONE = (1 << 52) - 1, 1023 << 52


def polynomial(x: Tensor, coefficients_highest_first: Sequence[float]) -> Tensor:
    """((t0 x + t1) x + t2) ...: two roundings a term."""
    total = torch.mul(x, 0.0)  # 0 x + t0 is t0; and NaN stays
    for term in coefficients_highest_first:
        total = total.mul_(x).add_(term)
    return total


def _alternating_polynomial(w: Tensor, terms: Sequence[float]) -> Tensor:
    """... t2 - w (t1 - w t0)."""
    total = torch.zeros_like(w)
    for term in terms:
        total = torch.rsub(torch.mul(w, total), term)
    return total


def divide_scalar_by(x: float, y: Tensor) -> Tensor:
    """x / y. (torch takes the number's quotient by a tensor as one division; a quotient by a number it may not.)"""
    return torch.div(torch.full((), x, dtype=torch.float64, device=y.device), y)


def _twice_atanh(s: Tensor) -> Tensor:
    z = torch.mul(s, s)
    total = polynomial(z, reference.LOG_TERMS)
    return torch.add(torch.mul(s, 2.0), torch.mul(s, torch.mul(z, total)))


def log(x: Tensor) -> Tensor:
    tiny = x < reference.TINIEST
    bits = torch.where(tiny, torch.mul(x, 2.0**54), x).view(torch.int64)
    m = ((bits & _FRACTION) | _ONE).view(torch.float64)
    large = m > reference.ROOT2
    m = torch.where(large, torch.mul(m, 0.5), m)
    e = ((bits >> 52) - 1023 + large.to(torch.int64) - 54 * tiny.to(torch.int64)).to(torch.float64)
    rest = _twice_atanh(torch.div(torch.sub(m, 1.0), torch.add(m, 1.0)))
    found = torch.add(torch.mul(e, reference.LN2_HIGH), torch.add(rest, torch.mul(e, reference.LN2_LOW)))
    found = torch.where(x == 0, float("-inf"), torch.where(x > 0, found, float("nan")))
    return torch.where(x == float("inf"), x, found)


def log_near_one(x: Tensor, x_minus_1: Tensor) -> Tensor:
    near = _twice_atanh(torch.div(x_minus_1, torch.add(x_minus_1, 2.0)))
    return torch.where((x_minus_1 > -0.25) & (x_minus_1 < 0.25), near, log(x))


def log1p(x: Tensor) -> Tensor:
    return log_near_one(torch.add(x, 1.0), x)


def _exp_as_power_of_two_and_expm1(x: Tensor) -> tuple[Tensor, Tensor]:
    inside = torch.clamp(x, reference.LEAST, reference.MOST)
    k = torch.floor(torch.add(torch.mul(inside, reference.INVERSE_LN2), 0.5))
    r = torch.sub(torch.sub(inside, torch.mul(k, reference.LN2_HIGH)), torch.mul(k, reference.LN2_LOW))
    total = polynomial(r, reference.EXP_TERMS)
    power = ((torch.nan_to_num(k).to(torch.int64) + 1023) << 52).view(torch.float64)
    return power, torch.add(r, torch.mul(torch.mul(r, r), total))


def _saturate_exp_out_of_range(x: Tensor, exp_x: Tensor, lowest: float) -> Tensor:
    exp_x = torch.where(x > reference.MOST, float("inf"), exp_x)
    return torch.where(x < reference.LEAST, lowest, exp_x)


def exp(x: Tensor) -> Tensor:
    power_of_two, expm1_r = _exp_as_power_of_two_and_expm1(x)
    return _saturate_exp_out_of_range(x, torch.add(power_of_two, torch.mul(power_of_two, expm1_r)), 0.0)


def expm1(x: Tensor) -> Tensor:
    power_of_two, expm1_r = _exp_as_power_of_two_and_expm1(x)
    return _saturate_exp_out_of_range(
        x, torch.add(torch.mul(power_of_two, expm1_r), torch.sub(power_of_two, 1.0)), -1.0
    )


def loggamma_stirling_error(m: Tensor) -> Tensor:
    table = torch.tensor(reference.CORRECTIONS, dtype=torch.float64, device=m.device)
    small = table[torch.clamp(torch.nan_to_num(m), 1, 9).to(torch.int64) - 1]
    total = _alternating_polynomial(divide_scalar_by(1.0, torch.mul(m, m)), reference.CORRECTION_TERMS)
    return torch.where(m < 10, small, torch.div(total, m))


def digamma_positive(x: Tensor) -> Tensor:
    below = torch.zeros_like(x)
    for _ in range(10):
        small = x < 10
        below = torch.where(small, torch.add(below, divide_scalar_by(1.0, x)), below)
        x = torch.where(small, torch.add(x, 1.0), x)
    w = divide_scalar_by(1.0, torch.mul(x, x))
    total = _alternating_polynomial(w, reference.DIGAMMA_TERMS)
    return torch.sub(torch.sub(torch.sub(log(x), divide_scalar_by(0.5, x)), torch.mul(w, total)), below)
