"""Class R, proved: all 2^32 inputs of every function, against the C library's doubles and mpmath.

What is tried in single precision first has the bits of double precision for all inputs, activations too.

Of pow, atan2 and hypot 10^9 random pairs, against its long doubles.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import exhaustive
import pytest
from mpmath import mp, mpf

from samerun.numerics.kernels import library

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exhaustive.build_program(tmp_path_factory.mktemp("exhaustive"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", exhaustive.list_functions())
def test_all_inputs(program: Path, name: str) -> None:
    assert [each for each in exhaustive.run_program(program, name) if each.result != each.wanted] == []


@pytest.mark.exhaustive
def test_a_stretch_of_inputs(program: Path) -> None:
    for name in ("exp", "log", "tanh", "sigmoid", "sin"):
        results = exhaustive.run_program(program, name, first=0x3F000000, count=1 << 21)
        assert results, "some inputs must need judging, or nothing is judged"
        assert [each for each in results if each.result != each.wanted] == [], name


PAIRS = {
    "pow": lambda x, y: mpf(x) ** mpf(y),
    "atan2": lambda y, x: mp.atan2(mpf(y), mpf(x)),
    "hypot": lambda x, y: mp.sqrt(mpf(x) ** 2 + mpf(y) ** 2),
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if platform.machine() != "x86_64":
        pytest.skip("needs long doubles of 64 bits")
    program = tmp_path_factory.mktemp("pairs") / "pairs"
    source = exhaustive.NATIVE / "tests" / "pairs.c"
    subprocess.run(["cc", *exhaustive.FLAGS, "-o", program, source, "-lm"], check=True)
    return program


def wrong_pairs(program: Path, name: str, count: int) -> list[str]:
    done = subprocess.run([program, name, str(count), "1"], check=True, capture_output=True, text=True)
    *lines, last = done.stdout.splitlines()
    assert last == f"done {count}"
    found = []
    mp.prec = exhaustive.BITS
    for line in lines:
        word, x, y, result, *_ = line.split()
        exact = PAIRS[name](*(exhaustive.bits_to_float(int(each, 16)) for each in (x, y)))
        if word == "wrong" or exhaustive.round_exact(exact)[0] != int(result, 16):
            found.append(line)
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PAIRS)
def test_a_billion_pairs(pairs: Path, name: str) -> None:
    assert wrong_pairs(pairs, name, 10**9) == []


@pytest.mark.parametrize("name", PAIRS)
def test_random_pairs(pairs: Path, name: str) -> None:
    assert wrong_pairs(pairs, name, 10**6) == []


SINGLES = ["exp", "sigmoid", "log", "erf", "gelu", "silu", "gelu_backward", "silu_backward"]


def singles_program(folder: Path, *flags: str) -> Path:
    if platform.machine() != "x86_64" or "avx2" not in library.supported_levels():
        pytest.skip("needs AVX2")
    names = ("tests/float32_fast_path.c", "kernels_avx2.c", "kernels_avx512.c", "simd_level.c")
    sources = [exhaustive.NATIVE / name for name in names]
    subprocess.run(["cc", *exhaustive.FLAGS, *flags, "-o", folder / "singles", *sources, "-lm"], check=True)
    return folder / "singles"


@pytest.fixture(scope="module")
def singles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return singles_program(tmp_path_factory.mktemp("singles"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SINGLES)
def test_single_precision_first_for_all_inputs(singles: Path, name: str) -> None:
    done = subprocess.run([singles, name], capture_output=True, text=True)
    assert done.stdout == f"done {1 << 32} wrong 0\n"


@pytest.mark.exhaustive
def test_single_precision_first_for_a_stretch_of_inputs(singles: Path) -> None:
    for name in SINGLES:
        done = subprocess.run([singles, name, str(0x3F000000), str(1 << 20)], capture_output=True, text=True)
        assert done.stdout == f"done {1 << 20} wrong 0\n", name


@pytest.mark.exhaustive
def test_a_bound_that_is_too_small_is_seen(tmp_path: Path) -> None:
    program = singles_program(tmp_path, "-DSLACK=0")
    for name in SINGLES:
        done = subprocess.run([program, name, str(0x3F000000), str(1 << 23)], capture_output=True, text=True)
        assert done.returncode == 1 and "wrong 3f" in done.stdout, name
