"""`check --eager`: inside a compiled region, and differences that only compilation makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from check_command import check

from samerun.base.records import CheckReport, FirstDifference
from samerun.check.search.modes import add_eager_hint_if_in_compiled_region

PROGRAM = """
import random
import torch

def noisy(graph, inputs):
    def run(*given):
        return [out * factor() for out in graph(*given)]
    return run

def factor():
    return random.random()

@torch.compile(backend=noisy)
def region(x):
    return torch.relu(x)

print(region(torch.ones(3)).shape)
"""


def eager(folder: Path, program: str) -> tuple[int, dict[str, Any]]:
    (folder / "program.py").write_text(program)
    return check(["--vary", "rerun", "--eager", "program.py"], folder)


@pytest.mark.exhaustive
def test_what_only_compilation_makes(tmp_path: Path) -> None:
    code, report = eager(tmp_path, PROGRAM)
    assert code == 1
    compilation = report["compilation"]
    assert (compilation["eager"], compilation["compiled"], compilation["reported"]) == ("same", "different", "compiled")
    assert compilation["regions"] == [["program.py", 13]]
    assert report["cause"]["kind"] == "unseeded-python"
    assert any("only compiled (at program.py:13)" in note for note in report["notes"])


@pytest.mark.exhaustive
def test_inside_a_region(tmp_path: Path) -> None:
    code, report = eager(tmp_path, PROGRAM.replace("relu(x)", "relu(x) * torch.rand(())").replace("* factor()", ""))
    assert code == 1
    assert report["compilation"]["eager"] == report["compilation"]["compiled"] == "different"
    assert report["compilation"]["reported"] == "eager"
    assert (report["cause"]["kind"], report["cause"]["line"]) == ("unseeded-torch", 15)


@pytest.mark.slow
def test_a_program_that_compiles_nothing(tmp_path: Path) -> None:
    code, report = eager(tmp_path, "import torch\nprint(torch.ones(3) + 1)\n")
    assert code == 0
    assert report["compilation"] == {"eager": "same", "compiled": None, "regions": [], "reported": "eager"}
    assert any("compiles nothing" in note for note in report["notes"])


@pytest.mark.parametrize(("operator", "hinted"), [("compiled graph", True), ("aten.mm.default", False)])
def test_a_compiled_region_that_differs_is_named_with_a_way_inside(operator: str, hinted: bool) -> None:
    first = FirstDifference("rerun", 3, 1, "forward", "", operator, "train.py", 7, "same")
    notes = add_eager_hint_if_in_compiled_region(CheckReport("different", ("train.py",), first_difference=first)).notes
    assert any("--eager" in note for note in notes) is hinted
