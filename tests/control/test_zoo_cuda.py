"""Small programs, one operator each, that torch refuses in deterministic mode or computes otherwise in every run.

Each repeats its operator twenty times, first in the default mode, then in deterministic mode, and prints what it saw.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from check_command import samerun
from repository_paths import TESTS

ZOO = sorted((TESTS / "zoo_cuda").glob("*.py"))
SLOW = pytest.mark.exhaustive


def run(path: Path, **environment: str) -> str:
    done = samerun(["run", "--quiet", str(path)], path.parent, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_the_same(said: str) -> None:
    assert "deterministic mode: bitwise equal" in said and "RESULT 1" in said.splitlines()


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["c20_put", pytest.param("c08_max_unpool2d", marks=SLOW)])
def test_what_torch_refuses_on_the_cpu_works_there_too(name: str) -> None:
    path = TESTS / "zoo_cuda" / f"{name}.py"
    assert_the_same(run(path, ZOO_DEVICE="cpu"))


@SLOW
def test_torch_alone_refuses_it() -> None:
    path = TESTS / "zoo_cuda" / "c20_put.py"
    alone = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=True, env={"ZOO_DEVICE": "cpu"}
    )
    assert "deterministic mode: RuntimeError put_ does not have a deterministic implementation" in alone.stdout


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("23_advanced_index_backward", 2),
        pytest.param("23_advanced_index_backward", 5, marks=SLOW),
        pytest.param("25_assign_duplicates", 5, marks=SLOW),
    ],
)
def test_indexing_with_two_threads_trains_to_the_same_bits(name: str, runs: int) -> None:
    path = TESTS / "zoo" / f"{name}.py"
    results = {re.findall("RESULT .*", run(path, OMP_NUM_THREADS="2"))[0] for _ in range(runs)}
    assert len(results) == 1


def test_most_of_the_programs_are_refused_by_torch() -> None:
    headers = [json.loads(path.read_text(encoding="utf-8").splitlines()[0][1:]) for path in ZOO]
    assert sum(each["class"] == "throws" for each in headers) > 20
