"""Special functions of float64 beside mpmath: the accuracy that docs/reference/portable-operators.md promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from mpmath import mp, mpf
from torch import Tensor

import samerun

special = torch.special
PRECISION = 200
ACCURACY = 1e-13
"""Of the larger of the result and 1."""
SHAPE = 3.7
FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any], Any]]] = {
    "lgamma": (torch.lgamma, lambda x: mp.loggamma(x)),
    "digamma": (torch.digamma, lambda x: mp.digamma(x)),
    "polygamma 1": (lambda x: torch.polygamma(1, x), lambda x: mp.polygamma(1, x)),
    "polygamma 3": (lambda x: torch.polygamma(3, x), lambda x: mp.polygamma(3, x)),
    "zeta": (lambda x: special.zeta(torch.full_like(x, 2.5), x), lambda x: mp.zeta(mpf(2.5), x)),
    "igamma": (lambda x: torch.igamma(torch.full_like(x, SHAPE), x),
               lambda x: mp.gammainc(mpf(SHAPE), 0, x, regularized=True)),
    "igammac": (lambda x: torch.igammac(torch.full_like(x, SHAPE), x),
                lambda x: mp.gammainc(mpf(SHAPE), x, regularized=True)),
    "erfinv": (lambda x: torch.erfinv(x / 256), lambda x: mp.erfinv(x / 256)),
    "erfcx": (special.erfcx, lambda x: mp.erfc(x) * mp.exp(x * x)),
    "log_ndtr": (lambda x: special.log_ndtr(-x), lambda x: mp.log(mp.erfc(x / mp.sqrt(2)) / 2)),
    "i0": (special.i0, lambda x: mp.besseli(0, x)),
    "i1": (special.i1, lambda x: mp.besseli(1, x)),
    "i0e": (special.i0e, lambda x: mp.besseli(0, x) * mp.exp(-x)),
    "i1e": (special.i1e, lambda x: mp.besseli(1, x) * mp.exp(-x)),
    "k0": (special.modified_bessel_k0, lambda x: mp.besselk(0, x)),
    "k1": (special.modified_bessel_k1, lambda x: mp.besselk(1, x)),
    "scaled k0": (special.scaled_modified_bessel_k0, lambda x: mp.besselk(0, x) * mp.exp(x)),
    "scaled k1": (special.scaled_modified_bessel_k1, lambda x: mp.besselk(1, x) * mp.exp(x)),
    "j0": (special.bessel_j0, lambda x: mp.besselj(0, x)),
    "j1": (special.bessel_j1, lambda x: mp.besselj(1, x)),
    "spherical j0": (special.spherical_bessel_j0, lambda x: mp.sin(x) / x),
}  # fmt: skip
STRAIGHT_AT_ZERO = ("erfinv", "i1", "i1e", "j1")


def positive_values(count: int) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(count)
    spread = 10.0 ** generator.uniform(-4, 2.3, count)
    return np.concatenate([spread, generator.uniform(0.01, 30, count), generator.uniform(0.9, 2.2, count)])


def find_inaccurate(name: str, x: np.ndarray[Any, Any], of_result_alone: bool = False) -> list[str]:
    function, exact_function = FUNCTIONS[name]
    mp.prec = PRECISION
    with samerun.portable():
        found = function(torch.from_numpy(x)).tolist()
    wrong = []
    for value, result in zip(x.tolist(), found, strict=True):
        exact = exact_function(mpf(value))
        if not abs(mpf(result) - exact) <= ACCURACY * max(abs(exact), 0 if of_result_alone else 1):
            wrong.append(f"{name}({value!r}) = {result!r}, not {float(exact)!r}")
    return wrong


def test_some_values() -> None:
    x = positive_values(8)
    for name in FUNCTIONS:
        assert find_inaccurate(name, x) == []
    tiny = np.array([1e-300, 1e-30, 3e-9, 1e-5, 0.3, 0.99])
    large = np.array([29.9, 30.1, 250.0, 1e4, 1e9])
    for name in ("i0e", "i1e", "scaled k0", "scaled k1", "j0", "j1"):
        assert find_inaccurate(name, large, of_result_alone=name[0] != "j") == []
    for name in STRAIGHT_AT_ZERO:
        assert find_inaccurate(name, tiny, of_result_alone=True) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FUNCTIONS)
def test_many_values(name: str) -> None:
    assert find_inaccurate(name, positive_values(1000)) == []
