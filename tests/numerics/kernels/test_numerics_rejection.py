"""Gamma, Poisson and binomial numbers: the bits of the reference, and the right distributions; how numbers move."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from mpmath import mp
from portable_values import assert_same_bits, at_level

from samerun.numerics.kernels import distributions, float64_math, library, random
from samerun.numerics.reference import distributions as reference
from samerun.numerics.reference import float64_math as wide_reference

INF, NAN = math.inf, math.nan
KEYS = [(5, 3), (2**64 - 1, 2**40)]


def spread(low: float, high: float, n: int, seed: int = 0) -> list[float]:
    """Numbers from 10^low to 10^high."""
    return [float(10.0**x) for x in np.random.default_rng(seed).uniform(low, high, n)]


def doubles(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# --- the functions of float64 ------------------------------------------------------------------------------------
ANY = [*spread(-320, 300, 300), *(-x for x in spread(-300, 2.8, 300)), *spread(-3, 2.9, 200)]
EDGES = [0.0, -0.0, INF, -INF, NAN, 709.0, 709.1, -708.0, -708.1, 5e-324, 1.0, -1.0, -0.25, 0.25]


@pytest.mark.parametrize("name", ["log", "log1p", "exp", "expm1"])
def test_functions_have_the_bits_of_the_reference(name: str) -> None:
    given = ANY + EDGES
    want = [getattr(wide_reference, name)(x) for x in given]
    assert_same_bits(getattr(float64_math, name)(doubles(given)), doubles(want), name)
    assert getattr(float64_math, name)(doubles([])).shape == (0,)


def test_digamma_and_corrections_have_the_bits_of_the_reference() -> None:
    positive = [*spread(-300, 300, 300), *map(float, range(1, 30))]
    assert_same_bits(
        float64_math.digamma_positive(doubles(positive)),
        doubles([wide_reference.digamma_positive(x) for x in positive]),
    )
    whole = [*map(float, range(1, 40)), *(math.floor(x) for x in spread(1, 15, 100))]
    assert_same_bits(
        float64_math.loggamma_stirling_error(doubles(whole)),
        doubles([wide_reference.loggamma_stirling_error(x) for x in whole]),
    )


@pytest.mark.parametrize(
    ("name", "exact", "given", "error"),
    [
        ("log", mp.log, [*spread(-300, 300, 200), *spread(-0.3, 0.3, 200), 1 + 1e-9, 1 - 1e-9], 2.0**-51),
        ("log1p", mp.log1p, [*spread(-20, 2, 200), *(-x for x in spread(-20, -0.05, 200))], 2.0**-51),
        ("exp", mp.exp, [*spread(-3, 2.8, 200), *(-x for x in spread(-3, 2.8, 200))], 2.0**-51),
        ("expm1", mp.expm1, [*spread(-20, 2.8, 200), *(-x for x in spread(-20, 2.8, 200))], 2.0**-51),
        ("digamma_positive", mp.digamma, spread(-3, 10, 200), 3e-14),
        ("loggamma_stirling_error", lambda m: mp.loggamma(m) - ((m - 0.5) * mp.log(m) - m + mp.log(2 * mp.pi) / 2),
         [*map(float, range(1, 40)), 1e6], 2e-14),
    ],
)  # fmt: skip
def test_functions_are_as_near_as_they_say(name: str, exact: Callable[[object], object], given: list[float],
                                           error: float) -> None:  # fmt: skip
    with mp.workdps(40):
        for x in given:
            want = exact(mp.mpf(x))
            size = abs(want) if name in ("log", "log1p", "exp", "expm1") else max(1, abs(want))
            assert abs(mp.mpf(getattr(wide_reference, name)(x)) - want) <= error * size, (name, x)


# --- numbers -----------------------------------------------------------------------------------------------------
SHAPES = [*spread(-4, 8, 150), 0.0, INF, NAN, -1.0, 1e-40, 1e30, 1.0, 0.5]
RATES = [*spread(-4, 12, 150), *spread(0.7, 1.5, 150), 0.0, INF, 9.9999, 10.0]
COUNTS = [*(float(math.floor(x)) for x in spread(0, 9, 300)), 0.0, -3.0, 5.7, 5.7, 5.0, 5.0, NAN, INF, 7.0]
CHANCES = [*(x % 1 for x in spread(0, 3, 150)), *spread(-9, -0.1, 150), 0.3, 0.3, 0.3, 0.9, 1.2, -1.0, 0.3, 0.3, NAN]


@pytest.mark.parametrize("level", library.supported_levels())
@pytest.mark.parametrize(("seed", "position"), KEYS)
def test_numbers_have_the_bits_of_the_reference(seed: int, position: int, level: str) -> None:
    def words(i: int) -> reference.AttemptWords64Function:
        return reference.make_attempt_words64_function(seed, position, i)

    with at_level(level):
        draw = distributions.RandomDraw(seed, position)
        got = distributions.sample_gamma(doubles(SHAPES), draw)
        assert_same_bits(got, doubles([reference.sample_gamma(x, words(i)) for i, x in enumerate(SHAPES)]), "gamma")
        got = distributions.sample_poisson(doubles(RATES), draw)
        assert_same_bits(got, doubles([reference.sample_poisson(x, words(i)) for i, x in enumerate(RATES)]), "poisson")
        got = distributions.sample_binomial(doubles(COUNTS), doubles(CHANCES), draw)
        both = enumerate(zip(COUNTS, CHANCES, strict=True))
        assert_same_bits(got, doubles([reference.sample_binomial(n, p, words(i)) for i, (n, p) in both]), "binomial")


@pytest.mark.parametrize("n", [0, 1, 2, 255, 257, 3000])
@pytest.mark.parametrize(("seed", "position"), KEYS)
def test_words_of_blocks(n: int, seed: int, position: int) -> None:
    numbers = torch.arange(n) | torch.where(torch.arange(n) % 3 == 0, -(1 << 56), 5 << 56)
    with at_level("reference"):
        want = random.philox_block_words(numbers, seed, position)
    assert want.shape == (n, 2)
    for level in library.supported_levels():
        with at_level(level):
            assert_same_bits(random.philox_block_words(numbers, seed, position), want, level)


def test_a_number_depends_on_its_place_alone() -> None:
    draw = distributions.RandomDraw(1, 2)
    for compute, value in (
        (distributions.sample_gamma, 0.3),
        (distributions.sample_poisson, 4.0),
        (distributions.sample_poisson, 40.0),
    ):
        whole = compute(torch.full((500,), value, dtype=torch.float64), draw)
        assert torch.equal(compute(torch.full((77,), value, dtype=torch.float64), draw), whole[:77])
        mixed = torch.full((500,), value, dtype=torch.float64)
        mixed[::3] = 1.5
        assert torch.equal(compute(mixed, draw)[1::3], whole[1::3]), "other parameters elsewhere change nothing here"
    assert not torch.equal(
        distributions.sample_poisson(mixed, distributions.RandomDraw(1, 3)),
        distributions.sample_poisson(mixed, draw),
    )


def largest_gap(uniform: torch.Tensor) -> float:
    """The statistic of Kolmogorov and Smirnov, times sqrt(n); above 1.95 once in a thousand."""
    n = uniform.numel()
    steps = torch.arange(n + 1, dtype=torch.float64) / n
    ordered = uniform.sort()[0]
    return float(torch.maximum((steps[1:] - ordered).max(), (ordered - steps[:-1]).max())) * math.sqrt(n)


@pytest.mark.parametrize("shape", [0.02, 0.3, 0.99, 1.0, 2.5, 40.0, 3e4])
def test_gamma_numbers_are_distributed_so(shape: float) -> None:
    n = 40_000
    x = distributions.sample_gamma(torch.full((n,), shape, dtype=torch.float64), distributions.RandomDraw(11, 4))
    uniform = torch.special.gammainc(torch.full_like(x, shape), x)
    assert largest_gap(uniform) < 1.95
    assert abs(float(x.mean()) - shape) < 5 * math.sqrt(shape / n)


def assert_counts(values: torch.Tensor, chance: Callable[[int], float]) -> None:
    """Every number comes as often as it should, within five deviations; and so does the sum of their squares."""
    n, numbers = values.numel(), values.to(torch.int64)
    assert torch.equal(numbers.double(), values)
    low, high = int(numbers.min()), int(numbers.max())
    total = 0.0
    for k in range(max(0, low - 3), high + 4):
        expected = n * chance(k)
        if expected > 20:
            deviation = (float((numbers == k).sum()) - expected) / math.sqrt(expected)
            total += deviation * deviation - 1
            assert abs(deviation) < 5, (k, expected)
    assert total < 5 * math.sqrt(2.0 * (high - low + 8))


@pytest.mark.parametrize("rate", [0.01, 1.0, 9.9, 10.0, 37.5, 1000.0])
def test_poisson_numbers_are_distributed_so(rate: float) -> None:
    x = distributions.sample_poisson(torch.full((100_000,), rate, dtype=torch.float64), distributions.RandomDraw(12, 5))
    assert_counts(x, lambda k: math.exp(k * math.log(rate) - rate - math.lgamma(k + 1)))


@pytest.mark.parametrize(("count", "p"), [(1, 0.3), (5, 0.97), (30, 0.25), (40, 0.25), (100, 0.5), (100, 0.83),
                                          (5000, 0.01), (100_000, 1e-5)])  # fmt: skip
def test_binomial_numbers_are_distributed_so(count: int, p: float) -> None:
    n, chances = (torch.full((100_000,), float(x), dtype=torch.float64) for x in (count, p))
    x = distributions.sample_binomial(n, chances, distributions.RandomDraw(13, 6))
    ways = math.lgamma(count + 1)
    assert_counts(
        x,
        lambda k: (
            0.0
            if k > count
            else math.exp(
                ways - math.lgamma(k + 1) - math.lgamma(count - k + 1) + k * math.log(p) + (count - k) * math.log1p(-p)
            )
        ),
    )


@pytest.mark.parametrize("mean", [1e9, 1e14])
def test_large_numbers_have_their_moments(mean: float) -> None:
    given = torch.full((20_000,), mean, dtype=torch.float64)
    for x, variance in ((distributions.sample_poisson(given, distributions.RandomDraw(14, 0)), mean),
                        (distributions.sample_binomial(
                            given * 4, torch.full_like(given, 0.25), distributions.RandomDraw(14, 1)
                        ),
                         mean * 0.75)):  # fmt: skip
        z = (x - mean) / math.sqrt(variance)
        assert abs(float(z.mean())) < 0.03 and abs(float(z.var()) - 1) < 0.05
        assert largest_gap((1 + torch.erf(z / math.sqrt(2))) / 2) < 1.95


# --- how they move -----------------------------------------------------------------------------------------------
def gamma_cases() -> tuple[list[float], list[float]]:
    generator = np.random.default_rng(1)
    shapes = spread(-3, 4, 200)
    x = [max(float(generator.gamma(a)), 1e-300) * (10.0 ** generator.uniform(-1, 1) if i % 4 == 0 else 1.0)
         for i, a in enumerate(shapes)]  # fmt: skip
    return [*shapes, 1.0, 1.0, NAN, 1.0, -1.0, 1e12], [*x, 0.0, INF, 1.0, NAN, 1.0, 1e12]


def beta_cases() -> tuple[list[float], list[float], list[float]]:
    generator = np.random.default_rng(2)
    a, b = spread(-3, 3, 200, seed=3), spread(-3, 3, 200, seed=4)
    x = [float(np.clip(generator.beta(one, other), 1e-30, 1)) for one, other in zip(a, b, strict=True)]
    totals = [one + other for one, other in zip(a, b, strict=True)]
    return [*x, 0.0, 1.0, 0.5, NAN], [*a, 1.0, 1.0, NAN, 1.0], [*totals, 2.0, 2.0, 2.0, 2.0]


def test_gradients_have_the_bits_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    a, x = gamma_cases()
    want = doubles([reference.gamma_shape_gradient(*each) for each in zip(a, x, strict=True)])
    assert_same_bits(distributions.gamma_gradient(doubles(a), doubles(x)), want)
    given = beta_cases()
    want_beta = doubles([reference.beta_gradient_over_one_minus_x(*each) for each in zip(*given, strict=True)])
    assert_same_bits(distributions.dirichlet_grad(*map(doubles, given)), want_beta)
    monkeypatch.setattr(distributions, "CHUNK", 7)
    assert_same_bits(distributions.gamma_gradient(doubles(a), doubles(x)), want)


def test_gradients_are_torchs_where_torchs_are_near() -> None:
    """torch's own are wrong by up to 2e-3 (see the test below)."""
    a, x = (doubles(each) for each in gamma_cases())
    mine, theirs = distributions.gamma_gradient(a, x), torch._standard_gamma_grad(a, x)
    usable = torch.isfinite(mine) & torch.isfinite(theirs) & (theirs != 0)
    assert usable.sum() > 180
    errors = (mine / theirs - 1).abs()[usable]
    assert float(errors.max()) < 4e-3 and float(errors.median()) < 1e-5
    given = [doubles(each) for each in beta_cases()]
    mine, theirs = distributions.dirichlet_grad(*given), torch._dirichlet_grad(*given)
    usable = torch.isfinite(mine) & torch.isfinite(theirs) & (theirs != 0) & (mine != 0)
    errors = (mine / theirs - 1).abs()[usable]
    assert usable.sum() > 180 and float(errors.max()) < 4e-3 and float(errors.median()) < 1e-5


@pytest.mark.parametrize("a", [0.01, 0.3, 1.0, 7.0, 60.0, 150.0])
def test_gradients_are_those_of_the_distribution_function(a: float) -> None:
    with mp.workdps(30):
        for part in (0.3, 1.0, 1.7):
            x = a * part
            density = mp.power(x, a - 1) * mp.exp(-x) / mp.gamma(a)
            want = -mp.diff(lambda t: mp.gammainc(t, 0, x, regularized=True), a) / density  # noqa: B023
            assert abs(reference.gamma_shape_gradient(a, x) / want - 1) < 1e-6, (a, x)
            b, y = 2.5, min(0.9, part * a / (a + 2.5))
            density = mp.power(y, a - 1) * mp.power(1 - y, b - 1) / mp.beta(a, b)
            want = -mp.diff(lambda t: mp.betainc(t, b, 0, y, regularized=True), a) / density / (1 - y)  # noqa: B023
            assert abs(reference.beta_gradient_over_one_minus_x(y, a, a + b) / want - 1) < 1e-5, (a, y)
