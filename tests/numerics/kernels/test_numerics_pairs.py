"""pow, atan2, hypot: correctly rounded at every level."""

from __future__ import annotations

import itertools

import exhaustive
import numpy as np
import pytest
import torch
from mpmath import mp, mpf
from portable_values import NATIVE, SPECIAL, assert_same_bits, at_level, bits

from samerun.base.errors import SamerunError
from samerun.numerics.kernels import functions

EXACT = {
    "pow": lambda x, y: mpf(x) ** mpf(y),
    "atan2": lambda y, x: mp.atan2(mpf(y), mpf(x)),
    "hypot": lambda x, y: mp.sqrt(mpf(x) ** 2 + mpf(y) ** 2),
}


def everywhere(name: str, x: np.ndarray, y: np.ndarray) -> torch.Tensor:
    given = torch.from_numpy(x), torch.from_numpy(y)
    with at_level("reference"):
        want = functions.apply_correctly_rounded_binary(name, *given)
    for level in NATIVE:
        with at_level(level):
            assert_same_bits(functions.apply_correctly_rounded_binary(name, *given), want, (name, level))
    return want


def usual(name: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    x, y = ((generator.standard_normal(n) * 10.0 ** generator.integers(-3, 3, n)).astype(np.float32) for _ in range(2))
    return (np.abs(x), y) if name == "pow" else (x, y)


def against_mpmath(name: str, x: np.ndarray, y: np.ndarray, got: torch.Tensor) -> None:
    mp.prec = exhaustive.BITS
    for a, b, result in zip(x.tolist(), y.tolist(), bits(got).reshape(-1).tolist(), strict=True):
        exact = EXACT[name](a, b)
        assert result & 0xFFFFFFFF == (exhaustive.round_exact(exact)[0] if exact else 0), (name, a.hex(), b.hex())


@pytest.mark.parametrize("name", functions.PAIR_NAMES)
def test_random_pairs(name: str) -> None:
    everywhere(name, *usual(name, 50_000, 1))
    x, y = usual(name, 3_000, 2)
    against_mpmath(name, x, y, functions.apply_correctly_rounded_binary(name, torch.from_numpy(x), torch.from_numpy(y)))


@pytest.mark.parametrize("name", functions.PAIR_NAMES)
def test_any_bits(name: str) -> None:
    generator = np.random.default_rng(3)
    everywhere(name, *(generator.integers(0, 2**32, 50_000, np.uint32).view(np.float32) for _ in range(2)))


@pytest.mark.parametrize("name", functions.PAIR_NAMES)
def test_special_values(name: str) -> None:
    odd = [*SPECIAL, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 16777216.0, 16777217.0 * 2, -16777215.0]
    x, y = (np.array(each, np.float32) for each in zip(*itertools.product(odd, odd), strict=True))
    got = everywhere(name, x, y)
    theirs = getattr(torch, name)(torch.from_numpy(x).double(), torch.from_numpy(y).double())
    torch.testing.assert_close(got, theirs.float(), rtol=1e-6, atol=0, equal_nan=True)
    signs = torch.copysign(torch.ones(()), got)[~got.isnan()]
    assert torch.equal(signs, torch.copysign(torch.ones(()), theirs.float())[~got.isnan()])


@pytest.mark.slow
def test_powers_that_are_floats_or_lie_between_two() -> None:
    """Exact results and ties, where only the exact value tells."""
    whole = np.arange(1, 5000, dtype=np.float32)
    for exponent in (2, 3, 4, 5, -1, -2, 0.5, 1.5, 0.25, 7):
        x = whole if exponent > 0 else np.exp2(whole % 30)
        y = np.full_like(x, exponent)
        got = everywhere("pow", x.astype(np.float32), y)
        against_mpmath("pow", x, y, got)
    x = np.arange(4097, 8191, 2, dtype=np.float32)  # squares of 25 or 26 bits
    against_mpmath("pow", x, np.full_like(x, 2), functions.pow(torch.from_numpy(x), torch.tensor(2.0)))


def test_lengths_that_are_floats_or_lie_between_two() -> None:
    m, n = np.meshgrid(np.arange(2, 3000, 37), np.arange(1, 3000, 41))
    m, n = m[m > n].astype(np.float64), n[m > n].astype(np.float64)
    x, y = (m * m - n * n).astype(np.float32), (2 * m * n).astype(np.float32)
    against_mpmath("hypot", x, y, everywhere("hypot", x, y))


@pytest.mark.parametrize("name", ["atan2", "hypot"])
def test_tiny_results(name: str) -> None:
    generator = np.random.default_rng(4)
    x = (generator.integers(1, 2**24, 4000) * 2.0**-149).astype(np.float32)
    y = (generator.integers(1, 64, 4000) * 2.0 ** generator.integers(-149, -120, 4000)).astype(np.float32)
    if name == "atan2":
        y = (generator.integers(1, 2**12, 4000) * 2.0 ** generator.integers(0, 20, 4000)).astype(np.float32)
    against_mpmath(name, x, y, everywhere(name, x, y))


def test_broadcasting_and_types() -> None:
    assert functions.pow(torch.ones(3, 1), torch.ones(2)).shape == (3, 2)
    x = torch.rand(10).to(torch.bfloat16)
    assert_same_bits(functions.pow(x, x), functions.pow(x.float(), x.float()).to(torch.bfloat16))
    with pytest.raises(SamerunError, match=r"hypot: got torch.float32 and torch.float64"):
        functions.hypot(torch.ones(1), torch.ones(1, dtype=torch.float64))
