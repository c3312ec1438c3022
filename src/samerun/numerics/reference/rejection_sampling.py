"""Gamma, Poisson and binomial numbers, one at a time, in float64 (`float64_math`).

Value i of a draw has the Philox blocks i + a 2^56, a the attempt, of two 64-bit words each. Of a word x,
`uniform_below_one` is (x >> 11) 2^-53, `uniform_above_zero` is ((x >> 11) + 1) 2^-53, and `normal_of_word` the
float32 that `random.normal` makes of its halves, the low one first (the cosine). Attempts count from 0, and the first
accepted one counts. All 255 are rejected with a chance below 1e-100; the value is then the last candidate.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from samerun.numerics.reference.float64_math import HALF_LOG_TURN, exp, log, log1p, stirling_correction
from samerun.numerics.reference.functions import unary
from samerun.numerics.reference.random import STEP, TURN, F, philox_blocks

ATTEMPTS = 255
BOOST = 255
"""The attempt whose block a gamma number of a shape below 1 is scaled with."""
REJECTION_FROM = 10.0
"""Of smaller means Poisson and binomial numbers are counted up; of others, drawn by rejection."""
MOST_COUNTED = 127

Words = Callable[[int], tuple[int, int]]
"""The two words of an attempt."""


def attempt_words(seed: int, position: int, i: int) -> Words:
    def words(attempt: int) -> tuple[int, int]:
        four = [int(word) for word in philox_blocks(seed, position, np.array([i | attempt << 56], np.uint64))[0]]
        return four[0] | four[1] << 32, four[2] | four[3] << 32

    return words


def uniform_below_one(word: int) -> float:
    return (word >> 11) * 2.0**-53


def uniform_above_zero(word: int) -> float:
    return ((word >> 11) + 1) * 2.0**-53


def normal_of_word(word: int) -> float:
    u = F(((word & 0xFFFFFFFF) >> 8) + 1) * STEP
    v = F(word >> 40) * STEP
    log_u, turned = unary("log", np.array([u])), unary("cos", np.array([TURN * v]))
    return float((np.sqrt(F(-2) * log_u) * turned)[0])


def sample_gamma(shape: float, words: Words) -> float:
    """Marsaglia and Tsang (2000), "A simple method for generating gamma variables". NaN where shape is below 0."""
    if not 0 < shape < math.inf:
        return shape if shape in (0, math.inf) else math.nan
    d = (shape + 1 if shape < 1 else shape) - 1 / 3
    c = 1 / math.sqrt(9 * d)
    candidate = math.nan
    for attempt in range(ATTEMPTS):
        first, second = words(attempt)
        x, u = normal_of_word(first), uniform_above_zero(second)
        t = c * x
        above = t * (3 + t * (3 + t))  # (1 + t)^3 - 1
        candidate = d * (above + 1)
        if t > -1 and log(u) < (0.5 * x) * x + d * (3 * log1p(t) - above):
            break
    if shape < 1:
        candidate = candidate * exp(log(uniform_above_zero(words(BOOST)[0])) / shape)
    return candidate


def sample_poisson(rate: float, words: Words) -> float:
    """Counted up to the first number whose distribution function exceeds a uniform number; from `REJECTION_FROM` on,
    Hörmann (1993), "The transformed rejection method for generating Poisson random variables" (PTRS).
    """
    if rate == math.inf:
        return rate
    if rate < REJECTION_FROM:
        u, p, k = uniform_below_one(words(0)[0]), exp(-rate), 0
        total = p
        while u >= total and k < MOST_COUNTED:
            k += 1
            p = (p * rate) / k
            total = total + p
        return float(k)
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse, enough = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2)
    k = math.floor(rate)
    for attempt in range(ATTEMPTS):
        first, second = words(attempt)
        u, v = uniform_below_one(first) - 0.5, uniform_above_zero(second)
        room = 0.5 - abs(u)
        if room == 0:
            continue
        k = math.floor((((2 * a) / room + b) * u + rate) + 0.43)
        if room >= 0.07 and v <= enough:
            break
        if k < 0 or (room < 0.013 and v > room):
            continue
        m = k + 1
        chance = ((k * log(rate / m) - 0.5 * log(m)) + (m - rate)) - (HALF_LOG_TURN + stirling_correction(m))
        if log((v * inverse) / (a / (room * room) + b)) <= chance:
            break
    return float(max(k, 0))


def sample_binomial(count: float, probability: float, words: Words) -> float:
    """Counted up, or by Hörmann (1993), "The generation of binomial random variates" (BTRS). Above 1/2, failures are
    counted; a count that is not whole has the trials of its whole part. NaN where either is NaN.
    """
    if count != count or probability != probability:
        return math.nan
    if count <= 0 or probability <= 0:
        return 0.0
    if probability >= 1:
        return count
    if count == math.inf:
        return math.nan
    n = float(math.floor(count))
    q = probability if probability <= 0.5 else 1 - probability
    k = _binomial_counted(n, q, words) if n * q < REJECTION_FROM else _binomial_by_rejection(n, q, words)
    return k if probability <= 0.5 else count - k


def _binomial_counted(n: float, q: float, words: Words) -> float:
    u, p, k = uniform_below_one(words(0)[0]), exp(n * log1p(-q)), 0
    odds, total = q / (1 - q), p
    while u >= total and k < MOST_COUNTED:
        k += 1
        p = p * (odds * ((n - (k - 1)) / k))
        total = total + p
    return min(float(k), n)


def _binomial_by_rejection(n: float, q: float, words: Words) -> float:
    spread = math.sqrt((n * q) * (1 - q))
    b = 1.15 + 2.53 * spread
    a = (-0.0873 + 0.0248 * b) + 0.01 * q
    center, enough, odds = n * q + 0.5, 0.92 - 4.2 / b, q / (1 - q)
    alpha = (2.83 + 5.1 / b) * spread
    mode = math.floor((n + 1) * q)
    rest = (n - mode) + 1
    best = (mode + 0.5) * log((mode + 1) / (odds * rest)) + (stirling_correction(mode + 1) + stirling_correction(rest))
    k = mode
    for attempt in range(ATTEMPTS):
        first, second = words(attempt)
        u, v = uniform_below_one(first) - 0.5, uniform_above_zero(second)
        room = 0.5 - abs(u)
        if room == 0:
            continue
        k = math.floor(((2 * a) / room + b) * u + center)
        if room >= 0.07 and v <= enough:
            break
        if k < 0 or k > n:
            continue
        left = (n - k) + 1
        chance = (best + (n + 1) * log(rest / left)) + (k + 0.5) * log((odds * left) / (k + 1))
        if log((v * alpha) / (a / (room * room) + b)) <= chance - (
            stirling_correction(k + 1) + stirling_correction(left)
        ):
            break
    return float(min(max(k, 0), n))
