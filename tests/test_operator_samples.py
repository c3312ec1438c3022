"""torch's own samples of its operators give the same outputs and gradients watched and unwatched."""

from __future__ import annotations

from pathlib import Path

import pytest
from watching import run

PROGRAM = Path(__file__).parent / "programs" / "operator_samples.py"
ENVIRONMENT = {"PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize(
    ("first", "step"),
    [(3, 60), *(pytest.param(part, 12, marks=pytest.mark.exhaustive) for part in range(12))],
)
def test_operators_give_the_same_watched(first: int, step: int, tmp_path: Path) -> None:
    plain, watched = (
        run(PROGRAM, tmp_path / name, str(first), str(step), watched=watch, environment=ENVIRONMENT)
        for name, watch in (("plain", False), ("watched", True))
    )
    assert watched.traces.failures == []
    assert watched.traces.operators() > 0
    assert watched.stdout.splitlines() == plain.stdout.splitlines()
    assert len(plain.stdout.splitlines()) > 5
