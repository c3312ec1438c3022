"""What lies in memory that nobody wrote, or that a collective fills later, is no value until a program reads it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from check_command import check
from repository_paths import PROGRAMS

PROGRAM = PROGRAMS / "undefined_memory.py"


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(PROGRAM.read_text().splitlines(), 1) if text in line)


def test_buffers_that_are_filled_later_or_never_read_are_no_difference(tmp_path: Path) -> None:
    shutil.copy(PROGRAM, tmp_path / "train.py")
    code, report = check(["--vary", "rerun,memory", "train.py"], tmp_path)
    assert (code, report["verdict"]) == (0, "same"), report["first_difference"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reads", "made"),
    [
        pytest.param("buffer", "memory = torch.empty"),
        pytest.param("collective", "larger = torch.empty", marks=pytest.mark.exhaustive),
        pytest.param("copy", "kept = torch.empty", marks=pytest.mark.exhaustive),
    ],
)
def test_what_is_read_of_it_is_named_where_it_was_made(reads: str, made: str, tmp_path: Path) -> None:
    shutil.copy(PROGRAM, tmp_path / "train.py")
    code, report = check(["--vary", "rerun,memory", "train.py", reads], tmp_path)
    assert (code, report["verdict"]) == (1, "different")
    cause = report["cause"]
    assert (cause["kind"], cause["line"], cause["certain"]) == ("uninitialised-memory", line_of(made), True), cause
