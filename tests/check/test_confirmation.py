"""A cause is certain when the difference goes with the pin, comes back without it, and follows the pin's value."""

from __future__ import annotations

import itertools
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
    """Runs of a program that behaves in one way."""

    reruns = differing_reruns = 1

    def __init__(self, behaviour: str) -> None:
        self.behaviour, self.made = behaviour, 0

    def run_and_record(self, plan: Plan, name: str, labels: tuple[str, ...] = ()) -> Any:
        self.made += 1
        value = plan.watch.pin_variant if plan.watch.pins else None
        return SimpleNamespace(exit_code=0, result=BEHAVIOURS[self.behaviour](value))

    def compare_runs(self, a: Any, b: Any) -> Any:
        return None if a.result == b.result else PARTED


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_only_what_depends_on_the_source_is_confirmed(behaviour: str) -> None:
    program = Program(behaviour)
    before = SimpleNamespace(result="as the first run left it")
    a = SimpleNamespace(exit_code=0, traces=SimpleNamespace(traces={}))
    situation: Any = SimpleNamespace(a=a, b=before, difference=PARTED)
    plan = Plan(("x",), ("x",), WatchConfig(folder=""))
    suspect = Suspect("unseeded-python", "train.py", 1, (), 0, ("python",))
    certain = confirmation.confirm_by_experiment(program, situation, plan, suspect, "pinned-1", suspect.pins)  # type: ignore[arg-type]
    assert certain == (behaviour == "depends")
    if certain:
        assert program.made == 4  # two held, one free, one held at another value


class RacingProgram(Program):
    """Runs of a program that gives one of two results by chance, whatever is pinned: `results` are its next ones."""

    def __init__(self, results: str) -> None:
        super().__init__("")
        self.results = iter(results)

    def run_and_record(self, plan: Plan, name: str, labels: tuple[str, ...] = ()) -> Any:
        self.made += 1
        return SimpleNamespace(exit_code=0, result=next(self.results))


@pytest.mark.parametrize(
    ("results", "runs"),
    [
        # Two pinned runs agree, an unpinned one agrees with the run before (a), the next differs: more pinned runs.
        ("aa" + "ab" + "aab", 7),
        ("aa" + "ab" + "aaaa" + "b", 9),
    ],
)
def test_where_unpinned_runs_agree_more_pinned_runs_must(results: str, runs: int) -> None:
    program = RacingProgram(results)
    a = SimpleNamespace(exit_code=0, traces=SimpleNamespace(traces={}))
    situation: Any = SimpleNamespace(a=a, b=SimpleNamespace(result="a"), difference=PARTED)
    plan = Plan(("x",), ("x",), WatchConfig(folder=""))
    suspect = Suspect("unseeded-python", "train.py", 1, (), 0, ("python",))
    certain = confirmation.confirm_by_experiment(program, situation, plan, suspect, "pinned-1", suspect.pins)  # type: ignore[arg-type]
    assert (certain, program.made) == ("aab" not in results[4:7], runs)


def test_a_race_that_is_lost_later_is_the_same_race() -> None:
    first, later, elsewhere = (
        SimpleNamespace(event=SimpleNamespace(name=name, file="train.py", line=line))
        for name, line in (("aten.add.Tensor", 5), ("aten.add.Tensor", 5), ("aten.add.Tensor", 6))
    )
    assert confirmation.is_at_same_operator(later, first)  # type: ignore[arg-type]
    assert not confirmation.is_at_same_operator(elsewhere, first)  # type: ignore[arg-type]
