"""Gradients of gamma and beta numbers on tensors: the steps of `reference.implicit`, for all values at once.

All take and give float64, 1-D, on any device.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from samerun.numerics.kernels import float64_math as f64
from samerun.numerics.kernels.elementwise import sqrt
from samerun.numerics.reference import implicit_gradients as reference

CUT = reference.CUT
CHUNK = 4096
"""Values whose points are in memory together."""
_INF, _NAN = float("inf"), float("nan")
Function = Callable[[Tensor], Tensor]


def _estimate_endpoint(slope: Tensor, curvature: Tensor) -> Tensor:
    root = sqrt(torch.add(torch.mul(slope, slope), torch.mul(curvature, 2 * CUT)))
    return f64.divide_number_by(2 * CUT, torch.add(slope, root))


def _integrate_to_endpoint(end: Tensor, fall: Function, slope: Function, integrand: Function) -> Tensor:
    for _ in range(3):
        end = torch.sub(end, torch.div(torch.sub(fall(end), CUT), slope(end)))
    places = torch.tensor(reference.PLACES, dtype=torch.float64, device=end.device)
    y = torch.mul(end, places[:, None])
    terms = torch.mul(integrand(y), f64.exp(torch.neg(fall(y))))
    total = torch.zeros_like(end)
    for weight, term in zip(reference.WEIGHTS, terms, strict=True):
        total = torch.add(total, torch.mul(term, weight))
    return torch.mul(end, total)


def _compute_in_chunks(compute: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    if tensors[0].numel() <= CHUNK:
        return compute(*tensors)
    chunks = zip(*(torch.split(tensor, CHUNK) for tensor in tensors), strict=True)
    return torch.cat([compute(*chunk) for chunk in chunks])


def gamma_gradient(a: Tensor, x: Tensor) -> Tensor:
    """dx/da of gamma numbers x of shapes a."""
    return _compute_in_chunks(_gamma_gradient_of_chunk, a, x)


def beta_gradient(x: Tensor, a: Tensor, total: Tensor) -> Tensor:
    """dx/da / (1 - x) of beta numbers x of parameters a and total - a."""
    return _compute_in_chunks(_beta_gradient_of_chunk, x, a, total)


def _gamma_gradient_of_chunk(a: Tensor, x: Tensor) -> Tensor:
    inside = (a > 0) & (a < _INF) & (x > 0) & (x < _INF)
    zero, a, x = x == 0, torch.where(inside, a, 1.0), torch.where(inside, x, 1.0)
    above = x >= a
    sign = torch.where(above, 1.0, -1.0).to(torch.float64)
    shift = torch.sub(f64.digamma_positive(a), f64.log(x))
    divisor = torch.where(above, 1.0, 1.5).to(torch.float64)
    near = _estimate_endpoint(torch.abs(torch.sub(x, a)), torch.div(x, divisor))
    far = f64.log(torch.add(f64.divide_number_by(4 * CUT, x), 4.0))
    below = torch.where(near <= 1, near, torch.div(torch.add(x, CUT), a))
    total = _integrate_to_endpoint(
        torch.where(above, torch.minimum(near, far), below),
        lambda y: torch.sub(torch.mul(x, f64.expm1(torch.mul(sign, y))), torch.mul(a, torch.mul(sign, y))),
        lambda y: torch.mul(sign, torch.sub(torch.mul(x, f64.exp(torch.mul(sign, y))), a)),
        lambda y: torch.sub(y, torch.mul(sign, shift)),
    )
    return torch.where(zero, 0.0, torch.where(inside, torch.mul(x, total), _NAN))


def _beta_gradient_of_chunk(x: Tensor, a: Tensor, total: Tensor) -> Tensor:
    inside = (a > 0) & (a < total) & (total < _INF) & (x > 0) & (x <= 1)
    zero = x == 0
    x, a, total = torch.where(inside, x, 0.5), torch.where(inside, a, 1.0), torch.where(inside, total, 2.0)
    other, above = torch.rsub(x, 1.0), x >= torch.div(a, total)
    rest, here = torch.where(above, other, x), torch.where(above, x, other)
    rate = torch.where(above, torch.sub(total, a), a)
    shift = torch.sub(torch.sub(f64.digamma_positive(a), f64.digamma_positive(total)), f64.log(x))

    def level(y: Tensor) -> Tensor:
        falling = f64.expm1(torch.neg(y))
        return f64.log_near_one(torch.add(here, torch.mul(rest, torch.add(falling, 1.0))), torch.mul(rest, falling))

    def slope(y: Tensor) -> Tensor:
        part = torch.mul(rest, f64.exp(torch.neg(y)))
        return torch.sub(rate, torch.div(torch.mul(total, part), torch.add(here, part)))

    def integrand(y: Tensor) -> Tensor:
        height = level(y)
        return torch.where(above, torch.sub(torch.neg(shift), height), torch.add(torch.add(y, height), shift))

    curvature = torch.mul(torch.mul(torch.mul(total, x), other), reference.INVERSE_E)
    near = _estimate_endpoint(torch.abs(torch.sub(torch.mul(total, x), a)), curvature)
    far = torch.div(torch.rsub(torch.mul(total, f64.log(here)), CUT), rate)
    found = _integrate_to_endpoint(
        torch.where(near <= 1, near, far),
        lambda y: torch.add(torch.mul(rate, y), torch.mul(total, level(y))),
        slope,
        integrand,
    )
    return torch.where(zero, 0.0, torch.where(inside, torch.mul(x, found), _NAN))
