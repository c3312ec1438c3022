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

FRACTION_BITS = 600
ONE = 1 << FRACTION_BITS


def to_fraction(x: float) -> Fraction:
    return Fraction(x)


def to_fixed(x: Fraction) -> int:
    return (x.numerator << FRACTION_BITS) // x.denominator


def from_fixed(v: int) -> Fraction:
    return Fraction(v, ONE)


def multiply(a: int, b: int) -> int:
    return a * b >> FRACTION_BITS


def divide(a: int, b: int) -> int:
    return (a << FRACTION_BITS) // b


def square_root(a: int) -> int:
    return isqrt(a << FRACTION_BITS)


def sum_series(first: int, ratio: Callable[[int, int], int]) -> int:
    """The sum of terms until they vanish; term n is ratio(term n-1, n)."""
    total, term, n = first, first, 0
    while abs(term) > 1:
        n += 1
        term = ratio(term, n)
        total += term
    return total


def atanh_series(s: int) -> int:
    """|s| <= 1/3: s + s^3/3 + s^5/5 + ..."""
    square, power, total, n = multiply(s, s), s, s, 1
    while abs(power) > 1:
        power, n = multiply(power, square), n + 2
        total += power // n
    return total


@cache
def ln2() -> int:
    return 2 * atanh_series(ONE // 3)


@cache
def pi() -> int:
    def inverse(k: int) -> int:
        return atan_series(ONE // k)

    return 16 * inverse(5) - 4 * inverse(239)


def atan_series(t: int) -> int:
    square, power, total, n, sign = multiply(t, t), t, t, 1, 1
    while abs(power) > 1:
        power, n, sign = multiply(power, square), n + 2, -sign
        total += sign * power // n
    return total


def exp(x: Fraction) -> int:
    k = to_fixed(x) // ln2()
    r = to_fixed(x) - k * ln2()
    y = sum_series(ONE, lambda term, n: multiply(term, r) // n)
    return y << k if k >= 0 else y >> -k


def exp2(x: Fraction) -> int:
    k = x.numerator // x.denominator
    r = multiply(to_fixed(x - k), ln2())
    y = sum_series(ONE, lambda term, n: multiply(term, r) // n)
    return y << k if k >= 0 else y >> -k


def log(x: Fraction) -> int:
    k = x.numerator.bit_length() - x.denominator.bit_length()
    m = x / Fraction(2) ** k
    return k * ln2() + 2 * atanh_series(to_fixed((m - 1) / (m + 1))) if m != 1 else k * ln2()


def sin_cos(x: Fraction) -> tuple[int, int]:
    quadrant = to_fixed(x) // (pi() // 2)
    r = to_fixed(x) - quadrant * pi() // 2
    square = multiply(r, r)
    sine = sum_series(r, lambda term, n: -multiply(term, square) // (2 * n * (2 * n + 1)))
    cosine = sum_series(ONE, lambda term, n: -multiply(term, square) // (2 * n * (2 * n - 1)))
    for _ in range(quadrant % 4):
        sine, cosine = cosine, -sine
    return sine, cosine


def atan_fixed(t: int) -> int:
    for _ in range(4):
        t = divide(t, ONE + square_root(ONE + multiply(t, t)))
    return atan_series(t) << 4


def asin(x: Fraction) -> int:
    if abs(x) == 1:
        return pi() // 2 * (1 if x > 0 else -1)
    return atan_fixed(divide(to_fixed(x), square_root(to_fixed(1 - x * x))))


def erf(x: Fraction) -> int:
    square = to_fixed(x * x)
    power = total = to_fixed(x)
    n = 0
    while abs(power) > 1:
        n += 1
        power = -multiply(power, square) // n
        total += power // (2 * n + 1)
    return divide(2 * total, square_root(pi()))


def cbrt(x: Fraction) -> int:
    wanted = abs(to_fixed(x)) << 2 * FRACTION_BITS
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
    y = log(size + from_fixed(square_root(to_fixed(size * size + 1))))
    return y if x > 0 else -y


FUNCTIONS: dict[str, Callable[[Fraction], int]] = {
    "exp": exp,
    "exp2": exp2,
    "expm1": lambda x: exp(x) - ONE,
    "sinh": sinh,
    "cosh": cosh,
    "tanh": lambda x: divide(sinh(x), cosh(x)),
    "sigmoid": lambda x: divide(ONE, ONE + exp(-x)),
    "log": log,
    "log2": lambda x: divide(log(x), ln2()),
    "log10": lambda x: divide(log(x), log(Fraction(10))),
    "log1p": lambda x: log(1 + x),
    "asinh": asinh,
    "acosh": lambda x: log(x + from_fixed(square_root(to_fixed(x * x - 1)))),
    "atanh": lambda x: log((1 + x) / (1 - x)) // 2,
    "sin": lambda x: sin_cos(x)[0],
    "cos": lambda x: sin_cos(x)[1],
    "tan": lambda x: divide(*sin_cos(x)),
    "asin": asin,
    "acos": lambda x: pi() // 2 - asin(x),
    "atan": lambda x: atan_fixed(to_fixed(x)),
    "erf": erf,
    "erfc": lambda x: ONE - erf(x),
    "rsqrt": lambda x: divide(ONE, square_root(to_fixed(x))),
    "reciprocal": lambda x: to_fixed(1 / x),
    "cbrt": cbrt,
}


def power(x: Fraction, y: Fraction) -> int:
    """x^y; what is a float or the middle of two up to 2^-200 of itself is exactly that."""
    size = exp(from_fixed(log(abs(x))) * y)
    low = max(size.bit_length() - 60, 0)
    whole = (size + (1 << low >> 1)) >> low << low
    if abs(size - whole) < size >> 200:
        size = whole
    return -size if x < 0 and y % 2 == 1 else size


def angle(y: Fraction, x: Fraction) -> int:
    """atan2: the angle of the point (x, y), neither 0."""
    flat, steep = abs(y) <= abs(x), to_fixed(min(abs(x), abs(y)) / max(abs(x), abs(y)))
    size = atan_fixed(steep) if flat else pi() // 2 - atan_fixed(steep)
    if x < 0:
        size = pi() - size
    return size if y > 0 else -size


PAIR_FUNCTIONS: dict[str, Callable[[Fraction, Fraction], int]] = {
    "pow": power,
    "atan2": angle,
    "hypot": lambda x, y: square_root(to_fixed(x * x + y * y)),
}


def nearest_float(v: int) -> np.float32:
    """The float32 nearest to a fixed number; ties to even."""
    size = abs(v)
    low = max(size.bit_length() - 24, FRACTION_BITS - 149)
    whole, rest = size >> low, size & ((1 << low) - 1)
    half = 1 << (low - 1)
    if rest > half or (rest == half and whole & 1):
        whole += 1
    value = np.float32(np.ldexp(np.float64(whole), low - FRACTION_BITS))
    signed: np.float32 = -value if v < 0 else value
    return signed
