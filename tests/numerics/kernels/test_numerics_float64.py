"""Functions of float64: correctly rounded, by mpmath and MPFR; by every compiler the same; clean under sanitizers."""

from __future__ import annotations

import ctypes
import math
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import exhaustive
import numpy as np
import pytest
import torch
from mpmath import mp, mpf
from portable_values import at_level

from samerun.numerics.kernels import functions, library

PRECISION = 1600
"""Bits of mpmath's, so that an angle of 2^1024 keeps enough, and a power within 2^-1000 of 1."""
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "pow": lambda x, y: x**y,
    "atan2": mp.atan2,
    "hypot": lambda x, y: mp.sqrt(x * x + y * y),
}
CENTER = {"acosh": 1.0, "log": 1.0, "log2": 1.0, "log10": 1.0}
INSIDE: dict[str, tuple[float, float]] = {"asin": (-1, 1), "acos": (-1, 1), "atanh": (-1, 1)}


def round_to_float64(value: Fraction) -> float:
    """The nearest double; ties to even, subnormals as they are."""
    try:
        return value.numerator / value.denominator  # Python rounds the quotient of two integers once
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def compute_exact(name: str, *given: float) -> float:
    """Of finite numbers in the function's domain."""
    if name == "reciprocal":
        return round_to_float64(1 / Fraction(given[0]))
    mp.prec = PRECISION
    function = BINARY.get(name) or exhaustive.EXACT.get(name) or getattr(mp, name)
    sign, mantissa, exponent, _ = function(*map(mpf, given))._mpf_
    return round_to_float64((-1) ** sign * Fraction(int(mantissa)) * Fraction(2) ** exponent)


@pytest.fixture
def mpfr_float64() -> Iterator[None]:
    """MPFR rounds to float64; the test is skipped where gmpy2 is missing."""
    gmpy2 = pytest.importorskip("gmpy2")
    with gmpy2.context(gmpy2.ieee(64)):
        yield


MPFR = {"rsqrt": "rec_sqrt"}
"""What MPFR calls otherwise."""


def compute_with_mpfr(name: str, *given: float) -> float:
    """The same a thousand times faster: under `gmpy2.ieee(64)` MPFR rounds its results once, subnormal ones too."""
    import gmpy2  # in the environment of `make test-adapters` alone: mpmath and SymPy compute with it where it is

    if name == "reciprocal":
        return float(1 / gmpy2.mpfr(given[0]))
    if name == "sigmoid":
        with gmpy2.context(precision=300, emin=-(1 << 20), emax=1 << 20):
            precise = 1 / (1 + gmpy2.exp(-gmpy2.mpfr(given[0])))
        return float(gmpy2.mpfr(precise, 53))
    if name == "pow":
        return float(gmpy2.mpfr(given[0]) ** gmpy2.mpfr(given[1]))
    return float(getattr(gmpy2, MPFR.get(name, name))(*map(gmpy2.mpfr, given)))


def few_bits(generator: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
    """Numbers of few bits: of small ones sin, exp and their kin lie within 2^-100 of a double or a middle of two."""
    odd = 2.0 * generator.integers(0, 16, count) + 1
    return np.ldexp(odd * generator.choice([-1.0, 1.0], count), generator.integers(-70, 8, count))


def near_multiples_of_quarter_turns(generator: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
    mp.prec = PRECISION
    quarters = [int(2 ** generator.uniform(0, 900)) for _ in range(count)]
    return np.array([float(mp.pi / 2 * quarter) for quarter in quarters])


HARD_TEXT = """
0x1p-53 -0x1p-53 0x1p-54 -0x1p-54 0x1.9e9cbbfd6080bp-31 0x1.62a88613629b6p+678 0x1.e0000000001c2p-20
0x1.8000000000009p-23 0x1.dffffffffff1fp-22 0x1.fffffffffffffp-1 0x1.0000000000001p+0 0x1p-1022 0x1p-1074
0x1.8p-1073 0x1.fffffffffffffp+1023 0x1.921fb54442d18p+0 0x1.921fb54442d18p+1 0x1.62e42fefa39efp+9
-0x1.74910d52d3051p+9 -0x1.6232bdd7abcd2p+9 -0x1.0c8p+10 0x1.ffp+9 -0x1.0cap+10 0x1.6p+2 0x1.78p+2 0x1.8p-27
0x1.4p-26 0x1.bp+4 0x1.f4p+9 0x1p-1 -0x1p-1 0x1p+1 0x1p+2 0x1.56e1fc2f8f359p-997 0x1.ap-1012 -0x1.bp-1021
"""
HARD = [float.fromhex(each) for each in HARD_TEXT.split()]
"""Known as hard for one function or another; bounds of what is finite, normal or not 0; powers and subnormals."""


def hard_values(name: str, generator: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
    found = [HARD, few_bits(generator, count // 2), CENTER.get(name, 0.0) + few_bits(generator, count // 4)]
    if name in ("sin", "cos", "tan"):
        found.append(near_multiples_of_quarter_turns(generator, count // 8))
    if name in INSIDE:
        found.append(1 - np.abs(few_bits(generator, count // 8)))
    return np.concatenate(found)


def random_values(name: str, generator: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
    usual = generator.standard_normal(count // 2) * 10.0 ** generator.integers(-3, 3, count // 2)
    low, high = INSIDE.get(name, (-30.0, 30.0))
    return np.concatenate([usual, generator.uniform(low, high, count // 2)])


def is_defined(name: str, x: float) -> bool:
    """Whether the result is a finite number that rounding decides on."""
    if name in ("log", "log2", "log10", "rsqrt"):
        return x > 0
    if name == "reciprocal":
        return x != 0
    return {"log1p": x > -1, "acosh": x >= 1, "atanh": abs(x) < 1, "asin": abs(x) <= 1, "acos": abs(x) <= 1}.get(
        name, True
    )


def is_worth_while(name: str, x: float) -> bool:
    """mpmath would take for ever to find that e^(10^300) is infinite."""
    return name not in ("exp", "exp2", "expm1", "sinh", "cosh", "tanh", "sigmoid", "erf", "erfc") or abs(x) < 1500


def find_wrong(name: str, count: int, exact: Callable[..., float] = compute_exact) -> list[str]:
    generator = np.random.default_rng(functions.NAMES.index(name))
    given = np.concatenate([hard_values(name, generator, count), random_values(name, generator, count)])
    given = np.array([x for x in given.tolist() if is_defined(name, x) and is_worth_while(name, x)])
    assert len(given) > count // 4
    got = functions.apply_correctly_rounded(name, torch.from_numpy(given)).tolist()
    return [
        f"{name}({x.hex()}) = {result.hex()}, not {wanted.hex()}"
        for x, result, wanted in zip(given.tolist(), got, (exact(name, x) for x in given.tolist()), strict=True)
        if result != wanted
    ]


def pair_values(name: str, generator: np.random.Generator, count: int) -> Iterator[tuple[float, float]]:
    for x, y in zip(few_bits(generator, count), few_bits(generator, count), strict=True):
        yield float(x), float(y)
    for x, y in zip(generator.standard_normal(count), generator.uniform(-30, 30, count), strict=True):
        yield float(x) * 10.0 ** int(generator.integers(-5, 5)), float(y)
    for _ in range(count // 8):
        odd = 2.0 * generator.integers(1 << 25, 1 << 26) + 1  # its square is a middle of two doubles, or a double
        yield from ((odd, 2.0), (odd * odd, 0.5), (-odd, 2.0))
        cube = 2.0 * generator.integers(1 << 16, 1 << 17) + 1
        yield from ((cube, 3.0), (cube * cube, 1.5), (1 + 2.0**-52 * cube, float(y)), (cube, -1.0))
        k = float(generator.integers(1801439850948199, 2251799813685248))
        yield from ((3 * k, 4 * k), (-4 * k, 3 * k), (math.ldexp(k, -900), math.ldexp(k, -1000)))


def find_wrong_pairs(name: str, count: int, exact: Callable[..., float] = compute_exact) -> list[str]:
    generator = np.random.default_rng(functions.PAIR_NAMES.index(name))
    pairs = [
        (x, y)
        for x, y in pair_values(name, generator, count)
        if (name != "pow" or ((x > 0 or y == int(y)) and abs(y) * abs(math.log2(abs(x))) < 1e4))
    ]
    xs, ys = (torch.tensor(each, dtype=torch.float64) for each in zip(*pairs, strict=True))
    got = functions.apply_correctly_rounded_binary(name, xs, ys).tolist()
    return [
        f"{name}({x.hex()}, {y.hex()}) = {result.hex()}, not {wanted.hex()}"
        for (x, y), result, wanted in zip(pairs, got, (exact(name, *pair) for pair in pairs), strict=True)
        if result != wanted
    ]


@pytest.mark.parametrize("name", functions.NAMES)
def test_hard_and_random_values(name: str) -> None:
    assert find_wrong(name, 120) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", functions.NAMES)
def test_ten_thousand_values(name: str) -> None:
    assert find_wrong(name, 6000) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", functions.NAMES)
@pytest.mark.usefixtures("mpfr_float64")
def test_a_million_values_with_mpfr(name: str) -> None:
    assert find_wrong(name, 650_000, compute_with_mpfr) == []


@pytest.mark.parametrize("name", functions.PAIR_NAMES)
def test_hard_and_random_pairs(name: str) -> None:
    assert find_wrong_pairs(name, 100) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", functions.PAIR_NAMES)
def test_ten_thousand_pairs(name: str) -> None:
    assert find_wrong_pairs(name, 4000) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", functions.PAIR_NAMES)
@pytest.mark.usefixtures("mpfr_float64")
def test_a_million_pairs_with_mpfr(name: str) -> None:
    assert find_wrong_pairs(name, 350_000, compute_with_mpfr) == []


def test_the_reference_alone_has_the_same_bits() -> None:
    generator = np.random.default_rng(3)
    x = torch.from_numpy(np.concatenate([few_bits(generator, 6), generator.standard_normal(6)]))
    y = torch.from_numpy(np.concatenate([generator.standard_normal(6), few_bits(generator, 6)]))
    for name in (*functions.NAMES, *functions.PAIR_NAMES):
        given = (x,) if name in functions.NAMES else (x, y)
        apply = functions.apply_correctly_rounded if len(given) == 1 else functions.apply_correctly_rounded_binary
        want = apply(name, *given)
        with at_level("reference"):
            got = apply(name, *given)
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True, msg=name)


# --- compilers --------------------------------------------------------------------------------------------------
COMPILERS = ["gcc", "clang", *([os.environ["SAMERUN_TEST_CC"]] if "SAMERUN_TEST_CC" in os.environ else [])]
"""`SAMERUN_TEST_CC`: one more, with its options."""


def build_library(folder: Path, compiler: str, *flags: str) -> ctypes.CDLL:
    words = shlex.split(compiler)
    if shutil.which(words[0]) is None:
        pytest.skip(f"no {words[0]} here")
    sources = [exhaustive.NATIVE / name for name in ("float64_functions.c", "thread_pool.c")]
    target = folder / "float64.so"
    subprocess.run(
        [*words, *exhaustive.FLAGS, *flags, "-fPIC", "-shared", "-o", target, *sources, "-lm", "-pthread"], check=True
    )
    return ctypes.CDLL(str(target))


def compute_with(built: ctypes.CDLL, name: str, *given: np.ndarray[Any, Any]) -> tuple[bytes, bytes]:
    """The bits of what is certain, and what is not."""
    out, in_doubt = np.zeros_like(given[0]), np.zeros(len(given[0]), np.uint8)
    function = built.samerun_map_float64_function if len(given) == 1 else built.samerun_map_float64_binary_function
    number = (functions.NAMES if len(given) == 1 else functions.PAIR_NAMES).index(name)
    addresses = [ctypes.c_void_p(each.ctypes.data) for each in (*given, out, in_doubt)]
    function(number, *addresses, ctypes.c_int64(len(out)))
    out[np.isnan(out) | (in_doubt != 0)] = 0
    return out.tobytes(), in_doubt.tobytes()


def odd_and_random_values(count: int) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(11)
    any_bits = generator.integers(0, 2**64, count, np.uint64).view(np.float64)
    ends = np.array([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, *HARD])
    return np.concatenate([ends, any_bits, few_bits(generator, count), generator.uniform(-40, 40, count)])


@pytest.mark.skipif(not library.is_available(), reason="the C library was not built")
@pytest.mark.parametrize(
    "flags", [pytest.param("", marks=pytest.mark.exhaustive), pytest.param("-O0", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_every_compiler_gives_the_same_bits(compiler: str, flags: str, tmp_path: Path) -> None:
    built, ours = build_library(tmp_path, compiler, *flags.split()), library.load_library_or_none()
    x = odd_and_random_values(1500)
    for name in functions.NAMES:
        assert compute_with(built, name, x) == compute_with(ours, name, x), name
    for name in functions.PAIR_NAMES:
        given = x, np.ascontiguousarray(np.roll(x, 7))
        assert compute_with(built, name, *given) == compute_with(ours, name, *given), name


PROGRAM = """
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
void samerun_map_float64_function(int, const double *, double *, uint8_t *, int64_t);
void samerun_map_float64_binary_function(int, const double *, const double *, double *, uint8_t *, int64_t);
enum { N = 20000 };
static double x[N], y[N], out[N];
static uint8_t in_doubt[N];
int main(void) {
    uint64_t state = 1;
    for (int i = 0; i < N; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint64_t bits = state ^ state >> 29;
        if (i % 2) x[i] = (double)(int64_t)bits * 0x1p-58;
        else memcpy(x + i, &bits, 8);
    }
    const double ends[] = {0, -0.0, INFINITY, -INFINITY, NAN, 1, -1, 0x1p-1074, 0x1.fffffffffffffp1023, 0x1p-1022};
    for (int i = 0; i < 100; i++) x[i] = ends[i % 10], y[i] = ends[i / 10];
    for (int i = 100; i < N; i++) y[i] = x[N - 1 - i + 100];
    for (int f = 0; f < 25; f++) samerun_map_float64_function(f, x, out, in_doubt, N);
    for (int f = 0; f < 3; f++) samerun_map_float64_binary_function(f, x, y, out, in_doubt, N);
    puts("done");
}
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here")
def test_sanitizers_find_nothing_in_any_bits(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(PROGRAM)
    sources = [tmp_path / "main.c", *(exhaustive.NATIVE / f for f in ("float64_functions.c", "thread_pool.c"))]
    flags = ["-O1", "-g", "-fsanitize=address,undefined", "-fsanitize=float-cast-overflow", "-fno-sanitize-recover=all"]
    command = ["gcc", *exhaustive.FLAGS, *flags, "-o", tmp_path / "main", *sources, "-lm", "-pthread"]
    built = subprocess.run(command, capture_output=True, text=True)
    if "cannot find" in built.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert built.returncode == 0, built.stderr
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("done\n", "")
