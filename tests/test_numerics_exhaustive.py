"""Class R, proved: all 2^32 inputs of every function, against the C library's doubles and mpmath."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
import exhaustive

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exhaustive.build(tmp_path_factory.mktemp("exhaustive"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", exhaustive.names())
def test_all_inputs(program: Path, name: str) -> None:
    assert [each for each in exhaustive.run(program, name) if each.result != each.wanted] == []


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sigmoid", "sin"])
def test_a_stretch_of_inputs(program: Path, name: str) -> None:
    results = exhaustive.run(program, name, first=0x3F000000, count=1 << 21)
    assert results, "some inputs must need judging, or nothing is judged"
    assert [each for each in results if each.result != each.wanted] == []
