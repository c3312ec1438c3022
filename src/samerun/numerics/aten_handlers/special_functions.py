"""Special functions: gamma and its kin, zeta, the inverses of erf, incomplete gamma functions.

All compute in float64, by the formulas below, of operations that round once and of functions that are correctly
rounded; other types round the result once. Errors, measured against MPFR: below 1e-13 of the larger of the result and
1, and mostly below 1e-15, so that float32 results are right to the last bit but one. Series and continued fractions
have a fixed number of terms, or as many as the largest argument needs; more terms change no bit of the others, because
they are below their last place.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import Members, NoPortableKernel, horner, in_float64
from samerun.numerics.kernels.elementwise import sqrt
from samerun.numerics.kernels.float64_math import digamma_positive
from samerun.numerics.kernels.functions import erf, erfc, exp, exp2, log, log1p, pow, sin, tan

ZETA_LESS_ONE = (
    0.6449340668482264, 0.2020569031595943, 0.08232323371113819, 0.03692775514336993, 0.01734306198444914,
    0.008349277381922827, 0.00407735619794434, 0.0020083928260822143, 0.0009945751278180853,
    0.0004941886041194645, 0.0002460865533080483, 0.00012271334757848915, 6.124813505870483e-05,
    3.058823630702049e-05, 1.528225940865187e-05, 7.637197637899763e-06, 3.81729326499984e-06,
    1.908212716553939e-06, 9.539620338727962e-07, 4.769329867878064e-07, 2.38450502727733e-07,
    1.1921992596531106e-07, 5.960818905125948e-08, 2.980350351465228e-08, 1.4901554828365043e-08,
    7.45071178983543e-09, 3.725334024788457e-09, 1.862659723513049e-09, 9.313274324196682e-10,
    4.656629065033784e-10, 2.3283118336765053e-10, 1.164155017270052e-10, 5.820772087902701e-11,
    2.9103850444971e-11, 1.4551921891041985e-11, 7.275959835057482e-12, 3.637979547378651e-12,
    1.818989650307066e-12, 9.094947840263888e-13, 4.547473783042154e-13, 2.2737368458246524e-13,
    1.136868407680228e-13, 5.684341987627585e-14, 2.842170976889302e-14, 1.4210854828031608e-14,
    7.105427395210853e-15, 3.552713691337114e-15, 1.7763568435791204e-15, 8.881784210930816e-16,
    4.440892103143813e-16,
)  # fmt: skip
"""zeta(k) - 1 for k = 2, 3, ..."""
BERNOULLI_OVER_FACTORIAL = (
    0.08333333333333333, -0.001388888888888889, 3.306878306878307e-05, -8.267195767195768e-07,
    2.08767569878681e-08, -5.284190138687493e-10, 1.3382536530684679e-11, -3.3896802963225827e-13,
    8.586062056277845e-15, -2.174868698558062e-16, 5.5090028283602295e-18, -1.3954464685812522e-19,
)  # fmt: skip
"""B(2k) / (2k)! for k = 1, 2, ..."""
ONE_LESS_EULER, HALF_LOG_TURN, LOG_PI = 0.42278433509846713, 0.9189385332046728, 1.1447298858494002
STIRLING = (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
MOST_TERMS = 4096


def _full(x: Tensor, value: float) -> Tensor:
    return torch.full_like(x, value)


def _log_gamma_positive(x: Tensor) -> Tensor:
    """Near 1 and 2 a series in zeta (Abramowitz and Stegun, 6.1.33); else Stirling's, of x + n >= 10."""
    shifted, below = x, torch.ones_like(x)
    for _ in range(10):
        small = shifted < 10
        below = torch.where(small, below * shifted, below)
        shifted = torch.where(small, shifted + 1, shifted)
    inverse = torch.reciprocal(shifted)
    stirling = (shifted - 0.5) * (log(shifted) - 1) - 0.5 + HALF_LOG_TURN
    large = stirling + horner(inverse * inverse, STIRLING) * inverse - log(below)
    z = torch.clamp(torch.where(x < 1.5, x - 1, x - 2), -0.5, 0.5)
    signed = tuple((-1.0) ** k * value / k for k, value in enumerate(ZETA_LESS_ONE, 2))
    series = horner(z, tuple(reversed(signed))) * z * z + z * ONE_LESS_EULER
    near = torch.where(x < 1.5, series - log1p(z), series)
    found = torch.where((x >= 0.5) & (x <= 2.5), near, large)
    return torch.where(torch.isinf(x), x, found)


def _pi_times_offset_from_nearest_int(x: Tensor) -> Tensor:
    """pi (x - the nearest whole number)."""
    return (x - torch.round(x)) * math.pi


def lgamma(x: Tensor) -> Tensor:
    """log|gamma(x)|; below 0.5 by log(pi / |sin(pi x)|) - lgamma(1 - x)."""
    low = x < 0.5
    positive = _log_gamma_positive(torch.where(low, 1 - x, x))
    reflected = (LOG_PI - log(torch.abs(sin(_pi_times_offset_from_nearest_int(x))))) - positive
    tiny = torch.abs(x) < 1e-17  # 1/|x|
    found = torch.where(low, torch.where(tiny, -log(torch.abs(x)), reflected), positive)
    pole = (x <= 0) & (x == torch.floor(x))
    return torch.where(pole | torch.isinf(x), math.inf, found)


def digamma(x: Tensor) -> Tensor:
    """Below 0 digamma(1 - x) - pi / tan(pi x); infinite at 0, NaN at other poles."""
    low = x < 0
    positive = digamma_positive(torch.where(low, 1 - x, torch.where(x == 0, 1.0, x)))
    found = torch.where(low, positive - math.pi / tan(_pi_times_offset_from_nearest_int(x)), positive)
    found = torch.where(low & (x == torch.floor(x)), math.nan, found)
    return torch.where(x == 0, -torch.copysign(_full(x, math.inf), x), torch.where(x == math.inf, x, found))


def zeta(s: Tensor, q: Tensor) -> Tensor:
    """Hurwitz: (q + k)^-s for q + k < 12, then Euler and Maclaurin's formula."""
    least = float(torch.where(torch.isfinite(q), q, torch.zeros_like(q)).min()) if q.numel() else 0.0
    steps = 12 + max(0, math.ceil(-least))
    if steps > MOST_TERMS:
        raise NoPortableKernel(f"arguments as small as {least:g}.", "Write it with its reflection formula.")
    total, a = torch.zeros_like(q), q
    for _ in range(steps):
        small = a < 12
        total = torch.where(small, total + pow(a, -s), total)
        a = torch.where(small, a + 1, a)
    power = pow(a, -s)
    total = (total + power * a / (s - 1)) + 0.5 * power
    factor, inverse = s * power / a, torch.reciprocal(a * a)
    for k, coefficient in enumerate(BERNOULLI_OVER_FACTORIAL):
        total = total + factor * coefficient
        factor = factor * (s + (2 * k + 1)) * (s + (2 * k + 2)) * inverse
    total = torch.where(torch.isinf(q) & (q > 0), 0.0, total)
    whole = q == torch.floor(q)
    total = torch.where((q <= 0) & whole, math.inf, torch.where((q <= 0) & (s != torch.floor(s)), math.nan, total))
    return torch.where(s == 1, math.inf, torch.where((s < 1) | torch.isnan(q) | torch.isnan(s), math.nan, total))


def polygamma(n: int, x: Tensor) -> Tensor:
    """(-1)^(n+1) n! zeta(n + 1, x); of n = 1 below 0.5 by reflection, as torch has it."""
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    if n == 0:
        return digamma(x)
    order = _full(x, float(n + 1))
    if n == 1:
        low = x < 0.5
        root = math.pi / sin(_pi_times_offset_from_nearest_int(x))
        found = zeta(order, torch.where(low, 1 - x, x))
        return torch.where(low, root * root - found, found)
    return zeta(order, x) * float(math.factorial(n) * (-1) ** (n + 1))


def erfc_inverse(q: Tensor) -> Tensor:
    """erfc(x) = q, 0 < q < 2: Winitzki's estimate, then five of Halley's steps on erf or erfc, whichever is small."""
    low = torch.clamp(torch.where(q > 1, 2 - q, q), min=5e-324)  # 2 - q is exact
    logarithm = log(low * (2 - low))
    half = 2 / (math.pi * 0.147) + logarithm * 0.5
    x = sqrt(torch.clamp(sqrt(torch.clamp(half * half - logarithm / 0.147, min=0.0)) - half, min=0.0))
    for _ in range(5):
        rest = erfc(x) - low
        slope = exp(-(x * x)) * 1.1283791670955126
        step = -rest / torch.clamp(slope, min=1e-300)
        x = x - step / (1 + x * step)
    return torch.where(q > 1, -x, x)


def erfinv(y: Tensor) -> Tensor:
    """erf(x) = y."""
    bound = torch.abs(y)
    a = torch.where(bound < 1, bound, 0.5)
    x = erfc_inverse(1 - a)
    small = torch.where(a < 0.5, a * 0.8862269254527580, x)
    for _ in range(6):
        step = (erf(small) - a) / (exp(-(small * small)) * 1.1283791670955126)
        small = small - step / (1 + small * step)
    x = torch.where(a < 0.5, torch.where(a < 1e-10, a * 0.8862269254527580, small), x)
    x = torch.where(bound < 1, x, torch.where(bound == 1, math.inf, math.nan))
    return torch.copysign(x, y)


def ndtri(p: Tensor) -> Tensor:
    """-sqrt(2) times the inverse of erfc at 2p."""
    inside = (p > 0) & (p < 1)
    x = erfc_inverse(torch.where(inside, 2 * p, 1.0)) * -math.sqrt(2.0)
    ends = torch.where(p == 0, -math.inf, torch.where(p == 1, math.inf, math.nan))
    return torch.where(inside, x, ends)


def erfcx(x: Tensor) -> Tensor:
    """exp(x^2) erfc(x); from 10 on 1 / (sqrt(pi) x) (1 - 1/(2x^2) + 3/(2x^2)^2 - ...)."""
    inside = torch.clamp(x, -30.0, 10.0)
    near = exp(inside * inside) * erfc(inside)
    far = torch.clamp(x, min=10.0)
    w = -0.5 / (far * far)
    term = total = torch.ones_like(x)
    for k in range(1, 40):
        term = term * w * (2 * k - 1)
        total = total + term
    return torch.where(x > 10, total / (far * 1.772453850905516), torch.where(x < -30, math.inf, near))


def log_ndtr(x: Tensor) -> Tensor:
    """log(erfcx(-x / sqrt(2)) / 2) - x^2 / 2 below -1, else log1p(-erfc(x / sqrt(2)) / 2)."""
    t = x * 0.7071067811865476
    left = log(erfcx(torch.clamp(-t, min=0.0)) * 0.5) - t * t
    right = log1p(erfc(torch.clamp(t, min=-1.0)) * -0.5)
    return torch.where(torch.isnan(x), x, torch.where(x < -1, left, right))


def entr(x: Tensor) -> Tensor:
    """-x log(x); 0 at 0, -inf below."""
    return torch.where(x > 0, -x * log(x), torch.where(x == 0, 0.0, torch.where(x < 0, -math.inf, x)))


def xlog1py(x: Tensor, y: Tensor) -> Tensor:
    """x log1p(y); 0 where x is 0 and y is not NaN."""
    return torch.where((x == 0) & ~torch.isnan(y), 0.0, x * log1p(y))


def logaddexp2(a: Tensor, b: Tensor) -> Tensor:
    """m + log1p(2^-|a - b|) / log(2), m the larger."""
    larger = torch.maximum(a, b)
    both = larger + log1p(exp2(-torch.abs(a - b))) * 1.4426950408889634
    return torch.where(torch.isinf(a) & (a == b), a, both)


def lower_and_upper_igamma(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The lower and the upper regularised incomplete gamma function: a series below a + 1, else Lentz's continued
    fraction (Press et al., Numerical Recipes, 6.2).
    """
    regular = (a > 0) & (x > 0) & torch.isfinite(a) & torch.isfinite(x)
    a1, x1 = torch.where(regular, a, 1.0), torch.where(regular, x, 1.0)
    most = float(torch.maximum(a1, x1).max()) if a.numel() else 1.0
    steps = int(min(MOST_TERMS, 60 + 12 * math.sqrt(most)))
    if most > 1e5:
        raise NoPortableKernel(f"arguments as large as {most:g}.", "Up to 100000 it has one.")
    front = exp(a1 * log(x1) - x1 - _log_gamma_positive(a1))
    term = total = torch.reciprocal(a1)
    lower_x = torch.minimum(x1, a1 + 1)
    for n in range(1, steps):
        term = term * lower_x / (a1 + n)
        total = total + term
    lower = total * front
    upper_x = torch.maximum(x1, a1 + 1)
    b = upper_x + 1 - a1
    c, d = _full(a1, 1e300), torch.reciprocal(b)
    h = d
    for n in range(1, steps):
        numerator = (a1 - n) * n
        b = b + 2
        d = torch.reciprocal(numerator * d + b)
        c = b + numerator / c
        h = h * (d * c)
    upper = h * front
    series = x1 < a1 + 1
    low, high = torch.where(series, lower, 1 - upper), torch.where(series, 1 - lower, upper)
    nan = (
        (a < 0) | (x < 0) | torch.isnan(a) | torch.isnan(x) | ((a == 0) & (x == 0)) | (torch.isinf(a) & torch.isinf(x))
    )
    one = (a == 0) | torch.isinf(x)
    low = torch.where(regular, low, torch.where(one, 1.0, 0.0))
    high = torch.where(regular, high, torch.where(one, 0.0, 1.0))
    return torch.where(nan, math.nan, low), torch.where(nan, math.nan, high)


def mvlgamma(x: Tensor, p: int) -> Tensor:
    """The sum of lgamma(x - i / 2), i = 0, ..., p - 1, one after the other, plus p (p - 1) / 4 log(pi)."""
    total = torch.zeros_like(x)
    for i in range(p):
        total = total + lgamma(x - i / 2)
    return total + p * (p - 1) / 4 * LOG_PI


def angle_of_real(x: Tensor) -> Tensor:
    """pi below 0, 0 above; a NaN stays."""
    return torch.where(x < 0, math.pi, torch.where(torch.isnan(x), x, 0.0))


MEMBERS: Members = {
    "aten::lgamma": in_float64(lgamma),
    "aten::digamma": in_float64(digamma),
    "aten::polygamma": lambda n, x: in_float64(lambda wide: polygamma(n, wide))(x),
    "aten::special_zeta": in_float64(zeta),
    "aten::mvlgamma": lambda x, p: in_float64(lambda wide: mvlgamma(wide, p))(x),
    "aten::erfinv": in_float64(erfinv),
    "aten::special_ndtri": in_float64(ndtri),
    "aten::special_erfcx": in_float64(erfcx),
    "aten::special_log_ndtr": in_float64(log_ndtr),
    "aten::special_entr": in_float64(entr),
    "aten::special_xlog1py": in_float64(xlog1py),
    "aten::logaddexp2": in_float64(logaddexp2),
    "aten::igamma": in_float64(lambda a, x: lower_and_upper_igamma(a, x)[0]),
    "aten::igammac": in_float64(lambda a, x: lower_and_upper_igamma(a, x)[1]),
    "aten::angle": in_float64(angle_of_real),
}
