"""A cause is certain when the difference goes with the pin, comes back without it, and follows the pin's value.

Shown by forks, or by runs from nothing where forks did not show it; never by one of each.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from samerun.check.attribution import confirmation
from samerun.check.evidence.situation import Suspect
from samerun.check.plan import Plan
from samerun.record.config import WatchConfig

PARTED = SimpleNamespace(role="main", thread="main", ordinal=1)
NUMBER = itertools.count()
BEHAVIOURS = {
    "depends": lambda value: f"of {value}" if value is not None else f"chance {next(NUMBER)}",
    "only in its timing": lambda value: "always" if value is not None else f"chance {next(NUMBER)}",
    "no longer": lambda value: f"of {value}" if value is not None else "as the first run left it",
    "not at all": lambda value: f"chance {next(NUMBER)}",
}
"""What a program computes with the source held at a value, or not held (None)."""


class Program:
    """Runs of a program that behaves in one way among forks, and in another from nothing."""

    reruns = differing_reruns = 1

    def __init__(self, folder: Path, behaviour: dict[bool, str]) -> None:
        self.folder, self.behaviour, self.made = folder, behaviour, 0

    def run_and_record(self, plan: Plan, name: str, labels: tuple[str, ...] = (), allow_fork: bool = False) -> Any:
        self.made += 1
        folder = self.folder / f"{name}-{allow_fork}"
        folder.mkdir()
        if allow_fork:
            (folder / "forked").touch()
        value = plan.watch.pin_variant if plan.watch.pins else None
        result = BEHAVIOURS[self.behaviour[allow_fork]](value)
        return SimpleNamespace(folder=folder, exit_code=0, forked=allow_fork, result=result)

    def compare_runs(self, a: Any, b: Any) -> Any:
        assert a.forked == b.forked
        return None if a.result == b.result else PARTED


@pytest.mark.parametrize("forks", BEHAVIOURS)
@pytest.mark.parametrize("fresh", BEHAVIOURS)
def test_forks_confirm_or_are_asked_again(forks: str, fresh: str, tmp_path: Path) -> None:
    program = Program(tmp_path, {True: forks, False: fresh})
    before = SimpleNamespace(result="as the first run left it", forked=False)
    a = SimpleNamespace(exit_code=0, traces=SimpleNamespace(traces={}))
    situation: Any = SimpleNamespace(a=a, b=before, difference=PARTED)
    plan = Plan(("x",), ("x",), WatchConfig(folder=""))
    suspect = Suspect("unseeded-python", "train.py", 1, (), 0, ("python",))
    certain = confirmation.confirm_by_experiment(program, situation, plan, suspect, "pinned-1", suspect.pins)  # type: ignore[arg-type]
    assert certain == ("depends" in (forks, fresh))
    if forks == "depends":
        assert program.made == 5  # two held, two free, one held at another value
