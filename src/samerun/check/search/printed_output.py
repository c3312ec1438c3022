"""A difference that shows only in what is printed: what NumPy or plain Python compute reaches no operator of torch.

It is looked for once all values were the same, and only where the runs so far printed other lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from samerun.base.records import DIFFERENT, CheckReport, Outcome, Verdict
from samerun.check.attribution.attribution import AttributedCause
from samerun.check.attribution.hidden_sources import ALL_SOURCES
from samerun.check.evidence.results import (
    find_first_unmatched_printed_lines,
    find_lines_that_differ,
    reads_clock,
    seeds_differ,
)
from samerun.check.evidence.situation import Situation
from samerun.check.evidence.trace_signs import threads_may_write_to_one_object
from samerun.check.execution.runner import Run
from samerun.check.plan import RunPlan, Variation
from samerun.check.search.report_records import describe_printed_difference
from samerun.record import pins
from samerun.record.comparison.compare import Difference
from samerun.record.trace import format as f
from samerun.record.trace.run import select_events

VARIED = ("hash_seed", "listing_order", "memory", "address_layout")
"""Variations whose effect on a printed line is one on a result. Others are printed as they are: a path, a language."""
RERUNS = 3
RANDOM_KINDS = (f.SEED, f.CREATE, f.DRAW, f.ENTROPY)


class PrintedSearch(Protocol):
    """The part of `Search` that is used here."""

    plan: RunPlan
    compares_printed_lines: bool
    reruns: int
    differing_rerun_count: int
    outcomes: dict[str, Outcome]
    notes: list[str]

    @property
    def runs(self) -> list[Run]: ...
    def run_and_record(self, plan: RunPlan, name: str, labels: tuple[str, ...] = ()) -> Run: ...
    def make_varied_plan(self, pinned: Sequence[Variation], varied: Sequence[Variation] = ()) -> RunPlan: ...
    def compare_runs(self, a: Run, b: Run) -> Difference | None: ...
    def compare_and_count_rerun(self, control: Run, again: Run) -> Difference | None: ...
    def attribute_and_report_rerun_difference(
        self, situation: Situation, skipped: Sequence[Variation]
    ) -> CheckReport: ...
    def bisect_variations_or_find_flaky_control(
        self, control: Run, pinned: Sequence[Variation], varying: Sequence[Variation]
    ) -> tuple[Situation, AttributedCause | None] | None: ...
    def record_skipped_and_make_report(
        self, verdict: Verdict, situation: Situation | None = None, found: AttributedCause | None = None
    ) -> CheckReport: ...


def report_explained_printed_difference(
    search: PrintedSearch, control: Run, pinned: Sequence[Variation], varying: Sequence[Variation]
) -> CheckReport | None:
    """The report on runs that print other lines though all that torch computes is the same; None if there is none.

    The durations and dates that a program prints are no results. Where it reads a clock, the clock is held still, and
    beside operators of torch that are all the same only a cause that was found counts.
    """
    held = (
        reads_clock(control)
        and not any(seeds_differ(control, other) for other in search.runs)
        and printed_differences_may_be_random_or_raced(search.runs, control)
    )
    if not held and not any(find_first_unmatched_printed_lines(control, other) for other in search.runs):
        return None
    before = search.plan, dict(search.outcomes), list(search.notes)
    search.compares_printed_lines, search.reruns, search.differing_rerun_count = True, 0, 0
    if held:
        search.plan = search.plan.with_added_pins(pins.CLOCK)
        control = search.run_and_record(search.make_varied_plan(pinned), "printed-1")
    report: CheckReport | None = None
    unexplained = differing = find_differing_rerun(search, control, "printed")
    if differing is not None and control.operators:  # of values that torch computed all are the same
        volatile = find_volatile_lines(search, control)
        if volatile:
            search.plan = replace(search.plan, volatile_lines=volatile)
            search.reruns = search.differing_rerun_count = 0
            control = search.run_and_record(search.make_varied_plan(pinned), "printed-others-1")
            differing = find_differing_rerun(search, control, "printed-others")
            unexplained = differing or unexplained
    if differing is not None:
        report = search.attribute_and_report_rerun_difference(differing, pinned)
    else:
        inside = [variation for variation in varying if variation.name in VARIED]
        found = search.bisect_variations_or_find_flaky_control(control, pinned, inside) if inside else None
        if found is not None and found[1] is not None:
            report = search.record_skipped_and_make_report(DIFFERENT, *found)
        elif found is not None:
            report = search.attribute_and_report_rerun_difference(found[0], pinned)
    if report is not None and (not control.operators or has_cause_inside_program(report)):
        return report
    search.compares_printed_lines = False
    search.plan, search.outcomes, search.notes = before
    if unexplained is not None:
        lines = describe_printed_difference(unexplained.a, unexplained.b)
        search.notes.append(f"Only printed lines differ, and no experiment says why: {lines}.")
    return None


def find_differing_rerun(search: PrintedSearch, control: Run, name: str) -> Situation | None:
    """Rerun `control`; what differs, or None. All reruns are made where one differs: how often it does says how many
    experiments are needed."""
    differing: Situation | None = None
    for number in range(2, 2 + RERUNS):
        again = search.run_and_record(control.plan, f"{name}-{number}")
        difference = search.compare_and_count_rerun(control, again)
        if difference is None and differing is None:
            break  # the run with variations comes next, and is a rerun as well
        if difference is not None and differing is None:
            differing = Situation("rerun", control, again, difference)
    return differing


def find_volatile_lines(search: PrintedSearch, control: Run) -> frozenset[bytes]:
    """Lines that still differ with every source of randomness held still, and what arrives taken in order."""
    pinned = control.plan.with_added_pins(*ALL_SOURCES, pins.IN_ORDER)
    return find_lines_that_differ(
        [search.run_and_record(pinned, f"printed-pinned-{number}", ("pin:all",)) for number in range(1, 4)]
    )


def has_cause_inside_program(report: CheckReport) -> bool:
    """Whether an experiment found the cause, or which generator it is though not which of the lines that draw."""
    return report.cause is not None and (report.cause.certain or report.cause.kind.startswith("unseeded-"))


def printed_differences_may_be_random_or_raced(runs: Sequence[Run], control: Run) -> bool:
    """Whether runs of a program that prints what a clock says may print something random, or in order of arrival."""
    if not any(find_first_unmatched_printed_lines(control, other, with_numbers=True) for other in runs):
        return False
    traces = control.traces.traces.values()
    events = [e for trace in traces for e in select_events(trace, RANDOM_KINDS) if e.line]
    seeded = {e.name for e in events if e.kind == f.SEED and not e.is_seeded_by_system}
    is_random = any(
        e.kind == f.ENTROPY or e.is_seeded_by_system or (e.kind == f.DRAW and e.name not in seeded) for e in events
    )
    arrives = any(e.direct for trace in traces for e in select_events(trace, (f.COMPLETION,)))
    return not control.operators or is_random or arrives or threads_may_write_to_one_object(control.traces)
