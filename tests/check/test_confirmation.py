"""A cause is certain when the difference goes with the pin, comes back without it, and follows the pin's value."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from samerun.check.attribution import confirmation
from samerun.check.attribution.draw_experiments import rerun_and_move_to_decisive_draw
from samerun.check.attribution.hidden_sources import find_hidden_source
from samerun.check.attribution.reading_experiments import find_decisive_or_likeliest_reading
from samerun.check.causes.nondeterministic_operator import find_nondeterministic_operator_suspects
from samerun.check.evidence.situation import Suspect
from samerun.check.plan import RunPlan
from samerun.record.config import WatchConfig
from samerun.record.trace import format as f

PARTED = SimpleNamespace(what="outputs", role="main", thread="main", ordinal=1)
LATER = SimpleNamespace(what="outputs", role="main", thread="main", ordinal=2)
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

    reruns = differing_rerun_count = 1

    def __init__(self, behaviour: str) -> None:
        self.behaviour, self.made = behaviour, 0

    def run_and_record(self, plan: RunPlan, name: str, labels: tuple[str, ...] = ()) -> Any:
        self.made += 1
        value = plan.watch.pin_variant if plan.watch.pins else None
        return SimpleNamespace(exit_code=0, result=BEHAVIOURS[self.behaviour](value))

    def run_each(self, plan: RunPlan, names: Sequence[str], labels: tuple[str, ...] = ()) -> Iterator[Any]:
        return (self.run_and_record(plan, name, labels) for name in names)

    def compare_runs(self, a: Any, b: Any) -> Any:
        return None if a.result == b.result else PARTED


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_only_what_depends_on_the_source_is_confirmed(behaviour: str) -> None:
    program = Program(behaviour)
    before = SimpleNamespace(result="as the first run left it")
    a = SimpleNamespace(exit_code=0, traces=SimpleNamespace(traces={}))
    situation: Any = SimpleNamespace(a=a, b=before, difference=PARTED)
    plan = RunPlan(("x",), ("x",), WatchConfig(folder=""))
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

    def run_and_record(self, plan: RunPlan, name: str, labels: tuple[str, ...] = ()) -> Any:
        self.made += 1
        return SimpleNamespace(exit_code=0, result=next(self.results), plan=plan)


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
    plan = RunPlan(("x",), ("x",), WatchConfig(folder=""))
    suspect = Suspect("unseeded-python", "train.py", 1, (), 0, ("python",))
    certain = confirmation.confirm_by_experiment(program, situation, plan, suspect, "pinned-1", suspect.pins)  # type: ignore[arg-type]
    assert (certain, program.made) == ("aab" not in results[4:7], runs)


WITH_PROCESS: Any = SimpleNamespace(traces={"main/sub": SimpleNamespace(locations=[], strings=[])})
"""Traces of a run with a process of its own: a sign of a race."""


@pytest.mark.parametrize(("again", "certain"), [("a", False), ("bbb", True)])
def test_where_processes_race_another_value_must_give_the_same_again(again: str, certain: bool) -> None:
    """A race that is lost seldom may be lost for the first time with the source at another value."""
    program = RacingProgram("aaaaaa" + "b" + "ab" + again)  # pinned, free, at two other values, at the second again
    a = SimpleNamespace(exit_code=0, traces=WITH_PROCESS)
    situation: Any = SimpleNamespace(a=a, b=SimpleNamespace(result="a"), difference=PARTED)
    plan = RunPlan(("x",), ("x",), WatchConfig(folder=""))
    suspect = Suspect("os-entropy", "train.py", 1, (), 0, ("entropy",))
    found = confirmation.confirm_by_experiment(program, situation, plan, suspect, "pinned-1", suspect.pins)  # type: ignore[arg-type]
    assert (found, program.made) == (certain, 9 + len(again))


@pytest.mark.parametrize(
    ("races", "reruns", "differing", "count"), [(False, 1, 0, 1), (True, 1, 0, 5), (False, 3, 1, 8), (True, 3, 3, 5)]
)
def test_how_many_reruns_must_agree_before_a_variation_is_why(
    races: bool, reruns: int, differing: int, count: int
) -> None:
    search: Any = SimpleNamespace(reruns=reruns, differing_rerun_count=differing)
    base: Any = SimpleNamespace(traces=WITH_PROCESS if races else SimpleNamespace(traces={}))
    assert confirmation.count_reruns_that_must_agree(search, base) == count


@pytest.mark.parametrize(("results", "agree"), [("aaaaa", True), ("aaab", False)])
def test_where_processes_race_one_rerun_that_agrees_is_not_enough(results: str, agree: bool) -> None:
    program = RacingProgram(results)
    base: Any = SimpleNamespace(result="a", traces=WITH_PROCESS, plan=RunPlan(("x",), ("x",), WatchConfig(folder="")))
    assert confirmation.rerun_and_check_agreement(program, base, program.compare_runs) == agree  # type: ignore[arg-type]
    assert program.made == len(results)


@pytest.mark.parametrize(("longer", "certain"), [("b", False), ("aA" + "b", True)])
def test_where_pinned_runs_differ_later_more_of_them_must_agree_before(longer: str, certain: bool) -> None:
    class Program(RacingProgram):
        """Runs that differ from a run of another letter early, and later from one whose letter is a capital."""

        def compare_runs(self, a: Any, b: Any) -> Any:
            early = a.result.lower() != b.result.lower()
            return PARTED if early else None if a.result == b.result else LATER

    program = Program("aA" + "b" + longer)
    a = SimpleNamespace(exit_code=0, traces=SimpleNamespace(traces={}))
    situation: Any = SimpleNamespace(a=a, b=SimpleNamespace(result="a"), difference=PARTED)
    plan = RunPlan(("x",), ("x",), WatchConfig(folder=""))
    suspect = Suspect("unseeded-python", "train.py", 1, (), 0, ("python",))
    found = confirmation.confirm_by_experiment(program, situation, plan, suspect, "pinned-1", suspect.pins)  # type: ignore[arg-type]
    assert found == certain


def test_a_race_that_is_lost_later_is_the_same_race() -> None:
    first, later, elsewhere = (
        SimpleNamespace(event=SimpleNamespace(name=name, file="train.py", line=line))
        for name, line in (("aten.add.Tensor", 5), ("aten.add.Tensor", 5), ("aten.add.Tensor", 6))
    )
    assert confirmation.is_at_same_operator(later, first)  # type: ignore[arg-type]
    assert not confirmation.is_at_same_operator(elsewhere, first)  # type: ignore[arg-type]


class ReadingProgram(Program):
    """Runs of a program whose results depend on what some lines read from the clock."""

    def __init__(self, lines: tuple[int, ...], file: str = "train.py") -> None:
        super().__init__("")
        self.lines, self.file = lines, file

    def run_and_record(self, plan: RunPlan, name: str, labels: tuple[str, ...] = ()) -> Any:
        self.made += 1
        names = plan.watch.pins
        values = [
            f"held at {plan.watch.pin_variant}" if {"clock", f"clock@{self.file}:{line}"} & set(names) else next(NUMBER)
            for line in self.lines
        ]
        return SimpleNamespace(exit_code=0, result=values, traces=SimpleNamespace(traces={}))


@pytest.mark.parametrize(
    ("read", "matter", "expected"),
    [
        ((5, 3), (5,), (5, True, False)),
        ((5, 3), (3,), (3, True, False)),  # the likeliest is only logged
        ((5, 3), (3, 5), (5, True, True)),  # both ends of a duration
        ((7, 5, 3), (3, 5), (5, True, True)),  # a reading beside them that can be left free
        ((5, 3), (9,), (5, False, False)),  # a library reads it: no line of the user's is why
        ((5,), (9,), None),
        ((5,), (5,), (5, True, False)),
    ],
)
def test_the_line_of_a_reading_is_certain_only_if_it_was_tested(
    read: tuple[int, ...], matter: tuple[int, ...], expected: tuple[int, bool, bool] | None
) -> None:
    program: Any = ReadingProgram(matter)
    run = program.run_and_record(RunPlan(("x",), ("x",), WatchConfig(folder="")), "")
    situation: Any = SimpleNamespace(a=run, b=run, difference=PARTED)
    readings = [Suspect("time", "train.py", line, (), 5.5, ("clock",)) for line in read]
    plan = RunPlan(("x",), ("x",), WatchConfig(folder=""))
    found = find_decisive_or_likeliest_reading(program, situation, plan, readings)
    assert (found and (found.line, found.certain, "together" in "".join(found.evidence))) == expected


def test_both_ends_of_a_duration_take_few_runs(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("begin = time.time()\nwhile time.time() - begin < 1: step()\n")
    program: Any = ReadingProgram((1, 2), str(file))
    plan = RunPlan(("x",), ("x",), WatchConfig(folder=""))
    run = program.run_and_record(plan, "")
    situation: Any = SimpleNamespace(a=run, b=run, difference=PARTED)
    readings = [Suspect("time", str(file), line, (), 5.5, ("clock",)) for line in (2, 1)]
    found = find_decisive_or_likeliest_reading(program, situation, plan, readings)
    assert found is not None and found.certain and "goes if this line and train.py:1" in found.evidence[-1]
    assert program.made == 7  # the program, three pinned pairs, free, and at another value


@pytest.mark.parametrize(
    ("matters", "expected"),
    [((9,), (9, True)), ((4,), (4, True)), ((4, 9), (4, True)), ((20,), (4, False))],
)
def test_the_draw_that_results_depend_on_is_named(matters: tuple[int, ...], expected: tuple[int, bool]) -> None:
    class Drawing(Program):
        def run_and_record(self, plan: RunPlan, name: str, labels: tuple[str, ...] = ()) -> Any:
            free = [next(NUMBER) for line in matters if f"free@train.py:{line}" in plan.watch.pins]
            return SimpleNamespace(result=free)

    events = [
        SimpleNamespace(kind=f.DRAW, name="python", file="train.py", line=line, text="choice") for line in (4, 6, 9)
    ]
    situation: Any = SimpleNamespace(host_events_until_difference=events, difference=PARTED)
    plan = RunPlan(("x",), ("x",), WatchConfig(folder=""))
    suspect = Suspect("unseeded-python", "train.py", 4, ("why", "no seed"), 2, ("python",), certain=True)
    found = rerun_and_move_to_decisive_draw(Drawing(""), situation, plan, suspect)  # type: ignore[arg-type]
    assert (found.line, found.certain) == expected


@pytest.mark.parametrize(("lines", "line", "certain"), [((), 0, False), ((7,), 7, True), ((7, 9), 7, False)])
def test_a_source_that_is_confirmed_late_stands_where_it_is_read(
    lines: tuple[int, ...], line: int, certain: bool
) -> None:
    """A difference that seldom comes may refute each line by chance, and come when all sources are tried again."""
    before = SimpleNamespace(result="as the first run left it")
    a = SimpleNamespace(
        exit_code=0, traces=SimpleNamespace(traces={}), plan=RunPlan(("x",), ("x",), WatchConfig(folder=""))
    )
    situation: Any = SimpleNamespace(a=a, b=before, difference=PARTED)
    listed = [Suspect("unseeded-python", "train.py", number, ("it draws",), 0, ("python",)) for number in lines]
    program: Any = Program("depends")
    found = find_hidden_source(program, situation, [Suspect("time", "train.py", 3, (), 0, ("clock",)), *listed])
    assert found is not None and (found.kind, found.line, found.certain) == ("unseeded-python", line, certain)
    assert ("no line of this program reads it" in " ".join(found.evidence)) == (not lines)


@pytest.mark.parametrize("variation", ["threads", "cpu_capability", "locale"])
@pytest.mark.parametrize(("operator", "unordered"), [("aten.index_put_.default", True), ("aten.sum.default", False)])
def test_a_variation_makes_nothing_certain_of_an_operator_that_may_differ_in_each_run(
    variation: str, operator: str, unordered: bool
) -> None:
    """Runs without the variation agree by chance on a busy machine, whose threads take turns."""
    event = SimpleNamespace(kind=f.OPERATOR, name=operator, flags=0, file="train.py", line=3)
    situation: Any = SimpleNamespace(variation=variation, difference=SimpleNamespace(what="outputs", a=event))
    found = find_nondeterministic_operator_suspects(situation)
    assert [(one.line, one.certain) for one in found] == ([(3, False)] if unordered else [])
