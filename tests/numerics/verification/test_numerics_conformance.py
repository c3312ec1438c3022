"""The conformance vectors, at every level of this machine, in C alone, and where it can be tried on 64-bit ARM."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from portable_values import at_level
from repository_paths import ROOT

from samerun.numerics.kernels import library
from samerun.numerics.verification import conformance

SANITIZERS = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined"
VECTORS = conformance.read_expected_vectors_text()


@pytest.mark.parametrize(
    "level",
    [
        pytest.param(each, marks=pytest.mark.exhaustive if each == "reference" else ())
        for each in library.supported_levels()
    ],
)
def test_every_level_gives_the_vectors(level: str) -> None:
    with at_level(level):
        assert conformance.find_differing_rows(VECTORS) == []


def test_a_wrong_vector_is_found() -> None:
    row = next(iter(conformance.compute_conformance_rows((33,))))
    wrong = VECTORS.replace(row.digest, "0" * 64)
    assert wrong != VECTORS
    assert conformance.find_differing_rows(wrong, (33,)) == [(row, "0" * 64)]


# --- samerun doctor --numerics ---------------------------------------------------------------------------------
def doctor(*words: str, cwd: Path, source: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """`source`: a folder with another copy of samerun."""
    environment = {**os.environ, **variables}
    if source is not None:
        environment["PYTHONPATH"] = str(source)
    return subprocess.run(
        [sys.executable, "-m", "samerun", "doctor", *words],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.slow
def test_the_doctor_says_that_numbers_are_right(tmp_path: Path) -> None:
    done = doctor("--numerics", "--json", "numerics.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "numerics.json").read_text())
    assert (record["schema"], record["verdict"]) == (1, "clean")
    said = record["numerics"]
    assert said["rows"] == len(VECTORS.splitlines()) and said["different"] == []
    assert said["level"] == library.current_level() and said["library"] is library.is_available()
    assert f"{said['rows']} of {said['rows']}" in done.stdout and said["level"] in done.stdout


def copy_of_samerun(folder: Path) -> Path:
    shutil.copytree(ROOT / "src" / "samerun", folder / "samerun", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.slow
def test_the_doctor_finds_wrong_bits(tmp_path: Path) -> None:
    source = copy_of_samerun(tmp_path / "other")
    vectors = source / "samerun" / "numerics" / "verification" / "vectors.txt"
    lines = VECTORS.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("product float32 257 "))
    lines[at] = "product float32 257 " + "0" * 64
    vectors.write_text("\n".join(lines) + "\n")
    done = doctor("--numerics", "--json", "-", cwd=tmp_path, source=source)
    record = json.loads(done.stdout)
    assert (done.returncode, record["verdict"]) == (1, "findings")
    (wrong,) = record["numerics"]["different"]
    assert (wrong["operator"], wrong["type"], wrong["n"], wrong["wanted"]) == ("product", "float32", 257, "0" * 64)
    assert "product float32 257" in doctor("--numerics", cwd=tmp_path, source=source).stdout


@pytest.mark.exhaustive
def test_the_doctor_says_where_no_library_was_built(tmp_path: Path) -> None:
    source = copy_of_samerun(tmp_path / "other")
    for built in (source / "samerun").rglob("_portable*"):
        built.unlink()
    done = doctor("--numerics", cwd=tmp_path, source=source)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "the reference (no C library)" in said and "install samerun where there is gcc or clang" in said


@pytest.mark.slow
def test_trouble(tmp_path: Path) -> None:
    for words, variables, said in (
        (["--numerics", "train.py"], {}, "--numerics looks at this machine"),
        (["--numerics"], {"SAMERUN_NUMERICS_LEVEL": "sse9"}, "this machine runs the levels"),
    ):
        done = doctor(*words, cwd=tmp_path, **variables)
        assert done.returncode == 2 and said in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


# --- in C alone ------------------------------------------------------------------------------------------------
def assert_prints_the_vectors(*options: str) -> None:
    command = [sys.executable, str(ROOT / "tools" / "conformance.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if "sanitize" in " ".join(options) and "cannot find" in done.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert done.returncode == 0, done.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_every_compiler_gives_the_vectors(compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} here")
    assert_prints_the_vectors("--compiler", compiler)


@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here")
@pytest.mark.parametrize("level", [name for name in library.supported_levels() if name != "reference"])
def test_sanitizers_find_nothing(level: str) -> None:
    assert_prints_the_vectors("--compiler", "gcc", f"--flags={SANITIZERS}", "--level", level)


@pytest.mark.exhaustive
def test_64_bit_arm_gives_the_vectors() -> None:
    if shutil.which("aarch64-linux-gnu-gcc") is None or shutil.which("qemu-aarch64") is None:
        pytest.skip("needs gcc-aarch64-linux-gnu and qemu-user")
    assert_prints_the_vectors(
        "--compiler", "aarch64-linux-gnu-gcc", "--flags=-static", "--emulator", "qemu-aarch64"
    )  # fmt: skip
