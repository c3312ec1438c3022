"""Which part of the environment, of what differs in every process by itself, makes a rerun differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from samerun.check.attribution import attribution, confirmation
from samerun.check.attribution.value_measurement import AttributionSearch
from samerun.check.evidence.situation import Situation
from samerun.check.execution.runner import Run
from samerun.check.plan import RunPlan, Variation
from samerun.check.search.bisection import VariedRun

DIFFERENT_IN_EVERY_PROCESS = ("address_layout", "hash_seed", "memory")
"""Variations of what differs in every process by itself."""


class EnvironmentSearch(AttributionSearch, Protocol):
    """The part of `Search` that is used here."""

    @property
    def plan(self) -> RunPlan: ...
    @property
    def environment(self) -> Sequence[Variation]: ...
    def make_varied_plan(self, pinned: Sequence[Variation]) -> RunPlan: ...
    def run_varied(self, control: Run, pinned: Sequence[Variation], varied: Sequence[Variation]) -> VariedRun: ...
    def rerun_to_find_operator(self, situation: Situation) -> Situation: ...


def search_unpinned_environment(
    search: EnvironmentSearch, pinned_so_far: Sequence[Variation]
) -> tuple[Situation, attribution.AttributedCause] | None:
    """Which part of the environment that differs in every process makes the difference, if one does.

    Addresses come first, even if they were pinned so far: another hash seed moves objects as well (decision 33).
    """
    named = {v.name: v for v in search.environment if not v.unavailable(search.plan)}
    known = [named[name] for name in DIFFERENT_IN_EVERY_PROCESS if name in named]
    rest = [v for v in known if v.cause == "object-id" or v not in pinned_so_far]
    pinned = list(dict.fromkeys([*pinned_so_far, *rest]))
    if len(pinned) == len(pinned_so_far):
        return None
    base = search.run_and_record(search.make_varied_plan(pinned), "held-1")
    agrees = partial(confirmation.rerun_and_check_agreement, search, base, search.compare_runs_ignoring_order)
    if not agrees():
        return None
    # Addresses differ in every run, but their order does not always: they get more tries.
    for variation in [v for v in rest for _ in range(3 if v.cause == "object-id" else 1)]:
        varied_run = search.run_varied(base, pinned, [variation])
        if varied_run.difference is not None:
            if not agrees():  # a race, on a machine that was busy for a while
                break
            varied = Situation(variation.name, base, varied_run.run, varied_run.difference)
            varied = search.rerun_to_find_operator(varied)
            found = attribution.attribute_variation_difference_to_line(search, varied, variation)
            return replace(varied, variation="rerun"), replace(found, variation=variation.name)
    return None
