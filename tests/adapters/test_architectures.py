"""Architectures of transformers train to one digest inside `portable()`, whatever the processor's switches.

The digests stand in architecture_digests.json, for the release of transformers that is named there: another release of
torch, another compiler and another processor give them too. With another release of transformers, which may define a
model anew, only the settings are compared with each other.
"""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest
from fresh_process import fresh_file

PROGRAM = Path(__file__).parents[1] / "programs" / "train_architectures.py"
RECORDED = json.loads(Path(__file__).with_name("architecture_digests.json").read_text())
ALL = tuple(RECORDED["digests"])
A_SIXTH = (*ALL[::6], *(name for name in ("fnet", "mixtral", "qwen3_moe") if name not in ALL[::6]))
ONE_THREAD = (("OMP_NUM_THREADS", "1"),)
SWITCHES = {
    "threads": {"OMP_NUM_THREADS": "2"},
    "no vectors": {"ATEN_CPU_CAPABILITY": "default"},
    "MKL": {"MKL_CBWR": "COMPATIBLE"},
    "oneDNN": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
}
ALL_SWITCHES = {name: value for switch in SWITCHES.values() for name, value in switch.items()}

pytestmark = pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not there")


@cache
def train(names: tuple[str, ...], environment: tuple[tuple[str, str], ...]) -> dict[str, str]:
    results = [json.loads(line) for line in fresh_file(PROGRAM, *names, **dict(environment))]
    assert not [result for result in results if "error" in result]
    return {result["architecture"]: result["digest"] for result in results}


def expected_digests(names: tuple[str, ...]) -> dict[str, str]:
    if version("transformers") != RECORDED["transformers"]:
        return train(names, ONE_THREAD)
    return {name: RECORDED["digests"][name] for name in names}


def test_a_sixth_of_all_architectures_with_every_switch_at_once() -> None:
    assert len(A_SIXTH) >= 33
    assert train(A_SIXTH, tuple(ALL_SWITCHES.items())) == expected_digests(A_SIXTH)


@pytest.mark.exhaustive
@pytest.mark.parametrize("switch", ["one thread", *SWITCHES])
def test_all_architectures_with_one_switch(switch: str) -> None:
    environment = (*ONE_THREAD, *SWITCHES.get(switch, {}).items())
    assert train(ALL, environment) == expected_digests(ALL)
