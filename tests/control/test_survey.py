"""`survey()`: every switch as it is, who set it, and whether that will do."""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import samerun
from samerun.base import launch
from samerun.control.determinism import survey as survey_module
from samerun.control.determinism.survey import SwitchFinding, survey
from samerun.control.switches import variables
from samerun.control.switches.table import SWITCHES


@pytest.fixture(autouse=True)
def _at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUBLAS_WORKSPACE_CONFIG", "PYTORCH_TUNABLEOP_ENABLED", "OMP_NUM_THREADS", "MKL_CBWR"):
        monkeypatch.delenv(name, raising=False)
    started_with(monkeypatch, PYTHONHASHSEED="0")


def started_with(monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
    """As if the process had been started with these variables."""
    for module in (variables, survey_module):
        monkeypatch.setattr(module, "read_environ_at_process_start", lambda: environment)
    monkeypatch.setattr(variables, "python_may_hash_with_seed", lambda seed: True)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def of(name: str, **arguments: Any) -> SwitchFinding:
    return next(one for one in survey(**arguments) if one.name == name)


def test_every_switch_is_told_in_plain_values() -> None:
    found = survey()
    assert [one.name for one in found] == [switch.name for switch in SWITCHES]
    assert json.loads(json.dumps([dataclasses.asdict(one) for one in found]))
    for one in found:
        assert one.verdict in ("ok", "differs", "too late", "not applicable") and one.why.endswith(".")
        assert (one.way_out is not None) == (one.verdict in ("differs", "too late")), one.name


def test_a_flag_from_default_to_samerun_and_back() -> None:
    one = of("cudnn_deterministic")
    assert (one.verdict, one.set_by, one.wanted, one.in_force) == ("differs", "default", True, False)
    with samerun.deterministic():
        one = of("cudnn_deterministic")
        assert (one.verdict, one.set_by, one.wanted, one.in_force) == ("ok", "samerun", True, True)
        torch.backends.cudnn.deterministic = False
        assert of("cudnn_deterministic").verdict == "differs"
    assert of("cudnn_deterministic").set_by == "default"


def test_a_flag_that_the_program_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    one = of("cudnn_benchmark")
    assert (one.verdict, one.set_by, one.in_force) == ("differs", "program", True) and one.way_out
    one = of("cudnn_benchmark", cudnn_benchmark="keep")
    assert (one.verdict, one.wanted, one.way_out) == ("ok", None, None)


def test_everything_is_ok_inside() -> None:
    with samerun.deterministic():
        wrong = [one.name for one in survey() if one.verdict not in ("ok", "not applicable")]
    assert wrong == []


def test_a_hash_seed_that_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    one = of("hash_seed")
    assert (one.verdict, one.set_by, one.in_force, one.when) == ("ok", "environment", "0", "before interpreter")


def test_a_hash_seed_that_the_program_set(monkeypatch: pytest.MonkeyPatch) -> None:
    started_with(monkeypatch)
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    one = of("hash_seed")
    assert (one.verdict, one.set_by, one.in_force) == ("too late", "program", None)
    assert one.way_out is not None and "export PYTHONHASHSEED=0" in one.way_out and "samerun run" in one.way_out
    assert "set later, changes nothing" in one.why


@pytest.mark.parametrize(
    ("value", "started", "verdict", "set_by"),
    [
        (None, False, "differs", "default"),
        (None, True, "too late", "default"),
        (":16:8", False, "ok", "program"),
        (":16:8", True, "ok", "program"),
        (":0:0", False, "differs", "program"),
        (":0:0", True, "too late", "program"),
    ],
)
def test_cublas(value: str | None, started: bool, verdict: str, set_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: started)
    if value is not None:
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", value)
    one = of("cublas_workspace")
    assert (one.verdict, one.set_by, one.in_force) == (verdict, set_by, value)
    if value is not None and set_by == "program":
        started_with(monkeypatch, PYTHONHASHSEED="0", CUBLAS_WORKSPACE_CONFIG=value)
        assert of("cublas_workspace").set_by == "environment"


def test_recorded_switches_are_never_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    one = of("nccl")
    assert (one.verdict, one.wanted, one.in_force, one.set_by) == ("ok", None, {"NCCL_ALGO": "Ring"}, "program")
    assert (of("mkl_cbwr").verdict, of("mkl_cbwr").in_force) == ("ok", "AVX2")


def test_threads() -> None:
    now = torch.get_num_threads()
    assert (of("threads").verdict, of("threads").wanted, of("threads").in_force) == ("ok", None, now)
    one = of("threads", threads=now + 1)
    assert (one.verdict, one.wanted, one.in_force) == ("differs", now + 1, now)


def test_looking_changes_nothing() -> None:
    environ, modules = dict(os.environ), set(sys.modules)
    first = survey()
    assert survey() == first and dict(os.environ) == environ and set(sys.modules) == modules


def test_the_environment_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/proc/self/environ").exists():
        pytest.skip("no /proc")
    monkeypatch.setenv("SAMERUN_TEST_LATER", "1")
    launch.read_environ_at_process_start.cache_clear()
    assert "SAMERUN_TEST_LATER" not in launch.read_environ_at_process_start()
    assert launch.read_environ_at_process_start()["PATH"]


def test_native_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of("native_overrides").verdict == "not applicable", "there is no CUDA in this build"
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    native = pytest.importorskip("torch._native.common_utils")
    monkeypatch.setattr(native, "check_native_jit_disabled", lambda: False)
    monkeypatch.setenv("TORCH_DISABLE_NATIVE_JIT", "1")
    one = of("native_overrides")
    assert (one.verdict, one.wanted, one.in_force) == ("too late", "1", None), "set after torch was imported"
    monkeypatch.setattr(native, "check_native_jit_disabled", lambda: True)
    assert (of("native_overrides").verdict, of("native_overrides").in_force) == ("ok", "1")


@pytest.mark.parametrize(
    ("options", "value", "in_force"),
    [
        ([], "0", "0"),
        ([], "5", "5"),
        ([], "4294967295", "4294967295"),
        ([], None, None),
        ([], "", None),
        ([], "random", None),
        (["-R"], "5", None),
        (["-R"], "0", None),
        (["-sR"], "5", None),
        (["-E"], "5", None),
    ],
)
def test_the_hash_seed_is_that_of_the_hashes(options: list[str], value: str | None, in_force: str | None) -> None:
    program = f"""
import sys; sys.path[:0] = {sys.path!r}
from samerun.control.determinism.survey import survey
print([(one.in_force, one.verdict, one.why) for one in survey() if one.name == "hash_seed"])
"""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONHASHSEED"}
    done = subprocess.run(
        [sys.executable, *options, "-c", program], capture_output=True, text=True, check=True,
        env={**environment, **({} if value is None else {"PYTHONHASHSEED": value})},
    )  # fmt: skip
    [(read, verdict, why)] = ast.literal_eval(done.stdout)
    assert (read, verdict) == (in_force, "too late" if in_force is None else "ok")
    assert ("was '5' but overridden" in why) == (value == "5" and "R" in "".join(options))


def test_children_that_would_hash_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "42")
    one = of("hash_seed")
    assert (one.verdict, one.in_force) == ("differs", "0") and "42" in one.why


def test_composite_settings_know_who_set_them() -> None:
    assert {of(name).set_by for name in ("fp32_precision", "sdpa", "reduced_precision_reduction")} == {"default"}
    try:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = (False, True)
        assert of("reduced_precision_reduction").set_by == "program"
    finally:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = (True, True)
