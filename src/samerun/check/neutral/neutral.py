"""`samerun check --neutral`: does a switch that should change nothing change nothing, only the rounding, or more?

Both sides of a switch are run as the program is. Where any bit differs, both are run once more in float64, and side A
with its parameters disturbed by one ulp: `rounding_verdict` judges, `difference_explanation` explains (decision 0054).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np

from samerun.base.records import (
    DIFFERENT,
    SAME,
    TROUBLE,
    CheckReport,
    CompiledRegion,
    NeutralResult,
    Outcome,
    VariationOutcome,
    Verdict,
)
from samerun.check.execution.runner import RunFailed
from samerun.check.neutral import rounding_verdict
from samerun.check.neutral.call_alignment import CallAlignment, align_calls
from samerun.check.neutral.compilation_stages import explain_compiled_difference
from samerun.check.neutral.difference_explanation import explain_difference
from samerun.check.neutral.lost_bits import (
    LossySide,
    find_losing_operator,
    find_lossy_side,
    find_lost_whole_numbers,
)
from samerun.check.neutral.padded_parameters import with_padded_parameters_told
from samerun.check.neutral.rounded_results import (
    accept_in_envelope_or_raise,
    describe_rounding,
    judge_uses_of_results_if_known,
    make_same_result,
    require_same_printed_numbers,
    require_same_result_sizes_at_end,
    run_inside_portable_and_describe,
)
from samerun.check.neutral.rounding_verdict import DistancePoint, RunJudgement
from samerun.check.neutral.run_numbers import OperatorSummary, RunNumbers, read_run_numbers
from samerun.check.neutral.runs_of_sides import (
    FirstChange,
    NotComparable,
    NumberedRun,
    computes_coarsely,
    count_steps_by_rounds_if_uneven,
    count_uses,
    explain_lost_tie,
    explain_parameters_trained_on_one_side,
    find_first_differing_step_or_call,
    find_step_or_call_record,
    is_run_by_ranks,
    make_run_name,
    require_common_decisive_values,
    require_ended_well,
    require_same_names_and_sizes_at_first_change,
    with_culprit,
    with_step_value_and_float64_errors,
)
from samerun.check.neutral.side_alignment import SideAlignment
from samerun.check.neutral.step_rounds import StepRounds
from samerun.check.neutral.value_correspondence import Culprit
from samerun.check.plan import RunPlan
from samerun.check.search.report_records import NO_OPERATOR
from samerun.check.search.run_status import REGIONS, require_success, require_trace_to_compare
from samerun.check.search.search import Search
from samerun.check.variations.neutral_switches import LABELS, NeutralSwitch, SideLabel, make_side
from samerun.record.comparison.rounding import LOSES_HALF
from samerun.record.config import NumbersRequest
from samerun.record.region_finding import RegionFinding, read_rank0_or_main_region_finding

STEPS_IN_FLOAT64 = 100
"""So many steps from the first difference on are run in float64, and all up to one that leaves the envelope."""
COARSE_ULP = 2.0**16
"""An ulp of bfloat16 in ulp of float32: the disturbance where a side, or the program, computes in a coarser format."""
COPYING = re.compile(r"aten\.(_foreach_)?copy_\.")
ALREADY_DIFFERS = "the program differs on a plain rerun, and nothing can be said: run samerun check without --neutral"
OUTCOMES: dict[str, VariationOutcome] = {"wrong": DIFFERENT, "unaligned": TROUBLE, "skipped": "skipped"}


def check_neutrality(search: Search, switches: Sequence[NeutralSwitch]) -> CheckReport:
    """Raises RunFailed if side A of a switch does not end well."""
    check = NeutralCheck(search)
    with check.ahead(check.plan_sides(switches)):
        results = [check.check_switch(switch) for switch in switches]
    judged = {result.outcome for result in results} - {"skipped"}
    verdict: Verdict = DIFFERENT if "wrong" in judged else TROUBLE if "unaligned" in judged or not judged else SAME
    outcomes = tuple(Outcome(r.name, OUTCOMES.get(r.outcome, SAME), r.detail) for r in results)
    report = search.record_skipped_and_make_report(SAME)
    report = replace(report, verdict=verdict, variations=outcomes, neutral=tuple(results))
    return replace(report, notes=tuple(note for note in report.notes if not note.startswith(NO_OPERATOR)))


class NeutralCheck:
    """Runs and judges switches one after the other; a run that several of them need is made once."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self._made: list[NumberedRun] = []

    def check_switch(self, switch: NeutralSwitch) -> NeutralResult:
        """Run both sides of a switch and judge them. Raises RunFailed if side A does not end well."""
        with np.errstate(all="ignore"):  # masks are infinite, and a training may diverge
            return self._check_switch(switch)

    def _check_switch(self, switch: NeutralSwitch) -> NeutralResult:
        reason = switch.unavailable(self.search.plan)
        if reason:
            return NeutralResult(switch.name, "skipped", f"{switch.detail}; {reason}")
        a = self.run_once(*self._plan_side(switch, "a"))
        require_success(a.run)
        try:
            b = self.run_once(*self._plan_side(switch, "b"))
            require_ended_well(b, "side B")
            if switch.needs_use and not count_uses(switch.needs_use, a, b):
                return NeutralResult(switch.name, "skipped", f"{switch.detail}; {switch.lacking}")
            a, b = count_steps_by_rounds_if_uneven(a, b)
            calls = align_calls(a.numbers, b.numbers)
            a, b = (replace(side, numbers=calls.apply(side.numbers)) for side in (a, b))
            changed = find_first_differing_step_or_call(a, b)
            if changed is None:
                return self._judge_same_steps(switch, a, b, calls)
            result = SwitchJudge(self, switch, a, b, changed, calls).judge_difference_as_rounding_or_wrong()
            if result.outcome == "rounding" and switch.tries_portable:
                inside = run_inside_portable_and_describe(a, b, self.run_once)
                result = replace(result, detail=f"{result.detail}; {inside}")
            return result
        except NotComparable as error:
            return NeutralResult(switch.name, "unaligned", f"{switch.detail}; {error}")

    def _judge_same_steps(
        self, switch: NeutralSwitch, a: NumberedRun, b: NumberedRun, calls: CallAlignment
    ) -> NeutralResult:
        if calls.uncompared and not is_run_by_ranks(a, b):
            judge = SwitchJudge(self, switch, a, b, FirstChange("call", 0, calls.first_uncompared_step), calls)
            if (judged := judge.rerun_and_judge_by_uses_of_results_if_known()) is not None:
                return judged
            require_same_result_sizes_at_end(a, calls)
        require_same_printed_numbers(a, b, lambda side: self.run_once(side.plan, f"{side.run.name}-again", again=True))
        return make_same_result(switch, a, b)

    def plan_sides(self, switches: Sequence[NeutralSwitch]) -> list[tuple[RunPlan, str]]:
        """The runs of all sides that will be made."""
        made = [switch for switch in switches if not switch.unavailable(self.search.plan)]
        return [self._plan_side(switch, label) for switch in made for label in LABELS]

    def _plan_side(self, switch: NeutralSwitch, label: SideLabel) -> tuple[RunPlan, str]:
        base = self.search.plan.with_watch(numbers=NumbersRequest(), depth="steps")
        return switch.side(label)(base), make_run_name(f"{switch.name}-{label}")

    def ahead(self, planned: Sequence[tuple[RunPlan, str]]) -> AbstractContextManager[None]:
        """Begin with those of the runs that were not made yet, each once, where there are machines for them."""
        known = [made.plan for made in self._made]
        return self.search.ahead(
            *(run for at, run in enumerate(planned) if run[0] not in (*known, *(plan for plan, _ in planned[:at])))
        )

    def run_once(self, plan: RunPlan, name: str, labels: tuple[str, ...] = (), again: bool = False) -> NumberedRun:
        """The run of a plan, made now or before; `again`: made now in any case."""
        known = next((made for made in self._made if made.plan == plan), None)
        if known is not None and not again:
            return known
        run = self.search.run_and_record(plan, make_run_name(name), labels)
        require_trace_to_compare(run)
        made = NumberedRun(plan, run, read_run_numbers(run.folder, run.traces))
        self._made.append(made)
        return made


class SwitchJudge:
    """Judges two sides that differ."""

    def __init__(
        self, check: NeutralCheck, switch: NeutralSwitch, a: NumberedRun, b: NumberedRun, changed: FirstChange,
        calls: CallAlignment,
    ) -> None:  # fmt: skip
        self.check, self.changed, self.calls = check, changed, calls
        self.lost_tie = explain_lost_tie(a.numbers, b.numbers)
        self.alignment = SideAlignment(a, b, calls)
        self.a, self.b = self.alignment.a, self.alignment.b
        self.switch = with_padded_parameters_told(switch, self.alignment.padded)

    def judge_difference_as_rounding_or_wrong(self) -> NeutralResult:
        switch, a, b = self.switch, self.a, self.b
        if (told := explain_parameters_trained_on_one_side(a.numbers, b.numbers)) is not None:
            self._require_same_on_rerun(a)
            return with_culprit(NeutralResult(switch.name, "wrong", switch.detail, step=self.changed.step), told)
        require_same_names_and_sizes_at_first_change(a.numbers, b.numbers, self.changed)
        require_common_decisive_values(a.numbers, b.numbers)
        disturbed = self._rerun_side(a, disturbance=COARSE_ULP if computes_coarsely(a) else 1.0, name="disturbed")
        if switch.coarser and computes_coarsely(disturbed):  # casts of the program's own: only now they are seen
            disturbed = self._rerun_side(a, disturbance=COARSE_ULP, name="disturbed-coarsely")
        apart = rounding_verdict.measure_relative_distances(a.numbers, b.numbers)
        envelope = rounding_verdict.measure_relative_distances(a.numbers, disturbed.numbers)
        outside = rounding_verdict.find_first_point_outside_envelope(apart, envelope)
        base = NeutralResult(
            switch.name, "rounding", switch.detail, step=self.changed.step,
            points=rounding_verdict.make_evenly_spaced_points(apart, envelope),
            growth="inside" if outside is None else "outside",
        )  # fmt: skip
        if b.plan.watch.numbers is not None and b.plan.watch.numbers.float64:
            return self._judge_precision(base, outside)
        limit = max(self.changed.step + STEPS_IN_FLOAT64, (outside.number if outside is not None else 0) + 2)
        try:
            a64, b64 = self._rerun_both_in_float64(limit)
            require_ended_well(a64, "side A in float64")
            require_ended_well(b64, "side B in float64")
        except NotComparable as error:
            return accept_in_envelope_or_raise(base, str(error))
        compiled = count_uses("compile", a, b) > 0
        judgement = rounding_verdict.judge_runs_up_to_first_fault(
            a.numbers, b.numbers, a64.numbers, b64.numbers, None, compiled
        )
        if judgement.verdict != "clean":
            # Before the disturbed run may clear anything: chance makes of every run another one, of that one too.
            self._require_same_on_rerun(a)
            p64 = self._rerun_side(a, float64=True, disturbance=1.0, last_step=limit, name="disturbed")
            judgement = rounding_verdict.judge_runs_up_to_first_fault(
                a.numbers, b.numbers, a64.numbers, b64.numbers, p64.numbers, compiled
            )
        base = with_step_value_and_float64_errors(base, judgement, self.changed, self.a, self.b, a64)
        if judgement.verdict == "wrong":
            return self._rerun_and_explain_wrong(base, judgement, a64, b64)
        if judgement.number == 0 or judgement.verdict == "unclear":
            raise NotComparable("the runs in float64 have no step in common with the program's")
        judged = self._judge_lost_bits_or_none(base, a64, b64) or self.rerun_and_judge_by_uses_of_results_if_known()
        return judged if judged is not None and judged.outcome == "wrong" else describe_rounding(base, a, b, a64, b64)

    def _judge_lost_bits_or_none(self, base: NeutralResult, a64: NumberedRun, b64: NumberedRun) -> NeutralResult | None:
        """A side that computes the same function with half of the bits, or rounds whole numbers."""
        both = (self.b, self.a) if computes_coarsely(self.a) and computes_coarsely(self.b) else ()
        lost = [
            told for side in ((self.b,) if self.switch.coarser else both)
            if (told := find_lost_whole_numbers(
                self._operators(side, base.step), self._operators(side, base.step, float64=True),
                only_positions=not self.switch.coarser,
            ))
        ]  # fmt: skip
        if self.switch.coarser or len(lost) == 1:
            return with_culprit(replace(base, outcome="wrong"), lost[0]) if lost else None
        lossy = find_lossy_side(self.a.numbers, self.b.numbers, a64.numbers, b64.numbers)
        if lossy is None:
            return None
        base = replace(base, outcome="wrong", detail=f"{self.switch.detail}; {lossy}")
        if self.switch.name == "compile":
            return self._rerun_and_explain_compiled_regions(base, a64)
        return self._rerun_and_name_precision_losing_operator(base, lossy)

    def rerun_and_judge_by_uses_of_results_if_known(self) -> NeutralResult | None:
        """What the program computes of results that have other sizes decides; None where it cannot be told."""
        step = self.calls.first_uncompared_step
        if not step or is_run_by_ranks(self.a, self.b):
            return None
        a64, b64 = self._rerun_both_in_float64(step, step)
        return judge_uses_of_results_if_known(self.switch, self.calls, a64, b64)

    # --- runs ----------------------------------------------------------------------------------------
    def _rerun_side(
        self, side: NumberedRun, *, float64: bool = False, disturbance: float = 0.0, last_step: int | None = None,
        operators_of: int | None = None, name: str = "", labels: tuple[str, ...] = (),
    ) -> NumberedRun:  # fmt: skip
        """Run a side again: in float64, disturbed, up to a step, with its operators and those before it summarised."""
        made = self.check.run_once(*self._plan_rerun(side, float64, disturbance, last_step, operators_of, name), labels)
        return self.alignment.align(made, side.rounds)

    def _plan_rerun(
        self, side: NumberedRun, float64: bool, disturbance: float = 0.0, last_step: int | None = None,
        operators_of: int | None = None, name: str = "",
    ) -> tuple[RunPlan, str]:  # fmt: skip
        request, steps = side.plan.watch.numbers, side.plan.watch.max_steps
        assert request is not None
        step = operators_of or self.changed.step
        rounds = side.rounds or StepRounds(())
        if last_step is not None and last_step < side.step_count:
            steps = rounds.last_step(last_step)
        of = max(1, rounds.first_step(step - 1)), rounds.last_step(step)
        asked = replace(request, float64=float64, disturbance=disturbance, operator_steps=of)
        parts = [side.run.name, "float64" if float64 else "", name, f"step{operators_of}" if operators_of else ""]
        return side.plan.with_watch(numbers=asked, max_steps=steps), make_run_name("-".join(filter(None, parts)))

    def _rerun_both_in_float64(self, last_step: int, operators_of: int | None = None) -> list[NumberedRun]:
        """Up to a step."""
        plans = [self._plan_rerun(side, True, 0.0, last_step, operators_of) for side in (self.a, self.b)]
        with self.check.ahead(plans):
            return [
                self._rerun_side(side, float64=True, last_step=last_step, operators_of=operators_of)
                for side in (self.a, self.b)
            ]

    def _require_same_on_rerun(self, side: NumberedRun) -> None:
        """Raises NotComparable if side A differs from itself: then another side says nothing."""
        again = self.check.run_once(side.plan, f"{side.run.name}-again", again=True)
        again = self.alignment.align(again, side.rounds)
        if find_first_differing_step_or_call(side, again) is not None:
            raise NotComparable(ALREADY_DIFFERS)

    # --- verdicts ------------------------------------------------------------------------------------
    def _rerun_and_explain_wrong(
        self, base: NeutralResult, judgement: RunJudgement, a64: NumberedRun, b64: NumberedRun
    ) -> NeutralResult:
        records = [
            find_step_or_call_record(n, judgement.kind, judgement.number) for n in (self.a.numbers, self.b.numbers)
        ]
        step = judgement.number if judgement.kind == "step" else (records[0].head["step"] + 1 if records[0] else 1)
        if step not in a64.numbers.operators or step not in b64.numbers.operators:
            a64, b64 = self._rerun_both_in_float64(step, step)
        told = self.lost_tie or explain_difference(records[0], records[1], a64.numbers, b64.numbers, step)
        if judgement.kind == "call" and told is not None and COPYING.match(told.operator) and step > 1:
            told = self._rerun_and_explain_step_before_call(step - 1) or told
        region: CompiledRegion | None = None
        if self.switch.name == "compile":
            told, region = self._rerun_to_locate_miscompiled_stage_and_node(told, a64, step)
        worst = judgement.worst
        left = "it keeps its size in float64, so that it is no rounding"
        if worst is not None and math.isfinite(worst.left) and worst.scale > 0:
            share = worst.left / worst.scale
            left = f"{' '.join(filter(None, worst.key))} differs by {share:.2g} of its size, in float64 too"
        base = replace(base, outcome="wrong", detail=f"{self.switch.detail}; {left}", step=step, region=region)
        return base if told is None else with_culprit(base, told)

    def _rerun_and_explain_step_before_call(self, step: int) -> Culprit | None:
        """Where a value that is copied into a model before a call was made: in the last step (averages of weights)."""
        records = [find_step_or_call_record(side.numbers, "step", step) for side in (self.a, self.b)]
        a64, b64 = self._rerun_both_in_float64(step, step)
        told = explain_difference(records[0], records[1], a64.numbers, b64.numbers, step)
        return told if told is not None and told.line else None

    def _rerun_and_name_precision_losing_operator(self, base: NeutralResult, lossy: LossySide) -> NeutralResult | None:
        """Name the operator at which one side loses its bits; None if none does."""
        side, other = (self.a, self.b) if lossy.label == "a" else (self.b, self.a)
        operators = self._operators(side, lossy.step), self._operators(side, lossy.step, float64=True)
        told = find_losing_operator(*operators, self._operators(other, lossy.step))
        return with_culprit(replace(base, step=lossy.step), told) if told is not None else None

    def _operators(self, side: NumberedRun, step: int, float64: bool = False) -> list[OperatorSummary]:
        made = self._rerun_side(side, float64=float64, last_step=step, operators_of=step)
        return made.numbers.operators.get(step, [])

    def _rerun_and_explain_compiled_regions(self, base: NeutralResult, a64: NumberedRun) -> NeutralResult | None:
        """For a difference that shows only as the program computes: its stages are not told apart in float64."""
        told, region = self._rerun_to_locate_miscompiled_stage_and_node(None, a64, self.changed.step, in_float64=False)
        return with_culprit(replace(base, region=region), told) if region.node else None

    def _rerun_to_locate_miscompiled_stage_and_node(
        self, told: Culprit | None, a64: NumberedRun, step: int, in_float64: bool = True
    ) -> tuple[Culprit, CompiledRegion]:  # fmt: skip
        """Which stage and which node of a region makes the difference; runs that fail say nothing."""

        def run_with(backend: str, float64: bool, labels: tuple[str, ...] = ()) -> NumberedRun | None:
            side = replace(self.b, plan=make_side("compile", backend)(self.b.plan))
            of = step if float64 else None
            name = backend.replace(" ", "-")
            try:
                return self._rerun_side(
                    side, float64=float64, last_step=step, operators_of=of, name=name, labels=labels
                )
            except RunFailed:
                return None

        def run_in_float64(backend: str) -> RunNumbers | None:
            made = run_with(backend, True) if in_float64 else None
            return None if made is None or made.run.is_failed else made.numbers

        def inspect(setting: str) -> RegionFinding | None:
            made = run_with(setting, False, (REGIONS,))
            return read_rank0_or_main_region_finding(made.run.folder) if made is not None else None

        sides = self.a.numbers, self.b.numbers, a64.numbers
        return explain_compiled_difference(told, sides, step, inspect, run_in_float64)

    def _judge_precision(self, base: NeutralResult, first_point_outside: DistancePoint | None) -> NeutralResult:
        """The program's own precision against float64: is what it loses no more than a disturbance does?"""
        judgement = RunJudgement("clean", self.changed.kind, self.changed.number, ())
        base = with_step_value_and_float64_errors(base, judgement, self.changed, self.a, self.b, self.b)
        if first_point_outside is None:
            return replace(base, detail=f"{self.switch.detail}; the error stays in the envelope of one ulp")
        point = next((p for p in base.points if p.disturbed and p.apart > LOSES_HALF * p.disturbed), None)
        if point is None:
            return replace(base, detail=f"{self.switch.detail}; the error leaves the envelope of one ulp")
        text = f"the error in step {point.step} is {point.apart / (point.disturbed or 1):.2g} times that of one ulp"
        base = replace(base, step=point.step, detail=f"{self.switch.detail}; {text}")
        operators = self._operators(self.a, point.step), self._operators(self.a, point.step, float64=True)
        told = find_losing_operator(*operators, [])
        return with_culprit(replace(base, outcome="wrong"), told) if told is not None else base
