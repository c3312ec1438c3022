"""tools/guess.py: the same seed draws the same signatures, without docstrings and bodies."""

from __future__ import annotations

import subprocess
import sys

import pytest
from repository_paths import ROOT


def draw(*arguments: str) -> list[str]:
    command = [sys.executable, str(ROOT / "tools" / "guess.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.exhaustive
def test_a_seed_draws_the_same_signatures_again() -> None:
    drawn = draw("7")
    assert len(drawn) == 40 and len(set(drawn)) == 40
    assert drawn == draw("7") != draw("8")


def test_python_and_c_functions_are_drawn_without_their_bodies() -> None:
    drawn = draw("1", "--count", "100000")
    assert any(
        ": Order.at(self, positions: UInt64Array, *, epoch: int, seed: int) -> UInt64Array" in each for each in drawn
    )
    assert any("native/states.c: EXPORT void samerun_mt19937_init_genrand(" in line for line in drawn)
    assert not [line for line in drawn if "{" in line or '"""' in line or "__init__(" in line]
