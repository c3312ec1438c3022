"""The search of a check: control against control, then everything varied, then bisection; then the cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from samerun.base.records import (
    ALREADY,
    DIFFERENT,
    SAME,
    TROUBLE,
    CheckReport,
    Growth,
    Outcome,
    VariationOutcome,
    Verdict,
)
from samerun.check.attribution import attribution, confirmation
from samerun.check.attribution.value_measurement import rerun_and_measure_difference
from samerun.check.evidence.results import results_agree
from samerun.check.evidence.situation import Situation, Suspect
from samerun.check.evidence.trace_signs import has_no_sign_of_race
from samerun.check.evidence.value_differences import measure_growth_points_if_different
from samerun.check.execution.interruption import Interruption
from samerun.check.execution.runner import PlannedRun, Run, Runner
from samerun.check.plan import RunPlan, Variation
from samerun.check.search import resume, unpinned_environment
from samerun.check.search.bisection import (
    VariedRun,
    bisect_and_record_outcomes,
    prefer_address_layout_run,
    rerun_and_describe_combination,
    retry_without_may_fail_variations,
)
from samerun.check.search.printed_output import report_explained_printed_difference
from samerun.check.search.report_records import (
    make_cause_path_relative,
    make_first_difference_record,
    make_printed_order_and_timing_notes,
    make_run_record,
    summarize_differing_steps,
)
from samerun.check.search.resume_experiments import ResumeExperiments
from samerun.check.search.run_status import (
    describe_failure,
    find_first_difference_of_runs,
    limit_time_of_experiment,
    require_success,
    require_trace_to_compare,
    require_within_time_limit,
    timed_out_without_difference,
)
from samerun.record.comparison.compare import Difference

EXTRA_REPEATS = 2


@dataclass
class Search:
    """One check: its runs so far and what became of each variation."""

    runner: Runner
    plan: RunPlan
    variations: Sequence[Variation]
    environment: Sequence[Variation]
    """All variations of the environment, chosen or not: tried when a rerun alone differs."""
    repeat: int = 2
    saved: bool = False
    interruptions: Sequence[Interruption] = ()
    """For the variation `resume`."""
    runs: list[Run] = field(default_factory=list)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    reruns: int = 0
    """How many runs of the unvaried program were compared with the first one."""
    differing_rerun_count: int = 0
    """How many of them differed from it."""
    not_varied: Mapping[str, str] = field(default_factory=dict)
    """Variations that are pinned and no longer varied, each with the reason."""
    prefix: str = ""
    """Prefix of the name of every run."""
    skip_values: bool = False
    """Do not compare the values of the first difference: a finding behind another only needs its cause."""
    compares_printed_lines: bool = False
    """Printed lines count as values: all others are the same."""
    growth_points: tuple[Growth, ...] = ()
    """How the reported difference grows."""
    order_difference: Difference | None = None
    """The first difference of two runs that have the same results."""
    reported: tuple[Situation, attribution.AttributedCause] | None = None
    """The difference that was reported, and its cause."""

    # --- runs ----------------------------------------------------------------------------------------
    def run_and_record(self, plan: RunPlan, name: str, labels: tuple[str, ...] = ()) -> Run:
        run = self.runner.run(self._plan_run(plan, name, labels))
        self.runs.append(run)
        return run

    def run_each(self, plan: RunPlan, names: Sequence[str], labels: tuple[str, ...] = ()) -> Iterator[Run]:
        """Run a plan under each of the names, one after the other as they are asked for, begun ahead where possible."""
        with self.ahead(*((plan, name, labels) for name in names)):
            for name in names:
                yield self.run_and_record(plan, name, labels)

    def ahead(
        self, *wanted: tuple[RunPlan, str] | tuple[RunPlan, str, tuple[str, ...]]
    ) -> AbstractContextManager[None]:
        """Tell which runs will be asked for in the block, so that other machines may begin with them."""
        return self.runner.ahead([self._plan_run(*each) for each in wanted])

    def _plan_run(self, plan: RunPlan, name: str, labels: tuple[str, ...] = ()) -> PlannedRun:
        name = self.prefix + name
        taken = sum(run.name == name or run.name.startswith(f"{name}~") for run in self.runs)
        limit = self.runner.time_limit
        limit = limit_time_of_experiment(limit, self.runs[0].seconds, labels) if self.runs else limit
        return PlannedRun(plan, f"{name}~{taken + 1}" if taken else name, limit, labels)

    def make_varied_plan(self, pinned: Sequence[Variation], varied: Sequence[Variation] = ()) -> RunPlan:
        """The plan with each variation pinned at its control value, and those in `varied` at the other one."""
        plan = self.plan
        for variation in pinned:
            plan = variation.apply(plan, variation in varied)
        return plan

    # --- the search ----------------------------------------------------------------------------------
    def check(self) -> CheckReport:
        """Run the whole search. Raises RunFailed if the program does not end well by itself."""
        # The cheapest question first. A run with everything varied is a rerun as well, so that one run may settle both
        # (decision 9); it is trusted as a rerun only if the control shows no sign of a race. Resuming comes last: a
        # program that differs by itself says nothing about its checkpoints.
        chosen = [v for v in self.variations if self.is_available_or_record_skip(v)]
        pinned = [v for v in chosen if v.name not in ("rerun", "resume")]
        resuming = [v for v in chosen if v.name == "resume"]
        for variation in resuming:
            self.plan = variation.apply(self.plan, False)
        first = self.run_and_record(self.make_varied_plan(pinned), "control-1")
        require_trace_to_compare(first)
        require_success(first)
        varying = [v for v in pinned if self.may_matter_or_record_skip(v, first)]
        varied_run: VariedRun | None = None
        if any(v.name == "rerun" for v in chosen) or not (pinned or resuming):
            plain = [v for v in varying if not self.narrows_comparison(v)]
            by_address = not any(v.cause == "object-id" for v in plain)  # varied on purpose if among them
            if plain and self.repeat == 2 and has_no_sign_of_race(first.traces, by_address):
                # A run with everything varied is a rerun as well: the same result settles both.
                varied_run, plain = retry_without_may_fail_variations(
                    self, first, pinned, self.run_varied(first, pinned, plain)
                )
            if varied_run is not None and varied_run.difference is None:
                self.outcomes["rerun"] = Outcome("rerun", SAME, "the run with everything varied gave the same")
            else:
                differs = self.rerun_control_and_find_first_difference(
                    first, self.make_varied_plan(pinned), is_last_test=not plain
                )
                if differs is not None:
                    return self.attribute_and_report_rerun_difference(differs, pinned)
        if varying:
            found = self.bisect_variations_or_find_flaky_control(first, pinned, varying, varied_run)
            if found is not None and found[1] is None:
                return self.attribute_and_report_rerun_difference(found[0], pinned)
            if found is not None:
                return self.record_skipped_and_make_report(DIFFERENT, *found)
        for variation in resuming:
            result = resume.try_interruptions_until_difference(self, first, self.interruptions)
            if result.situation is not None and "rerun" not in self.outcomes:
                chance = self.rerun_control_and_compare(first)
                if chance is not None:
                    return self.attribute_and_report_rerun_difference(chance, [*pinned, variation])
            self.record_outcome(variation, result.outcome, result.detail)
            if result.situation is not None and result.resumed is not None:
                cause = ResumeExperiments(self, result.situation, result.resumed).run_experiments_and_find_cause()
                return self.record_skipped_and_make_report(DIFFERENT, result.situation, cause)
        printed = report_explained_printed_difference(self, first, pinned, varying)
        return printed or self.record_skipped_and_make_report(SAME)

    def is_available_or_record_skip(self, variation: Variation) -> bool:
        """Whether it can be varied here; if not, records the reason for the report."""
        reason = variation.unavailable(self.plan)
        if reason:
            self.record_outcome(variation, "skipped", reason)
        return not reason

    def may_matter_or_record_skip(self, variation: Variation, control: Run) -> bool:
        """Whether a program that ran like this can depend on it; if not, records the reason for the report."""
        reason = self.not_varied.get(variation.name) or variation.pointless(control.traces)
        if reason:
            self.record_outcome(variation, "skipped", reason)
        return not reason

    def narrows_comparison(self, variation: Variation) -> bool:
        """Whether less is compared under this variation: it is then varied alone, so that it hides nothing."""
        return variation.apply(self.plan, True).scope != self.plan.scope

    def rerun_control_and_find_first_difference(
        self, control: Run, plan: RunPlan, is_last_test: bool
    ) -> Situation | None:
        """Repeat the control, `repeat` runs in all: the first difference, or None if all are the same.

        If two runs were asked for, the first difference settles it; with `is_last_test`, a program
        that may be flaky gets two more. If more than two were asked for, all are made, so that the report can
        say how often the program differs.
        """
        situation: Situation | None = None
        most = max(2, self.repeat)
        if is_last_test and self.repeat == 2 and not has_no_sign_of_race(control.traces):
            most += EXTRA_REPEATS
        names = [f"control-{number}" for number in range(2, most + 1)]
        for again in self.run_each(plan, names):
            difference = self.compare_and_count_rerun(control, again)
            if difference is None:
                self.delete_traces_if_unsaved(again)
                continue
            situation = situation or Situation("rerun", control, again, difference)
            if self.repeat == 2:
                break
        if situation is None:
            self.outcomes["rerun"] = Outcome("rerun", SAME, f"{most} runs of the same command")
            return None
        return self.rerun_to_find_operator(situation)

    def run_varied(self, control: Run, pinned: Sequence[Variation], varied: Sequence[Variation]) -> VariedRun:
        """One run with a group of variations applied and the others pinned, compared with the control."""
        names = tuple(v.name for v in varied)
        name = f"varied-{names[0]}" if len(names) == 1 else "varied-together"
        run = self.run_and_record(self.make_varied_plan(pinned, varied), name, names)
        return VariedRun(tuple(varied), run, self.compare_runs_ignoring_order(control, run))

    def bisect_variations_or_find_flaky_control(
        self, control: Run, pinned: Sequence[Variation], varying: Sequence[Variation], combined: VariedRun | None = None
    ) -> tuple[Situation, attribution.AttributedCause | None] | None:
        """Vary everything at once; if that differs, bisect. Returns the first difference and its cause.

        The cause is None if the unvaried program turns out to be flaky.
        """
        plain = [v for v in varying if not self.narrows_comparison(v)]
        singles: list[VariedRun] = []
        scoped = [v for v in varying if v not in plain]
        if combined is not None:  # what fails when varied was left out already
            plain = list(combined.variations)
        elif plain:
            combined, plain = retry_without_may_fail_variations(
                self, control, pinned, self.run_varied(control, pinned, plain)
            )
        if combined is not None:
            singles = bisect_and_record_outcomes(self, control, pinned, combined)
        for variation in scoped:
            singles += bisect_and_record_outcomes(self, control, pinned, self.run_varied(control, pinned, [variation]))
        found: Situation | None = None
        culprit: Variation | None = None
        if singles:
            hit = prefer_address_layout_run(singles)
            culprit = hit.variations[0]
            assert hit.difference is not None
            found = self.rerun_to_find_operator(Situation(culprit.name, control, hit.run, hit.difference))
        elif combined is not None and combined.difference is not None:
            well = [v for v in plain if self.outcomes[v.name].outcome != TROUBLE]
            if len(well) < len(plain):  # one variation makes the run fail: all the others at once
                combined = self.run_varied(control, pinned, well) if well else None
            if (
                combined is not None
                and combined.difference is not None
                and not timed_out_without_difference(combined.run, combined.difference)
            ):
                self.notes.append(rerun_and_describe_combination(self, control, pinned, combined))
                names = "+".join(v.name for v in combined.variations)
                found = Situation(names, control, combined.run, combined.difference)
        if found is None:
            return None
        chance = self.rerun_control_and_compare(control)
        if chance is not None:
            return chance, None
        return found, replace(
            attribution.attribute_variation_difference_to_line(self, found, culprit), variation=found.variation
        )

    def rerun_control_and_compare(self, control: Run) -> Situation | None:
        """The difference between two control runs, if the program is flaky; else None. Where it races, some agree."""
        for _ in range(confirmation.count_reruns_that_must_agree(self, control)):
            again = self.run_and_record(control.plan, "control-again")
            difference = self.compare_and_count_rerun(control, again)
            if difference is not None:
                return self.rerun_to_find_operator(Situation("rerun", control, again, difference))
        return None

    def compare_and_count_rerun(self, control: Run, again: Run) -> Difference | None:
        """The difference between two control runs. Raises RunFailed if the second did not end in time."""
        difference = self.compare_runs_ignoring_order(control, again)
        if timed_out_without_difference(again, difference):
            require_within_time_limit(again)
        self.reruns += 1
        self.differing_rerun_count += difference is not None
        return difference

    def attribute_and_report_rerun_difference(self, situation: Situation, skipped: Sequence[Variation]) -> CheckReport:
        """The report if the same command gives two results."""
        detail = f"{situation.a.name} against {situation.b.name}"
        if self.reruns > 1:
            detail += f"; differed in {self.differing_rerun_count} of {self.reruns} repeats"
        self.outcomes["rerun"] = Outcome("rerun", DIFFERENT, detail + describe_failure(situation.b, "; "))
        for variation in skipped:
            self.record_outcome(variation, "skipped", ALREADY)
        pinned, untested = {v.name for v in skipped}, list[Suspect]()
        found = attribution.attribute_rerun_difference_by_experiments(self, situation, pinned, untested)
        if found is None:  # not the program: part of the environment that differs in every process and was not pinned
            if (hidden := unpinned_environment.search_unpinned_environment(self, skipped)) is not None:
                return self.record_skipped_and_make_report(DIFFERENT, *hidden)
            measured = rerun_and_measure_difference(self, situation, situation.a.plan, situation.a.plan)
            found = attribution.attribute_by_line_trace_or_likeliest_suspect(self, situation, measured, untested)
        return self.record_skipped_and_make_report(DIFFERENT, situation, found)

    def compare_runs(self, a: Run, b: Run) -> Difference | None:
        """The first difference of two runs; None if they are the same."""
        require_trace_to_compare(b)
        return find_first_difference_of_runs(a, b, self.compares_printed_lines)

    def compare_runs_ignoring_order(self, a: Run, b: Run) -> Difference | None:
        """The first difference of two runs, if a result differs too: which thread came first is none (decision 57).

        Experiments compare all values (`compare_runs`), which show the effect of a source most surely.
        """
        found = self.compare_runs(a, b)
        if found is None or found.what == "printed" or not results_agree(a, b, found):
            return found
        self.order_difference = self.order_difference or found
        return None

    def measure_and_record_growth(self, steps: tuple[int, ...], a: Run, b: Run) -> None:
        """Compare the parameters that two more runs saved after some steps."""
        self.growth_points = measure_growth_points_if_different(a.folder, b.folder, steps)
        if steps and not self.growth_points:
            self.notes.append("How the difference grows is not known: it did not come back where it was measured.")

    def delete_traces_if_unsaved(self, run: Run) -> None:
        """Delete the traces of a run that was the same: nothing reads them again."""
        if not self.saved:
            run.delete_traces()

    def rerun_to_find_operator(self, situation: Situation) -> Situation:
        """If only steps were recorded at the difference, run both again with the operators of that step recorded."""
        difference, plan = situation.difference, situation.a.plan
        if difference.what != "leaf" or plan.watch.depth == "ops":
            return situation
        step = difference.step
        plans = [r.plan.with_watch(depth="ops", operator_window=(step, step)) for r in (situation.a, situation.b)]
        runs = [
            (plan, f"{r.name}-step{step}", r.labels) for plan, r in zip(plans, (situation.a, situation.b), strict=True)
        ]
        with self.ahead(*runs):
            a, b = (self.run_and_record(*run) for run in runs)
        found = self.compare_runs(a, b)
        if found is None or found.what == "leaf":
            return situation
        return Situation(situation.variation, a, b, replace(found, step=max(found.step, difference.step)))

    def record_outcome(self, variation: Variation, outcome: VariationOutcome, detail: str = "") -> None:
        text = variation.detail + (f"; {detail}" if detail else "")
        self.outcomes[variation.name] = Outcome(variation.name, outcome, text)

    # --- the report ----------------------------------------------------------------------------------
    def record_skipped_and_make_report(
        self, verdict: Verdict, situation: Situation | None = None, found: attribution.AttributedCause | None = None
    ) -> CheckReport:
        self.notes += make_printed_order_and_timing_notes(self.runs, situation, self.order_difference)
        rerun = self.outcomes.get("rerun")
        why = ALREADY if rerun is not None and rerun.outcome == DIFFERENT else "another variation differs already"
        for variation in self.variations if verdict == DIFFERENT else ():
            if variation.name not in self.outcomes:  # whatever would have come after the first difference
                self.record_outcome(variation, "skipped", why)
        first = make_first_difference_record(situation, found) if situation is not None else None
        skipped = self.runs[0].skipped if self.runs else ()
        if situation is not None and found is not None:
            self.reported = situation, found
        return CheckReport(
            verdict=verdict,
            command=self.plan.shown,
            variations=tuple(self.outcomes[v.name] for v in self.variations if v.name in self.outcomes),
            runs=tuple(make_run_record(run, self.saved) for run in self.runs),
            first_difference=first,
            cause=make_cause_path_relative(found.cause) if found is not None else None,
            fix=found.fix if found is not None else None,
            notes=(*self.notes, *skipped, *self.runner.notes()),
            others=tuple(make_cause_path_relative(other) for other in found.others) if found is not None else (),
            spread=summarize_differing_steps(situation, self.growth_points) if situation is not None else None,
        )
