"""Functions in whole numbers: a value v stands for the integer v * 2^600, rounded down. Slow and obvious.

Absolute errors are far below 2^-550, results of float32 functions are 0 or above 2^-150: 400 bits and more, where
no float32 result that is not exact lies within 2^-90 of the middle of two floats. For float64, whose results may be
2^-1074 and whose angles 2^1024, there are more bits (`fraction_bits`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import cache
from math import isqrt

import numpy as np

FRACTION_BITS = 600
ONE = 1 << FRACTION_BITS
Fixed = int
"""A value v as v * 2^600."""
FLOAT64_BITS = 2600
_precision_lock = threading.RLock()


@contextmanager
def fraction_bits(bits: int) -> Iterator[None]:
    """Compute with so many bits behind the point. One thread at a time."""
    global FRACTION_BITS, ONE
    with _precision_lock:
        before = FRACTION_BITS
        FRACTION_BITS, ONE = bits, 1 << bits
        try:
            yield
        finally:
            FRACTION_BITS, ONE = before, 1 << before


def to_fraction(x: float) -> Fraction:
    return Fraction(x)


def fixed_from_fraction(x: Fraction) -> Fixed:
    return (x.numerator << FRACTION_BITS) // x.denominator


def fraction_from_fixed(v: Fixed) -> Fraction:
    return Fraction(v, ONE)


def multiply_fixed(a: Fixed, b: Fixed) -> Fixed:
    return a * b >> FRACTION_BITS


def divide_fixed(a: Fixed, b: Fixed) -> Fixed:
    return (a << FRACTION_BITS) // b


def fixed_square_root(a: Fixed) -> Fixed:
    return isqrt(a << FRACTION_BITS)


def sum_series_by_term_ratio(first: Fixed, next_term: Callable[[Fixed, int], Fixed]) -> Fixed:
    """The sum of terms until they vanish; term n is next_term(term n-1, n)."""
    total, term, n = first, first, 0
    while abs(term) > 1:
        n += 1
        term = next_term(term, n)
        total += term
    return total


def sum_atanh_series(s: Fixed) -> Fixed:
    """|s| <= 1/3: s + s^3/3 + s^5/5 + ..."""
    square, power, total, n = multiply_fixed(s, s), s, s, 1
    while abs(power) > 1:
        power, n = multiply_fixed(power, square), n + 2
        total += power // n
    return total


def fixed_ln2() -> Fixed:
    return _fixed_ln2_of(FRACTION_BITS)


@cache
def _fixed_ln2_of(bits: int) -> Fixed:
    return 2 * sum_atanh_series(ONE // 3)


def fixed_pi() -> Fixed:
    return _fixed_pi_of(FRACTION_BITS)


@cache
def _fixed_pi_of(bits: int) -> Fixed:
    def inverse(k: int) -> Fixed:
        return sum_atan_series(ONE // k)

    return 16 * inverse(5) - 4 * inverse(239)


def sum_atan_series(t: Fixed) -> Fixed:
    square, power, total, n, sign = multiply_fixed(t, t), t, t, 1, 1
    while abs(power) > 1:
        power, n, sign = multiply_fixed(power, square), n + 2, -sign
        total += sign * power // n
    return total


def exp(x: Fraction) -> Fixed:
    k = fixed_from_fraction(x) // fixed_ln2()
    r = fixed_from_fraction(x) - k * fixed_ln2()
    y = sum_series_by_term_ratio(ONE, lambda term, n: multiply_fixed(term, r) // n)
    return y << k if k >= 0 else y >> -k


def exp2(x: Fraction) -> Fixed:
    k = x.numerator // x.denominator
    r = multiply_fixed(fixed_from_fraction(x - k), fixed_ln2())
    y = sum_series_by_term_ratio(ONE, lambda term, n: multiply_fixed(term, r) // n)
    return y << k if k >= 0 else y >> -k


def log(x: Fraction) -> Fixed:
    k = x.numerator.bit_length() - x.denominator.bit_length()
    m = x / Fraction(2) ** k
    return k * fixed_ln2() + 2 * sum_atanh_series(fixed_from_fraction((m - 1) / (m + 1))) if m != 1 else k * fixed_ln2()


def sin_cos(x: Fraction) -> tuple[Fixed, Fixed]:
    quadrant = fixed_from_fraction(x) // (fixed_pi() // 2)
    r = fixed_from_fraction(x) - quadrant * fixed_pi() // 2
    square = multiply_fixed(r, r)
    sine = sum_series_by_term_ratio(r, lambda term, n: -multiply_fixed(term, square) // (2 * n * (2 * n + 1)))
    cosine = sum_series_by_term_ratio(ONE, lambda term, n: -multiply_fixed(term, square) // (2 * n * (2 * n - 1)))
    for _ in range(quadrant % 4):
        sine, cosine = cosine, -sine
    return sine, cosine


def atan_of_fixed(t: Fixed) -> Fixed:
    for _ in range(4):
        t = divide_fixed(t, ONE + fixed_square_root(ONE + multiply_fixed(t, t)))
    return sum_atan_series(t) << 4


def asin(x: Fraction) -> Fixed:
    if abs(x) == 1:
        return fixed_pi() // 2 * (1 if x > 0 else -1)
    return atan_of_fixed(divide_fixed(fixed_from_fraction(x), fixed_square_root(fixed_from_fraction(1 - x * x))))


def erf(x: Fraction) -> Fixed:
    square = fixed_from_fraction(x * x)
    power = total = fixed_from_fraction(x)
    n = 0
    while abs(power) > 1:
        n += 1
        power = -multiply_fixed(power, square) // n
        total += power // (2 * n + 1)
    return divide_fixed(2 * total, fixed_square_root(fixed_pi()))


def cbrt(x: Fraction) -> Fixed:
    wanted = abs(fixed_from_fraction(x)) << 2 * FRACTION_BITS
    y = 1 << (wanted.bit_length() // 3 + 1)
    while (better := (2 * y + wanted // (y * y)) // 3) < y:
        y = better
    return y if x > 0 else -y


def sinh(x: Fraction) -> Fixed:
    return (exp(x) - exp(-x)) // 2


def cosh(x: Fraction) -> Fixed:
    return (exp(x) + exp(-x)) // 2


def asinh(x: Fraction) -> Fixed:
    size = abs(x)
    y = log(size + fraction_from_fixed(fixed_square_root(fixed_from_fraction(size * size + 1))))
    return y if x > 0 else -y


FUNCTIONS: dict[str, Callable[[Fraction], int]] = {
    "exp": exp,
    "exp2": exp2,
    "expm1": lambda x: exp(x) - ONE,
    "sinh": sinh,
    "cosh": cosh,
    "tanh": lambda x: divide_fixed(sinh(x), cosh(x)),
    "sigmoid": lambda x: divide_fixed(ONE, ONE + exp(-x)),
    "log": log,
    "log2": lambda x: divide_fixed(log(x), fixed_ln2()),
    "log10": lambda x: divide_fixed(log(x), log(Fraction(10))),
    "log1p": lambda x: log(1 + x),
    "asinh": asinh,
    "acosh": lambda x: log(x + fraction_from_fixed(fixed_square_root(fixed_from_fraction(x * x - 1)))),
    "atanh": lambda x: log((1 + x) / (1 - x)) // 2,
    "sin": lambda x: sin_cos(x)[0],
    "cos": lambda x: sin_cos(x)[1],
    "tan": lambda x: divide_fixed(*sin_cos(x)),
    "asin": asin,
    "acos": lambda x: fixed_pi() // 2 - asin(x),
    "atan": lambda x: atan_of_fixed(fixed_from_fraction(x)),
    "erf": erf,
    "erfc": lambda x: ONE - erf(x),
    "rsqrt": lambda x: divide_fixed(ONE, fixed_square_root(fixed_from_fraction(x))),
    "reciprocal": lambda x: fixed_from_fraction(1 / x),
    "cbrt": cbrt,
}


def power(x: Fraction, y: Fraction) -> Fixed:
    """x^y; what is a float or the middle of two up to 2^-200 of itself is exactly that."""
    size = exp(fraction_from_fixed(log(abs(x))) * y)
    low = max(size.bit_length() - 60, 0)
    whole = (size + (1 << low >> 1)) >> low << low
    if abs(size - whole) < size >> 200:
        size = whole
    return -size if x < 0 and y % 2 == 1 else size


def atan2_angle(y: Fraction, x: Fraction) -> Fixed:
    """The angle of the point (x, y), neither 0."""
    flat, steep = abs(y) <= abs(x), fixed_from_fraction(min(abs(x), abs(y)) / max(abs(x), abs(y)))
    size = atan_of_fixed(steep) if flat else fixed_pi() // 2 - atan_of_fixed(steep)
    if x < 0:
        size = fixed_pi() - size
    return size if y > 0 else -size


PAIR_FUNCTIONS: dict[str, Callable[[Fraction, Fraction], int]] = {
    "pow": power,
    "atan2": atan2_angle,
    "hypot": lambda x, y: fixed_square_root(fixed_from_fraction(x * x + y * y)),
}


def round_to_float32(v: Fixed) -> np.float32:
    """The float32 nearest to a fixed number; ties to even."""
    rounded: np.float32 = np.float32(round_to_unbounded_float(v, 24, -149))
    return rounded


def round_to_unbounded_float(v: Fixed, significand_bits: int, least_exponent: int) -> np.float64:
    """The number of so many significant bits nearest to a fixed one; ties to even. The last bit of the smallest weighs
    2^least_exponent.
    """
    size = abs(v)
    low = max(size.bit_length() - significand_bits, FRACTION_BITS + least_exponent)
    whole, rest = size >> low, size & ((1 << low) - 1)
    half = 1 << (low - 1)
    if rest > half or (rest == half and whole & 1):
        whole += 1
    value = np.ldexp(np.float64(whole), low - FRACTION_BITS)
    signed: np.float64 = -value if v < 0 else value
    return signed
