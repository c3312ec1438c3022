"""A suspect is confirmed by forks, or by runs from nothing where forks did not confirm it; never by one of each."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from samerun.check import attribution
from samerun.check.plan import Plan
from samerun.check.situation import Suspect
from samerun.record.config import WatchConfig

PARTED = SimpleNamespace(role="main", thread="main", ordinal=1)


class Pairs:
    """Runs of which forks, or those from nothing, are the same."""

    reruns = differing = 1

    def __init__(self, folder: Path, same: dict[bool, bool]) -> None:
        self.folder, self.same, self.made = folder, same, 0

    def run(self, plan: Plan, name: str, vary: tuple[str, ...] = (), among_forks: bool = False) -> Any:
        self.made += 1
        folder = self.folder / f"{name}-{among_forks}"
        folder.mkdir()
        if among_forks:
            (folder / "forked").touch()
        return SimpleNamespace(folder=folder, exit_code=0, forked=among_forks)

    def difference(self, a: Any, b: Any) -> Any:
        assert a.forked == b.forked
        return None if self.same[a.forked] else PARTED


@pytest.mark.parametrize("forks", [True, False])
@pytest.mark.parametrize("fresh", [True, False])
def test_forks_confirm_or_are_asked_again(forks: bool, fresh: bool, tmp_path: Path) -> None:
    pairs = Pairs(tmp_path, {True: forks, False: fresh})
    situation: Any = SimpleNamespace(a=SimpleNamespace(exit_code=0), difference=PARTED)
    plan = Plan(("x",), ("x",), WatchConfig(folder=""))
    suspect = Suspect("unseeded-python", "train.py", 1, (), 0, ("python",))
    confirmed = attribution.confirmed(pairs, situation, plan, suspect, "pinned-1", suspect.pins)  # type: ignore[arg-type]
    assert confirmed == (forks or fresh)
    assert pairs.made == (2 if forks else 4)
