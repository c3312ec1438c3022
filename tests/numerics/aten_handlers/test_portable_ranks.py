"""Several processes: sums over ranks are taken in ascending rank, and DDP trains inside `portable()`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from portable_ranks import digest, part
from repository_paths import SUPPORT

import samerun

PROGRAM = SUPPORT / "portable_ranks.py"
WORLD = 3


@pytest.mark.exhaustive
def test_sums_over_ranks_are_in_ascending_rank(tmp_path: Path) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(rank), str(WORLD), str(tmp_path / "meeting")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(WORLD)
    ]
    results = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0] * WORLD, results
    assert len({out for out, _ in results}) == 1
    with samerun.portable():
        expected = (part(0) + part(1)) + part(2)
        other = part(0) + (part(1) + part(2))
    assert results[0][0].split()[0] == digest(expected)
    assert not torch.equal(expected, other)
