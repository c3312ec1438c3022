"""Libraries that take NumPy's global generator past `numpy.random` are seen at the user's line."""

from __future__ import annotations

from pathlib import Path

import pytest
from watched_program import run

from samerun.record.trace import format as f

PROGRAM = """
import numpy as np
from scipy import stats
print(stats.norm.rvs(size=2))  # unseeded
print(stats.norm.rvs(size=2, random_state=3))
np.random.seed(0)
print(stats.norm.rvs(size=2), np.random.rand())  # seeded
"""


@pytest.mark.exhaustive
def test_a_library_that_takes_the_global_generator(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    outcomes = [run(PROGRAM, tmp_path / name) for name in ("one", "other")]
    draws = [outcome.events(f.DRAW, name="numpy") for outcome in outcomes]
    unseeded, seeded = outcomes[0].line("unseeded"), outcomes[0].line("seeded")
    for events in draws:
        assert {event.line for event in events} == {unseeded, seeded}
    states = [{event.line: event.outputs for event in reversed(events)} for events in draws]
    assert states[0][unseeded] != states[1][unseeded]
    assert states[0][seeded] == states[1][seeded]
    plain = run(PROGRAM, tmp_path / "plain", watched=False)
    assert plain.stdout.splitlines()[1:] == outcomes[0].stdout.splitlines()[1:]
