"""torch's own samples of its operators and modules give the same outputs and gradients watched and unwatched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from repository_paths import PROGRAMS
from watched_program import TIME_LIMIT, run

OPERATORS, MODULES = PROGRAMS / "operator_samples.py", PROGRAMS / "module_samples.py"
ASK_FOR_A_MODE = {b"ormqr", b"prod"}
"""Operators whose gradients torch computes by another formula as soon as any dispatch mode is active."""
VARIES_BY_ITSELF = b"linalg.lstsq "
"""Of six plain runs one has other bits."""
ENVIRONMENT = {"PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1"}


def comparable_lines(output: bytes) -> list[bytes]:
    return [line for line in output.splitlines() if not line.startswith(VARIES_BY_ITSELF)]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("samples", "first", "step"), [*((OPERATORS, part, 12) for part in range(12)), (MODULES, 0, 1)]
)
def test_samples_give_the_same_watched(samples: Path, first: int, step: int, tmp_path: Path) -> None:
    plain, watched = (
        run(samples, tmp_path / name, str(first), str(step), watched=watch, environment=ENVIRONMENT)
        for name, watch in (("plain", False), ("watched", True))
    )
    assert watched.traces.failures == []
    assert watched.traces.operator_count() > 0
    pairs = zip(comparable_lines(plain.stdout), comparable_lines(watched.stdout), strict=True)
    differing = {ours for theirs, ours in pairs if ours != theirs}
    assert {line.split()[0] for line in differing} <= ASK_FOR_A_MODE
    if differing:
        words = str(first), str(step), "mode"
        in_mode = run(samples, tmp_path / "mode", *words, watched=False, environment=ENVIRONMENT)
        assert differing <= set(in_mode.stdout.splitlines())
    *lines, count = plain.stdout.splitlines()
    assert len(lines) > 5
    assert count == b"%d entries" % len(lines)  # none is left out without a word


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(12))
def test_operators_give_the_same_under_run(part: int, tmp_path: Path) -> None:
    """Deterministic kernels, filled memory and seeds are what `samerun run` adds: no sample depends on them."""
    program = [str(OPERATORS), str(part), "12"]
    plain, held = (
        subprocess.run([sys.executable, *command, *program], env={**os.environ, **ENVIRONMENT}, cwd=tmp_path,
                       capture_output=True, timeout=TIME_LIMIT, check=True).stdout
        for command in ([], ["-m", "samerun", "run", "--receipt", "receipt.json"])
    )  # fmt: skip
    assert comparable_lines(held) == comparable_lines(plain)
