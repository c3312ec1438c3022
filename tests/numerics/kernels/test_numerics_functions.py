"""Class R: every level and the reference round correctly. All 2^32 inputs: test_numerics_exhaustive.py."""

from __future__ import annotations

import json
import subprocess
import sys

import exhaustive
import numpy as np
import pytest
import torch
from portable_values import NATIVE, assert_same_bits, at_level, bits
from repository_paths import ROOT

from samerun.base.errors import SamerunError
from samerun.numerics.kernels import functions, library
from samerun.numerics.reference import elementwise as reference

HARD = json.loads((ROOT / "tests" / "data" / "hard_cases.json").read_text(encoding="utf-8"))
"""The inputs closest to the middle of two floats, of all 2^32, with their results by mpmath (tools/exhaustive.py)."""
INF = float("inf")
NAN = float("nan")
SPECIAL = {
    "exp": [(INF, INF), (-INF, 0), (-0.0, 1), (89, INF), (-104, 0), (-103.9, 1e-45)],
    "exp2": [(INF, INF), (-INF, 0), (-150, 0), (-149, 1e-45), (127, 2.0**127), (128, INF), (10, 1024)],
    "expm1": [(INF, INF), (-INF, -1), (-0.0, -0.0), (1e-45, 1e-45), (-50, -1)],
    "sinh": [(INF, INF), (-INF, -INF), (-0.0, -0.0), (1e-45, 1e-45)],
    "cosh": [(INF, INF), (-INF, INF), (0, 1)],
    "tanh": [(INF, 1), (-INF, -1), (-0.0, -0.0), (1e-45, 1e-45), (20, 1)],
    "sigmoid": [(INF, 1), (-INF, 0), (0, 0.5), (-0.0, 0.5), (-104, 0), (-103.9, 1e-45), (1e-45, 0.5)],
    "log": [(INF, INF), (-INF, NAN), (0, -INF), (-0.0, -INF), (-1, NAN), (1, 0)],
    "log2": [(INF, INF), (0, -INF), (-1, NAN), (1, 0), (1e-45, -149), (2.0**127, 127)],
    "log10": [(INF, INF), (0, -INF), (-1, NAN), (1, 0), (1000, 3), (1e10, 10)],
    "log1p": [(INF, INF), (-1, -INF), (-2, NAN), (-0.0, -0.0), (1e-45, 1e-45), (-INF, NAN)],
    "asinh": [(INF, INF), (-INF, -INF), (-0.0, -0.0)],
    "acosh": [(INF, INF), (1, 0), (0.5, NAN), (-2, NAN), (-INF, NAN)],
    "atanh": [(1, INF), (-1, -INF), (2, NAN), (-0.0, -0.0), (INF, NAN)],
    "sin": [(INF, NAN), (-0.0, -0.0), (1e-45, 1e-45)],
    "cos": [(-INF, NAN), (0, 1)],
    "tan": [(INF, NAN), (-0.0, -0.0)],
    "asin": [(2, NAN), (-0.0, -0.0), (1e-45, 1e-45)],
    "acos": [(1, 0), (-2, NAN)],
    "atan": [(-0.0, -0.0), (1e-45, 1e-45)],
    "erf": [(INF, 1), (-INF, -1), (-0.0, -0.0), (5, 1)],
    "erfc": [(INF, 0), (-INF, 2), (0, 1), (11, 0)],
    "rsqrt": [(INF, 0), (0, INF), (-0.0, -INF), (-1, NAN), (4, 0.5)],
    "reciprocal": [(INF, 0), (-INF, -0.0), (0, INF), (-0.0, -INF), (2, 0.5)],
    "cbrt": [(INF, INF), (-INF, -INF), (-0.0, -0.0), (-27, -3), (1e-45, 2.0**-50 * 1.2599210739135742)],
}


def test_the_numbers_of_functions_are_those_of_the_library() -> None:
    assert tuple(exhaustive.list_functions()) == functions.NAMES
    assert set(reference.DOUBLE) == set(functions.NAMES) == set(SPECIAL) == set(HARD)


def everywhere(name: str, x: torch.Tensor) -> torch.Tensor:
    """The function at every level, the reference included; all must agree."""
    with at_level("reference"):
        want = functions.apply_correctly_rounded(name, x)
    for level in NATIVE:
        with at_level(level):
            assert_same_bits(functions.apply_correctly_rounded(name, x), want, (name, level))
    return want


def floats(numbers: list[int]) -> torch.Tensor:
    return torch.from_numpy(np.array(numbers, np.uint32).view(np.float32))


@pytest.mark.parametrize("name", functions.NAMES)
def test_special_values(name: str) -> None:
    given, wanted = zip(*[*SPECIAL[name], (NAN, NAN)], strict=True)
    got = everywhere(name, torch.tensor(given, dtype=torch.float32))
    assert_same_bits(got, torch.tensor(wanted, dtype=torch.float32), name)


@pytest.mark.parametrize("name", functions.NAMES)
def test_hard_cases(name: str) -> None:
    got = everywhere(name, floats([int(given, 16) for given, _ in HARD[name]]))
    assert_same_bits(got, floats([int(wanted, 16) for _, wanted in HARD[name]]), name)


@pytest.mark.parametrize("name", functions.NAMES)
def test_random_bits(name: str) -> None:
    """Any float32, and those where functions are interesting; a length that leaves a tail."""
    generator = np.random.default_rng(functions.NAMES.index(name))
    anything = generator.integers(0, 2**32, 20_011, np.uint32).view(np.float32)
    usual = generator.standard_normal(20_011).astype(np.float32) * np.float32(3)
    near_one = (1 + generator.standard_normal(5_000) / 100).astype(np.float32)
    x = torch.from_numpy(np.concatenate([anything, usual, near_one]))
    if name in ("erf", "erfc"):
        x = x[:30_001]  # the reference takes these one by one
    everywhere(name, x)


@pytest.mark.parametrize("name", functions.NAMES)
def test_random_bits_against_mpmath(name: str) -> None:
    generator = np.random.default_rng(1000 + functions.NAMES.index(name))
    x = (generator.standard_normal(300) * 10.0 ** generator.integers(-3, 2, 300)).astype(np.float32)
    got = functions.apply_correctly_rounded(name, torch.from_numpy(x))
    for value, result in zip(x.tolist(), bits(got).reshape(-1).tolist(), strict=True):
        exact = exhaustive.compute_exact(name, value)
        if getattr(exact, "imag", 0) == 0 and exact != 0 and np.isfinite(float(exact)):
            assert result & 0xFFFFFFFF == exhaustive.round_exact(exact)[0], (name, value.hex())


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_of_any_size(name: str) -> None:
    generator = np.random.default_rng(7)
    x = np.ldexp(1 + generator.random(2000), generator.integers(10, 128, 2000)).astype(np.float32)
    x = np.concatenate([x, -x[:500], generator.standard_normal(500).astype(np.float32)])
    got = everywhere(name, torch.from_numpy(generator.permutation(x)))
    assert not got.isnan().any()


def test_any_shape_and_stride_and_in_storage_types() -> None:
    x = torch.randn(7, 5, 3)
    for given in (x, x.permute(2, 0, 1), x[::2, :, 1], torch.tensor(0.5), torch.empty(0, 3), x.requires_grad_()):
        got = functions.exp(given)
        assert_same_bits(got, functions.exp(given.detach().clone().contiguous().reshape(-1)).reshape(given.shape))
    for dtype in (torch.bfloat16, torch.float16):
        half = torch.randn(100).to(dtype)
        assert_same_bits(functions.tanh(half), functions.tanh(half.float()).to(dtype))
    with pytest.raises(SamerunError, match=r"exp: torch.int64"):
        functions.exp(torch.ones(3, dtype=torch.int64))


@pytest.mark.skipif(not library.is_available(), reason="the C library was not built")
@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 511, 512, 513, 100_003])
def test_a_value_does_not_depend_on_its_place(n: int) -> None:
    x = torch.randn(n)
    whole = functions.tanh(x)
    for at in {0, n // 2, n - 1}:
        assert_same_bits(whole[at], functions.tanh(x[at]))


@pytest.mark.parametrize("name", ["exp", "sigmoid", "log", "erf"])
def test_a_value_does_not_depend_on_its_neighbours(name: str) -> None:
    """In order of size, stretches of small values lie together and may go another way than mixed ones."""
    x = torch.randn(30_003, generator=torch.Generator().manual_seed(1)) * 4
    order = x.argsort()
    for level in NATIVE:
        with at_level(level):
            assert_same_bits(
                functions.apply_correctly_rounded(name, x)[order],
                functions.apply_correctly_rounded(name, x[order]),
                (name, level),
            )


@pytest.mark.parametrize(
    "tool",
    ["coefficients", "single_coefficients", pytest.param("piece_coefficients", marks=pytest.mark.exhaustive)],
)
def test_coefficients_are_those_that_the_tool_writes(tool: str) -> None:
    subprocess.run([sys.executable, ROOT / "tools" / f"{tool}.py", "--check"], check=True)
