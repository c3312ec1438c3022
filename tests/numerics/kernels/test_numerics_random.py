"""Random numbers: every level gives the bits of the reference, and they are distributed as they should be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from portable_values import NATIVE, assert_same_bits, at_level

from samerun.base.errors import SamerunError
from samerun.numerics.kernels import random
from samerun.numerics.reference.random import philox_words


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 255, 256, 257, 10_001])
@pytest.mark.parametrize(("seed", "position"), [(0, 0), (2**64 - 1, 2**64 - 1), (1234567, 2**40 + 3)])
def test_native_is_the_reference(n: int, seed: int, position: int) -> None:
    draws = {
        "uniform": lambda: random.uniform([n], seed, position),
        "normal": lambda: random.normal([n], seed, position),
        "bernoulli": lambda: random.bernoulli([n], 0.3, seed, position),
        "randint": lambda: random.randint(-5, 1000, [n], seed, position),
        "wide": lambda: random.randint(-(2**63), 2**63 - 3, [n], seed, position),
        "half": lambda: random.randint(0, 2**63 + 1 - 2**63 + 2**62 + 1, [n], seed, position),
        "all": lambda: random.randint(-(2**63), 2**63, [n], seed, position),
        "randperm": lambda: random.randperm(n, seed, position),
    }
    for name, draw in draws.items():
        with at_level("reference"):
            want = draw()
        for level in NATIVE:
            with at_level(level):
                assert_same_bits(draw(), want, (name, level, n))


def test_the_specification() -> None:
    words = philox_words(7, 3, 1000)
    got = random.uniform([10, 100], 7, 3)
    assert np.array_equal(got.numpy().reshape(-1), (words >> 8) / 2**24)
    assert got.min() >= 0 and got.max() < 1
    assert torch.equal(random.bernoulli([1000], 0.25, 7, 3), got.reshape(-1) < 0.25)
    assert not torch.equal(random.uniform([1000], 7, 4), got.reshape(-1))
    assert torch.equal(random.uniform([500], 7, 3), got.reshape(-1)[:500]), "a value depends on its place alone"


def test_distributions() -> None:
    n = 200_000
    x = random.normal([n], 1, 0)
    assert abs(x.mean()) < 0.01 and abs(x.std() - 1) < 0.01 and 4 < x.abs().max() < 6
    assert abs((x[::2] * x[1::2]).mean()) < 0.01
    counts = torch.bincount(random.randint(0, 7, [n], 1, 0), minlength=7)
    assert (counts - n / 7).abs().max() < 5 * (n / 7) ** 0.5
    assert random.randint(0, 2**62 + 2**61, [n], 1, 0).double().mean() / (2**62 + 2**61) == pytest.approx(0.5, abs=0.01)
    order = random.randperm(n, 1, 0)
    assert torch.equal(order.sort().values, torch.arange(n)) and (order[:-1] < order[1:]).double().mean() < 0.51


def test_bad_input_is_refused() -> None:
    with pytest.raises(SamerunError, match=r"uniform\(seed=-1\): it is a whole number from 0 to 18446744073709551615"):
        random.uniform([3], -1, 0)
    with pytest.raises(SamerunError, match=r"randint\(5, 5\)"):
        random.randint(5, 5, [3], 0, 0)
