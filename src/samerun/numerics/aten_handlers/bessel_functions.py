"""Bessel functions and orthogonal polynomials, in float64 as `special_functions`, and rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import Function, Members, NoPortableKernel, horner, in_float64
from samerun.numerics.kernels.elementwise import sqrt
from samerun.numerics.kernels.functions import cos, exp, sin

MOST_TERMS = 4096


def _modified_bessel_i_scaled(order: int, x: Tensor) -> Tensor:
    """e^-|x| I(order, x), order 0 or 1: the series of positive terms up to 30, then the asymptotic one."""
    a = torch.abs(x)
    near, far = torch.clamp(a, max=30.0), torch.clamp(a, min=30.0)
    square, term = near * near * 0.25, torch.ones_like(x) if order == 0 else near * 0.5
    total = term
    for k in range(1, 90):
        term = term * square / (k * (k + order))
        total = total + term
    rest = sum_far = torch.ones_like(x)
    for k in range(1, 31):
        rest = rest * ((2 * k - 1) ** 2 - 4.0 * order) / (8.0 * k * far)
        sum_far = sum_far + rest
    found = torch.where(a <= 30, total * exp(-near), sum_far / sqrt(far * (2 * math.pi)))
    return torch.where(torch.isnan(x), x, found if order == 0 else torch.copysign(found, x))


def _modified_bessel_i(order: int, x: Tensor) -> Tensor:
    half = exp(torch.abs(x) * 0.5)
    return _modified_bessel_i_scaled(order, x) * half * half


def _modified_bessel_k_scaled(order: int, x: Tensor) -> Tensor:
    """e^x K(order, x): up to 30 the integral of exp(-x (cosh(t) - 1)) cosh(order t) by trapezoids of 1/16, as wide as
    the smallest x needs; then the asymptotic series, because the integrand is narrower than the trapezoids.
    """
    inside, far = torch.where((x > 0) & (x <= 30), x, 1.0), torch.clamp(x, min=30.0)
    rest = sum_far = torch.ones_like(x)
    for k in range(1, 31):
        rest = rest * (4.0 * order - (2 * k - 1) ** 2) / (8.0 * k * far)
        sum_far = sum_far + rest
    least = float(inside.min()) if x.numel() else 1.0
    count = min(MOST_TERMS, int(16 * math.acosh(1 + 60 / max(least, 1e-300))) + 2)
    ts = torch.arange(count, dtype=torch.float64, device=x.device) / 16
    grow = exp(ts)
    wide = (grow + torch.reciprocal(grow)) * 0.5
    small = exp(ts * 0.5)
    less = (small - torch.reciprocal(small)) * 0.5
    less_one = 2 * less * less  # cosh(t) - 1
    total = 0.5 * torch.ones_like(inside)
    for k in range(1, count):
        total = total + exp(-inside * less_one[k]) * (wide[k] if order else 1.0)
    found = torch.where(x > 30, sqrt((math.pi / 2) / far) * sum_far, total / 16)
    ends = torch.where(x == 0, math.inf, math.nan)
    return torch.where(x > 0, torch.where(torch.isinf(x), 0.0, found), ends)


def _bessel_j(order: int, x: Tensor) -> Tensor:
    """The series of x^2/4 up to 1, where the mean would cancel; the mean of cos(order t - |x| sin(t)) over 96 places of
    half a turn up to 25; then Hankel's expansion.
    """
    a = torch.abs(x)
    small = torch.clamp(a, max=1.0)
    coefficients = tuple((-0.25) ** k / (math.factorial(k) * math.factorial(k + order)) for k in range(12, -1, -1))
    series = horner(small * small, coefficients) * (1.0 if order == 0 else small * 0.5)
    near, far = torch.clamp(a, max=25.0), torch.clamp(a, min=25.0)
    angles = torch.arange(96, dtype=torch.float64, device=x.device) * (math.pi / 96)
    sines = sin(angles)
    total = torch.zeros_like(x)
    for k in range(96):
        weight = 0.5 if k == 0 else 1.0
        total = total + weight * cos(order * angles[k] - near * sines[k])
    total = total + 0.5 * math.cos(math.pi * order) * torch.ones_like(x)
    p = q = torch.zeros_like(x)
    term = torch.ones_like(x)
    for k in range(36):
        sign = (1.0, 1.0, -1.0, -1.0)[k % 4]
        p, q = (p + sign * term, q) if k % 2 == 0 else (p, q + sign * term)
        term = term * (4.0 * order - (2 * k + 1) ** 2) / ((k + 1) * 8.0 * far)
    s, c = sin(far), cos(far)
    # cos and sin of far - (2 order + 1) pi / 4, times sqrt(2)
    chi_c, chi_s = (c + s, s - c) if order == 0 else (s - c, -(s + c))
    large = (p * chi_c - q * chi_s) / sqrt(far * math.pi)
    found = torch.where(a <= 1, series, torch.where(a <= 25, total / 96, large))
    found = torch.where(torch.isinf(x), 0.0, found)
    return torch.where(torch.isnan(x), x, found if order == 0 else torch.where(x < 0, -found, found))


def spherical_bessel_j0(x: Tensor) -> Tensor:
    """sin(x) / x; near 0 1 - x^2/6 + x^4/120 - ..."""
    square = x * x
    terms = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(7, -1, -1))
    near = horner(torch.clamp(square, max=0.25), terms)
    return torch.where(torch.isinf(x), 0.0, torch.where(torch.abs(x) < 0.5, near, sin(x) / x))


def _make_polynomial_by_recurrence(
    first: Callable[[Tensor], Tensor], step: Callable[[int, Tensor, Tensor, Tensor], Tensor]
) -> Function:
    """P(n, x) by its recurrence from P(0) = 1 and P(1) = first(x); 0 for n < 0. step(k, x, P(k), P(k-1)) is P(k+1)."""

    def polynomial(x: Tensor, n: Tensor) -> Tensor:
        order = torch.trunc(n)
        most = int(order.max()) if n.numel() else 0
        if most > MOST_TERMS:
            raise NoPortableKernel(f"a polynomial of degree {most}.", f"Up to {MOST_TERMS} it has one.")
        before, here = torch.ones_like(x), first(x)
        found = torch.where(order == 0, before, torch.where(order == 1, here, 0.0))
        for k in range(1, most):
            before, here = here, step(k, x, here, before)
            found = torch.where(order == k + 1, here, found)
        return found

    return polynomial


def _chebyshev_recurrence_step(k: int, x: Tensor, here: Tensor, before: Tensor) -> Tensor:
    return (x + x) * here - before


def _compose_with_2x_minus_1(polynomial: Function) -> Function:
    return lambda x, n: polynomial((x + x) - 1, n)


CHEBYSHEV: dict[str, Function] = {
    "t": _make_polynomial_by_recurrence(lambda x: x, _chebyshev_recurrence_step),
    "u": _make_polynomial_by_recurrence(lambda x: x + x, _chebyshev_recurrence_step),
    "v": _make_polynomial_by_recurrence(lambda x: (x + x) - 1, _chebyshev_recurrence_step),
    "w": _make_polynomial_by_recurrence(lambda x: (x + x) + 1, _chebyshev_recurrence_step),
}
POLYNOMIALS: dict[str, Function] = {
    **{f"chebyshev_polynomial_{kind}": made for kind, made in CHEBYSHEV.items()},
    **{f"shifted_chebyshev_polynomial_{kind}": _compose_with_2x_minus_1(made) for kind, made in CHEBYSHEV.items()},
    "hermite_polynomial_h": _make_polynomial_by_recurrence(
        lambda x: x + x, lambda k, x, p, o: (x + x) * p - (2.0 * k) * o
    ),
    "hermite_polynomial_he": _make_polynomial_by_recurrence(lambda x: x, lambda k, x, p, o: x * p - float(k) * o),
    "laguerre_polynomial_l": _make_polynomial_by_recurrence(
        lambda x: 1 - x, lambda k, x, p, o: (((2.0 * k + 1) - x) * p - float(k) * o) / (k + 1.0)
    ),
    "legendre_polynomial_p": _make_polynomial_by_recurrence(
        lambda x: x, lambda k, x, p, o: ((2.0 * k + 1) * x * p - float(k) * o) / (k + 1.0)
    ),
}


MEMBERS: Members = {
    **{f"aten::special_{name}": in_float64(function) for name, function in POLYNOMIALS.items()},
    "aten::i0": in_float64(lambda x: _modified_bessel_i(0, x)),
    "aten::special_i0e": in_float64(lambda x: _modified_bessel_i_scaled(0, x)),
    "aten::special_i1": in_float64(lambda x: _modified_bessel_i(1, x)),
    "aten::special_i1e": in_float64(lambda x: _modified_bessel_i_scaled(1, x)),
    "aten::special_modified_bessel_i0": in_float64(lambda x: _modified_bessel_i(0, x)),
    "aten::special_modified_bessel_i1": in_float64(lambda x: _modified_bessel_i(1, x)),
    "aten::special_modified_bessel_k0": in_float64(lambda x: _modified_bessel_k_scaled(0, x) * exp(-x)),
    "aten::special_modified_bessel_k1": in_float64(lambda x: _modified_bessel_k_scaled(1, x) * exp(-x)),
    "aten::special_scaled_modified_bessel_k0": in_float64(lambda x: _modified_bessel_k_scaled(0, x)),
    "aten::special_scaled_modified_bessel_k1": in_float64(lambda x: _modified_bessel_k_scaled(1, x)),
    "aten::special_bessel_j0": in_float64(lambda x: _bessel_j(0, x)),
    "aten::special_bessel_j1": in_float64(lambda x: _bessel_j(1, x)),
    "aten::special_spherical_bessel_j0": in_float64(spherical_bessel_j0),
}
