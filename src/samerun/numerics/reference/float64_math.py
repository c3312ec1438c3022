"""float64 functions that random numbers and their gradients are made with, one number at a time.

They round many times, but only in + - * / of float64, in the order written, so that their bits are the same anywhere.
Errors, measured: `log`, `log_near_one`, `exp`, `expm1` below 2^-51 of the result, `digamma_positive` 2e-15 of
the larger of it and 1.
"""

from __future__ import annotations

import math

LN2_HIGH, LN2_LOW = float.fromhex("0x1.62e42fee00000p-1"), float.fromhex("0x1.a39ef35793c76p-33")
"""log(2); the high part has 32 bits, so that its products with exponents are exact."""
INVERSE_LN2, ROOT2, HALF_LOG_TURN = 1.4426950408889634, 1.4142135623730951, 0.9189385332046728
"""1 / log(2), sqrt(2) and log(2 pi) / 2."""
LOG_TERMS = tuple(2 / (2 * k + 1) for k in range(10, 0, -1))
"""2 atanh(s) = 2 s + s (s^2 2/3 + s^4 2/5 + ...), the last term first."""
EXP_TERMS = tuple(1 / math.factorial(k) for k in range(14, 1, -1))
"""exp(r) - 1 = r + r^2 (1/2! + r/3! + ...), the last term first."""
TINIEST = 2.0**-1022
MOST, LEAST = 709.0, -708.0
"""exp is infinite above, and 0 below."""
CORRECTIONS = (
    0.08106146679532726, 0.0413406959554093, 0.02767792568499834, 0.020790672103765093, 0.016644691189821193,
    0.013876128823070748, 0.01189670994589177, 0.010411265261972096, 0.009255462182712733,
)  # fmt: skip
CORRECTION_TERMS = (1 / 1188, 1 / 1680, 1 / 1260, 1 / 360, 1 / 12)
DIGAMMA_TERMS = (1 / 132, 1 / 240, 1 / 252, 1 / 120, 1 / 12)


def _twice_atanh(s: float) -> float:
    """2 atanh(s), |s| < 0.172."""
    z = s * s
    total = 0.0
    for term in LOG_TERMS:
        total = total * z + term
    return 2 * s + s * (z * total)


def log(x: float) -> float:
    """x = m 2^e, m from sqrt(1/2) to sqrt(2): e log(2) + 2 atanh((m - 1) / (m + 1))."""
    if not 0 < x < math.inf:
        return x if x == math.inf else -math.inf if x == 0 else math.nan
    m, e = math.frexp(x)
    m, e = m * 2, e - 1
    if m > ROOT2:
        m, e = m * 0.5, e + 1
    return e * LN2_HIGH + (_twice_atanh((m - 1) / (m + 1)) + e * LN2_LOW)


def log_near_one(x: float, x_minus_1: float) -> float:
    """log(x), where x - 1 is known better, as `x_minus_1`: that counts between -0.25 and 0.25."""
    return _twice_atanh(x_minus_1 / (2 + x_minus_1)) if -0.25 < x_minus_1 < 0.25 else log(x)


def log1p(x: float) -> float:
    """log(1 + x)."""
    return log_near_one(1 + x, x)


def _exp_as_power_of_two_and_expm1(x: float) -> tuple[float, float]:
    """2^k and exp(r) - 1, x = k log(2) + r."""
    k = math.floor(x * INVERSE_LN2 + 0.5)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    total = 0.0
    for term in EXP_TERMS:
        total = total * r + term
    return math.ldexp(1.0, k), r + (r * r) * total


def exp(x: float) -> float:
    if not LEAST <= x <= MOST:
        return math.inf if x > MOST else 0.0 if x < LEAST else x
    power_of_two, expm1_r = _exp_as_power_of_two_and_expm1(x)
    return power_of_two + power_of_two * expm1_r


def expm1(x: float) -> float:
    if not LEAST <= x <= MOST:
        return math.inf if x > MOST else -1.0 if x < LEAST else x
    power_of_two, expm1_r = _exp_as_power_of_two_and_expm1(x)
    return power_of_two * expm1_r + (power_of_two - 1)


def loggamma_stirling_error(m: float) -> float:
    """log((m-1)!) - ((m - 0.5) log(m) - m + log(2 pi) / 2) for whole m > 0: a table up to 9, then Stirling's series.

    Abramowitz and Stegun (1964), 6.1.41; wrong by less than 2e-14.
    """
    if m < 10:
        return CORRECTIONS[int(m) - 1]
    w, total = 1 / (m * m), 0.0
    for term in CORRECTION_TERMS:
        total = term - w * total
    return total / m


def digamma_positive(x: float) -> float:
    """Of x > 0: up to 10 by the recurrence, then the asymptotic series (Abramowitz and Stegun, 6.3.5 and 6.3.18)."""
    below = 0.0
    for _ in range(10):
        if x < 10:
            below, x = below + 1 / x, x + 1
    w, total = 1 / (x * x), 0.0
    for term in DIGAMMA_TERMS:
        total = term - w * total
    return ((log(x) - 0.5 / x) - w * total) - below
