"""The conformance vectors, at every level of this machine, in C alone, and where it can be tried on 64-bit ARM."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from portable import at_level

from samerun.numerics import conformance, library

NATIVE = Path(__file__).resolve().parents[1] / "native"
VECTORS = (NATIVE / "conformance" / "vectors.txt").read_text(encoding="utf-8")
FLAGS = ["-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
SANITIZERS = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]


@pytest.mark.parametrize("level", library.levels())
def test_every_level_gives_the_vectors(level: str) -> None:
    with at_level(level):
        assert conformance.differences(VECTORS) == []


def test_a_wrong_vector_is_found() -> None:
    row = next(iter(conformance.rows((33,))))
    wrong = VECTORS.replace(row.digest, "0" * 64)
    assert wrong != VECTORS
    assert conformance.differences(wrong) == [(row, "0" * 64)]


def compiled(folder: Path, *command: str) -> Path:
    program = folder / "conformance"
    sources = [path for path in NATIVE.glob("*.c") if path.name != "digest.c"]
    done = subprocess.run(
        [*command, *FLAGS, "-o", program, NATIVE / "tests" / "conformance.c", *sources, "-lm", "-pthread"],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode and "sanitize" in " ".join(command) and "cannot find" in done.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert done.returncode == 0, done.stderr
    return program


def assert_prints_the_vectors(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) == set(VECTORS.splitlines())


@pytest.mark.exhaustive
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_every_compiler_gives_the_vectors(tmp_path: Path, compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} here")
    assert_prints_the_vectors(compiled(tmp_path, compiler, "-O3"))


@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here")
@pytest.mark.parametrize("level", [name for name in library.levels() if name != "reference"])
def test_sanitizers_find_nothing(tmp_path: Path, level: str) -> None:
    assert_prints_the_vectors(compiled(tmp_path, "gcc", *SANITIZERS), level)


@pytest.mark.exhaustive
def test_64_bit_arm_gives_the_vectors(tmp_path: Path) -> None:
    if shutil.which("aarch64-linux-gnu-gcc") is None or shutil.which("qemu-aarch64") is None:
        pytest.skip("needs gcc-aarch64-linux-gnu and qemu-user")
    assert_prints_the_vectors("qemu-aarch64", compiled(tmp_path, "aarch64-linux-gnu-gcc", "-O3", "-static"))
