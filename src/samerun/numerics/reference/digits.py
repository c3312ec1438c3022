"""Functions in whole numbers: a value v stands for the integer v * 2^600, rounded down. Slow and obvious.

Absolute errors are far below 2^-550, results of float32 functions are 0 or above 2^-150: 400 bits and more, where
no float32 result that is not exact lies within 2^-90 of the middle of two floats.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import isqrt

import numpy as np

P = 600
ONE = 1 << P


def fraction(x: float) -> Fraction:
    return Fraction(x)


def fixed(x: Fraction) -> int:
    return (x.numerator << P) // x.denominator


def real(v: int) -> Fraction:
    return Fraction(v, ONE)


def times(a: int, b: int) -> int:
    return a * b >> P


def over(a: int, b: int) -> int:
    return (a << P) // b


def root(a: int) -> int:
    return isqrt(a << P)


def series(first: int, ratio: Callable[[int, int], int]) -> int:
    """The sum of terms until they vanish; term n is ratio(term n-1, n)."""
    total, term, n = first, first, 0
    while abs(term) > 1:
        n += 1
        term = ratio(term, n)
        total += term
    return total


def atanh_small(s: int) -> int:
    """|s| <= 1/3: s + s^3/3 + s^5/5 + ..."""
    square, power, total, n = times(s, s), s, s, 1
    while abs(power) > 1:
        power, n = times(power, square), n + 2
        total += power // n
    return total


@cache
def ln2() -> int:
    return 2 * atanh_small(ONE // 3)


@cache
def pi() -> int:
    def inverse(k: int) -> int:
        return series_of_atan(ONE // k)

    return 16 * inverse(5) - 4 * inverse(239)


def series_of_atan(t: int) -> int:
    square, power, total, n, sign = times(t, t), t, t, 1, 1
    while abs(power) > 1:
        power, n, sign = times(power, square), n + 2, -sign
        total += sign * power // n
    return total


def exp(x: Fraction) -> int:
    k = fixed(x) // ln2()
    r = fixed(x) - k * ln2()
    y = series(ONE, lambda term, n: times(term, r) // n)
    return y << k if k >= 0 else y >> -k


def exp2(x: Fraction) -> int:
    k = x.numerator // x.denominator
    r = times(fixed(x - k), ln2())
    y = series(ONE, lambda term, n: times(term, r) // n)
    return y << k if k >= 0 else y >> -k


def log(x: Fraction) -> int:
    k = x.numerator.bit_length() - x.denominator.bit_length()
    m = x / Fraction(2) ** k
    return k * ln2() + 2 * atanh_small(fixed((m - 1) / (m + 1))) if m != 1 else k * ln2()


def sin_cos(x: Fraction) -> tuple[int, int]:
    quadrant = fixed(x) // (pi() // 2)
    r = fixed(x) - quadrant * pi() // 2
    square = times(r, r)
    sine = series(r, lambda term, n: -times(term, square) // (2 * n * (2 * n + 1)))
    cosine = series(ONE, lambda term, n: -times(term, square) // (2 * n * (2 * n - 1)))
    for _ in range(quadrant % 4):
        sine, cosine = cosine, -sine
    return sine, cosine


def atan_fixed(t: int) -> int:
    for _ in range(4):
        t = over(t, ONE + root(ONE + times(t, t)))
    return series_of_atan(t) << 4


def asin(x: Fraction) -> int:
    if abs(x) == 1:
        return pi() // 2 * (1 if x > 0 else -1)
    return atan_fixed(over(fixed(x), root(fixed(1 - x * x))))


def erf(x: Fraction) -> int:
    square = fixed(x * x)
    power = total = fixed(x)
    n = 0
    while abs(power) > 1:
        n += 1
        power = -times(power, square) // n
        total += power // (2 * n + 1)
    return over(2 * total, root(pi()))


def cbrt(x: Fraction) -> int:
    wanted = abs(fixed(x)) << 2 * P
    y = 1 << (wanted.bit_length() // 3 + 1)
    while (better := (2 * y + wanted // (y * y)) // 3) < y:
        y = better
    return y if x > 0 else -y


def sinh(x: Fraction) -> int:
    return (exp(x) - exp(-x)) // 2


def cosh(x: Fraction) -> int:
    return (exp(x) + exp(-x)) // 2


def asinh(x: Fraction) -> int:
    size = abs(x)
    y = log(size + real(root(fixed(size * size + 1))))
    return y if x > 0 else -y


FUNCTIONS: dict[str, Callable[[Fraction], int]] = {
    "exp": exp,
    "exp2": exp2,
    "expm1": lambda x: exp(x) - ONE,
    "sinh": sinh,
    "cosh": cosh,
    "tanh": lambda x: over(sinh(x), cosh(x)),
    "sigmoid": lambda x: over(ONE, ONE + exp(-x)),
    "log": log,
    "log2": lambda x: over(log(x), ln2()),
    "log10": lambda x: over(log(x), log(Fraction(10))),
    "log1p": lambda x: log(1 + x),
    "asinh": asinh,
    "acosh": lambda x: log(x + real(root(fixed(x * x - 1)))),
    "atanh": lambda x: log((1 + x) / (1 - x)) // 2,
    "sin": lambda x: sin_cos(x)[0],
    "cos": lambda x: sin_cos(x)[1],
    "tan": lambda x: over(*sin_cos(x)),
    "asin": asin,
    "acos": lambda x: pi() // 2 - asin(x),
    "atan": lambda x: atan_fixed(fixed(x)),
    "erf": erf,
    "erfc": lambda x: ONE - erf(x),
    "rsqrt": lambda x: over(ONE, root(fixed(x))),
    "reciprocal": lambda x: fixed(1 / x),
    "cbrt": cbrt,
}


def power(x: Fraction, y: Fraction) -> int:
    """x^y; what is a float or the middle of two up to 2^-200 of itself is exactly that."""
    size = exp(real(log(abs(x))) * y)
    low = max(size.bit_length() - 60, 0)
    whole = (size + (1 << low >> 1)) >> low << low
    if abs(size - whole) < size >> 200:
        size = whole
    return -size if x < 0 and y % 2 == 1 else size


def angle(y: Fraction, x: Fraction) -> int:
    """atan2: the angle of the point (x, y), neither 0."""
    flat, steep = abs(y) <= abs(x), fixed(min(abs(x), abs(y)) / max(abs(x), abs(y)))
    size = atan_fixed(steep) if flat else pi() // 2 - atan_fixed(steep)
    if x < 0:
        size = pi() - size
    return size if y > 0 else -size


PAIR_FUNCTIONS: dict[str, Callable[[Fraction, Fraction], int]] = {
    "pow": power,
    "atan2": angle,
    "hypot": lambda x, y: root(fixed(x * x + y * y)),
}


def nearest_float(v: int) -> np.float32:
    """The float32 nearest to a fixed number; ties to even."""
    size = abs(v)
    low = max(size.bit_length() - 24, P - 149)
    whole, rest = size >> low, size & ((1 << low) - 1)
    half = 1 << (low - 1)
    if rest > half or (rest == half and whole & 1):
        whole += 1
    value = np.float32(np.ldexp(np.float64(whole), low - P))
    return -value if v < 0 else value
