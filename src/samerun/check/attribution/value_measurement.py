"""How far apart the values of the first difference are: runs that save them, and the comparison of what was saved."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from samerun.check.attribution import confirmation
from samerun.check.evidence.situation import Situation
from samerun.check.evidence.value_differences import (
    ElementDifference,
    choose_snapshot_steps,
    compare_first_differing_saved_tensors,
    compare_steps_by_digest,
)
from samerun.check.execution.runner import Run
from samerun.check.plan import RunPlan
from samerun.record.config import TensorCapture


class AttributionSearch(confirmation.ExperimentRunner, Protocol):
    """The part of `Search` that attribution uses."""

    def measure_and_record_growth(self, steps: tuple[int, ...], a: Run, b: Run) -> None: ...
    @property
    def skip_values(self) -> bool: ...


def rerun_and_measure_difference(
    search: AttributionSearch, situation: Situation, plan_a: RunPlan, plan_b: RunPlan
) -> ElementDifference | None:
    """How far apart the results of the first differing operator are: both plans run again and save them."""
    plans = make_plans_keeping_values(search, situation, (plan_a, plan_b))
    if plans is None:
        return None
    if plans[0].watch.capture is None:
        plans = tuple(plan.with_watch(depth="steps", operator_window=None) for plan in plans)
    a, b = (
        search.run_and_record(plan, f"kept-{letter}", ("values",)) for letter, plan in zip("ab", plans, strict=True)
    )
    return compare_kept_values_and_record_growth(search, situation, (a, b))


def make_plans_keeping_values(
    search: AttributionSearch, situation: Situation, plans: tuple[RunPlan, ...]
) -> tuple[RunPlan, ...] | None:
    """The plans of two runs that save what the first differing operator computes; None if nothing is to be measured.

    The same runs save parameters after some steps, so that the report can say how the difference grows.
    """
    difference, event = situation.difference, situation.difference.a
    same_operator = (
        event is not None and difference.b is not None and difference.ordinal and difference.what != "operator"
    )
    steps = choose_snapshot_steps(compare_steps_by_digest(situation.a, situation.b))
    if search.skip_values or not (same_operator or steps):
        return None
    keeping = [plan.with_watch(snapshot_steps=steps) for plan in plans]
    if same_operator and event is not None:
        ordinals = difference.ordinal, difference.ordinal_b or difference.ordinal
        for number, (path, ordinal) in enumerate(zip(get_kept_value_paths(situation), ordinals, strict=True)):
            path.unlink(missing_ok=True)  # of another search of this check
            capture = TensorCapture(difference.role, event.thread, ordinal, str(path))
            keeping[number] = keeping[number].with_watch(capture=capture)
    return tuple(keeping)


def compare_kept_values_and_record_growth(
    search: AttributionSearch, situation: Situation, runs: tuple[Run, Run]
) -> ElementDifference | None:
    """How far apart the results are that two runs saved, if they saved one operator's."""
    search.measure_and_record_growth(runs[0].plan.watch.snapshot_steps, *runs)
    event = situation.difference.a
    if runs[0].plan.watch.capture is None or event is None:
        return None
    return compare_first_differing_saved_tensors(*get_kept_value_paths(situation), event.line)


def get_kept_value_paths(situation: Situation) -> tuple[Path, Path]:
    """The files of what the first differing operator computes in both runs."""
    folder = situation.a.folder.parent
    return folder / "kept-a.bin", folder / "kept-b.bin"
