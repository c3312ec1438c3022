"""The CUDA sources as NVRTC compiles them, with the flags of a run: no GPU is needed for that.

Skipped without NVRTC (pip install nvidia-cuda-nvrtc).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from samerun.base.errors import SamerunError
from samerun.numerics.cuda import compiler, libraries

ARCHITECTURES = [
    "compute_90",
    *(pytest.param(other, marks=pytest.mark.exhaustive) for other in ("compute_80", "compute_100")),
]


@pytest.fixture(autouse=True)
def _with_nvrtc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiler, "_cuda_cache_path", lambda: tmp_path)
    try:
        libraries.load_nvrtc()
    except SamerunError as error:
        pytest.skip(str(error))


def of_floats(ptx: str) -> set[str]:
    """The arithmetic instructions on floating-point numbers."""
    lines = (line.strip().removeprefix("@").split()[-1 if line.strip().startswith("@") else 0] for line in
             ptx.splitlines() if line.strip())  # fmt: skip
    return {
        word for word in lines
        if re.fullmatch(r"(add|sub|mul|mad|fma|div|rcp|sqrt|rsqrt|ex2|lg2|sin|cos|tanh)\..*f(16|32|64).*", word)
    }  # fmt: skip


WRITTEN_FMA = {"elementwise": {"f64"}, "softmax": {"f64"}, "random": {"f64"}, "products": {"f32", "f64"}}
"""Where the sources write an fma, and of which type; nowhere else may there be one."""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", compiler.NAMES)
def test_every_instruction_rounds_once_to_nearest(name: str, architecture: str) -> None:
    source = compiler.read_source_with_includes(name)
    ptx = compiler.compile_cuda_source_cached(name, source, architecture).decode()
    found = of_floats(ptx)
    assert found
    # Unless a kernel says how many threads a block has, it may take more registers than so many can have.
    assert ptx.count(".maxntid") == ptx.count(".entry ") > 0
    for instruction in found:
        operation, *how = instruction.split(".")
        assert "rn" in how and not {"approx", "ftz", "full", "sat"} & set(how), instruction
        assert operation not in ("mad", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"), instruction
        assert operation != "fma" or how[-1] in WRITTEN_FMA.get(name, set()), instruction


PROBE = """
extern "C" __global__ void probe(float *x, double *y) {
    x[0] = x[1] * x[2] + x[3];
    x[4] = x[5] / x[6];
    y[0] = y[1] * y[2] - y[3];
}
"""


def test_the_flags_are_what_keeps_them_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same test finds what NVRTC does on its own: it contracts, and with fast division approximates."""
    assert not [
        word
        for word in of_floats(compiler.compile_cuda_source_cached("p", PROBE, "compute_80").decode())
        if "fma" in word
    ]
    monkeypatch.setattr(compiler, "FLAGS", ("--std=c++17", "--use_fast_math"))
    loose = of_floats(compiler.compile_cuda_source_cached("p", PROBE, "compute_80").decode())
    assert [word for word in loose if word.startswith("fma")] and [word for word in loose if "approx" in word]


def test_what_was_compiled_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiler.compile_cuda_source_cached("p", PROBE, "compute_80")
    (kept,) = tmp_path.iterdir()

    def never(*given: Any) -> bytes:
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiler, "_compile_with_nvrtc", never)
    assert compiler.compile_cuda_source_cached("p", PROBE, "compute_80") == first == kept.read_bytes()
    with pytest.raises(AssertionError, match="again"):
        compiler.compile_cuda_source_cached("p", PROBE + "\n", "compute_80")
    with pytest.raises(AssertionError, match="again"):
        compiler.compile_cuda_source_cached("p", PROBE, "compute_90")


def test_code_for_a_device_and_what_is_wrong_in_a_source() -> None:
    for architecture in ("sm_80", "sm_90", "sm_100"):
        assert compiler.compile_cuda_source_cached("p", PROBE, architecture).startswith(b"\x7fELF")
    with pytest.raises(SamerunError, match=r"NVRTC refuses p.cu: p.cu\(1\): error"):
        compiler.compile_cuda_source_cached("p", "nothing", "sm_90")


def test_without_nvrtc_there_is_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "load_nvrtc", libraries.load_nvrtc.__wrapped__)
    monkeypatch.setenv(libraries.NVRTC_VARIABLE, "/nowhere/libnvrtc.so")
    with pytest.raises(SamerunError) as caught:
        compiler.compile_cuda_source_cached("p", PROBE, "sm_90")
    assert "pip install" in str(caught.value) and "/nowhere/libnvrtc.so" in str(caught.value)
