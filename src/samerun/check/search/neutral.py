"""`samerun check --neutral`: does a switch that should change nothing change nothing, only the rounding, or more?

For each switch both sides are run as the program is. Where any bit differs, both are run once more in float64, and side
A with its parameters disturbed by one ulp; `check.evidence.neutrality` judges what these runs wrote down, and
`check.evidence.value_correspondence` looks for the operator (decision 0054).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
from samerun.check.evidence import neutrality
from samerun.check.evidence.neutrality import DistancePoint, RunJudgement
from samerun.check.evidence.run_numbers import NumberRecord, RunNumbers, read_run_numbers
from samerun.check.evidence.value_correspondence import Culprit, explain_difference, find_first_new_value
from samerun.check.execution.runner import Run, RunFailed
from samerun.check.plan import Plan
from samerun.check.search.neutral_compilation import explain_compilation
from samerun.check.search.report_records import relative_path_if_below_working_directory
from samerun.check.search.run_status import REGIONS, require_comparable, require_success
from samerun.check.search.search import NO_OPERATOR, Search
from samerun.check.variations.neutral_switches import NeutralSwitch, SideLabel, inside_portable, with_switch
from samerun.record.comparison.rounding import LOSES_HALF, norm
from samerun.record.config import NumbersRequest
from samerun.record.region_finding import RegionFinding, read_region_finding
from samerun.record.trace import format as f
from samerun.record.trace.run import read_final_digests_by_model_class, read_steps, select_events

STEPS_IN_FLOAT64 = 100
"""So many steps from the first difference on are run in float64, and all up to one that leaves the envelope."""
COARSE_ULP = 2.0**16
"""An ulp of bfloat16 in ulp of float32: the disturbance where a side, or the program, computes in a coarser format."""
COMPARED_LEAVES = ("params", "grads", "buffers")
ALREADY_DIFFERS = (
    "the program differs on a plain rerun, so that nothing can be said: run samerun check without --neutral"
)
OUTCOMES: dict[str, VariationOutcome] = {"wrong": DIFFERENT, "unaligned": TROUBLE, "skipped": "skipped"}


class NotComparable(Exception):
    """The two sides cannot be aligned; the text says why."""


@dataclass(frozen=True)
class NumberedRun:
    """A run, the plan that was asked for (that of the run itself names its folder), and the numbers it wrote down."""

    plan: Plan
    run: Run
    numbers: RunNumbers

    @property
    def step_count(self) -> int:
        return self.run.steps


def check_neutrality(search: Search, switches: Sequence[NeutralSwitch]) -> CheckReport:
    """Raises RunFailed if side A of a switch does not end well."""
    check = NeutralCheck(search)
    results = [check.check_switch(switch) for switch in switches]
    judged = {result.outcome for result in results} - {"skipped"}
    verdict: Verdict = DIFFERENT if "wrong" in judged else TROUBLE if "unaligned" in judged or not judged else SAME
    outcomes = tuple(Outcome(r.name, OUTCOMES.get(r.outcome, SAME), r.detail) for r in results)
    report = replace(search.finish_and_make_report(SAME), verdict=verdict, variations=outcomes, neutral=tuple(results))
    return replace(report, notes=tuple(note for note in report.notes if note != NO_OPERATOR))


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
        a = self._run_side(switch, "a")
        require_success(a.run)
        try:
            b = self._run_side(switch, "b")
            require_ended_well(b, "side B")
            if switch.needs_use and not count_uses(switch.needs_use, a, b):
                return NeutralResult(switch.name, "skipped", f"{switch.detail}; {switch.lacking}")
            changed = find_first_differing_record(a, b)
            if changed is None:
                what = f"{a.step_count} optimizer steps" if a.step_count else f"{len(a.numbers.calls)} calls of models"
                return NeutralResult(switch.name, "same", f"{switch.detail}; the same bits in {what}")
            result = SwitchJudge(self, switch, a, b, changed).judge()
            if result.outcome == "rounding" and switch.tries_portable:
                result = replace(result, detail=f"{result.detail}; {self._try_portable(a, b)}")
            return result
        except NotComparable as error:
            return NeutralResult(switch.name, "unaligned", f"{switch.detail}; {error}")

    def _run_side(self, switch: NeutralSwitch, label: SideLabel) -> NumberedRun:
        base = self.search.plan.with_watch(numbers=NumbersRequest(), depth="steps")
        return self.run_once(switch.side(label)(base), f"{switch.name}-{label}")

    def _try_portable(self, a: NumberedRun, b: NumberedRun) -> str:
        """Whether `portable()` takes a difference away, by running both sides inside of it."""
        try:
            sides = [self.run_once(inside_portable(side.plan), f"{side.run.name}-portable") for side in (a, b)]
            for side in sides:
                require_ended_well(side, "the program")
            stays = find_first_differing_record(*sides)
        except NotComparable as error:
            return f"inside samerun.portable() {error}"
        return f"inside samerun.portable() both sides {'differ too' if stays else 'give the same bits'}"

    def run_once(self, plan: Plan, name: str, again: bool = False, labels: tuple[str, ...] = ()) -> NumberedRun:
        """The run of a plan, made now or before; `again`: made now in any case."""
        known = next((made for made in self._made if made.plan == plan), None)
        if known is not None and not again:
            return known
        run = self.search.run_and_record(plan, name.replace("=", "-").replace("/", "-")[:80], labels)
        require_comparable(run)
        made = NumberedRun(plan, run, read_run_numbers(run.folder, run.traces))
        self._made.append(made)
        return made


def require_ended_well(side: NumberedRun, what: str) -> None:
    """Raises NotComparable for a run that failed, with the last line it wrote."""
    if side.run.timed_out:
        raise NotComparable(f"{what} did not end in time")
    if side.run.exit_code:
        said = side.run.read_output_tail("stderr").strip().splitlines()
        raise NotComparable(f"{what} ended with exit code {side.run.exit_code}" + (f": {said[-1]}" if said else ""))


def count_uses(what: str, *sides: NumberedRun) -> int:
    """How often the runs used what a switch acts on."""
    if what == "compile":
        traces = [trace for side in sides for trace in side.run.traces.traces.values()]
        return sum(event.name == "torch.compile" for trace in traces for event in select_events(trace, (f.FACT,)))
    if what == "attention":
        summaries = [each for side in sides for step in side.numbers.operators.values() for each in step]
        return sum("scaled_dot_product" in summary.name for summary in summaries)
    return sum(side.numbers.uses.get(what, 0) for side in sides)


@dataclass(frozen=True)
class FirstChange:
    """The first record (step or call) in which any bit differs. `step`: the step that it belongs to, from 1."""

    kind: neutrality.RecordKind
    number: int
    step: int


def find_first_differing_record(a: NumberedRun, b: NumberedRun) -> FirstChange | None:
    """None if all bits are the same: after every step, in every call without gradients, and of the models at the end.

    Raises NotComparable if the runs made different numbers of steps.
    """
    one, other = (side.run.traces.traces.get("rank0") or side.run.traces.main for side in (a, b))
    if one is None or other is None:
        raise NotComparable("one side computed nothing that could be compared")
    if a.step_count != b.step_count:
        raise NotComparable(f"side A made {a.step_count} optimizer steps, and side B {b.step_count}")
    calls = compare_calls(a.numbers, b.numbers)
    for left, right in zip(read_steps(one), read_steps(other), strict=False):
        if set(left.names_of_differing_leaves(right)).intersection(COMPARED_LEAVES):
            if calls is not None and calls.step < left.number:
                return calls
            return FirstChange("step", left.number, left.number)
    if calls is not None:
        return calls
    ends = read_final_digests_by_model_class(one), read_final_digests_by_model_class(other)
    # Wrappers (compilation, data parallelism) are models of a class of their own, and of other names in their digests.
    if any(ends[0][kind] != ends[1][kind] for kind in ends[0].keys() & ends[1].keys()):
        raise NotComparable("the models differ at the end, but in no optimizer step and no result")
    return None


def compare_calls(a: RunNumbers, b: RunNumbers) -> FirstChange | None:
    """The first call of a model without gradients whose results differ; None where the calls do not pair up."""
    if set(a.calls) != set(b.calls):
        return None
    for number, record in sorted(a.calls.items()):
        other = b.calls[number]
        if any(not np.array_equal(record.values[k], other.values[k], equal_nan=True)
               for k in neutrality.common_keys((record, other))):  # fmt: skip
            return FirstChange("call", number, record.head["step"] + 1)
    return None


class SwitchJudge:
    """Judges two sides that differ."""

    def __init__(
        self, check: NeutralCheck, switch: NeutralSwitch, a: NumberedRun, b: NumberedRun, changed: FirstChange
    ) -> None:
        self.check, self.switch, self.a, self.b, self.changed = check, switch, a, b, changed

    def judge(self) -> NeutralResult:
        switch, a, b = self.switch, self.a, self.b
        require_same_names(a.numbers, b.numbers, self.changed)
        coarse = switch.coarser or a.numbers.uses.get("autocast", 0) > 0
        disturbed = self._run(a, disturbance=COARSE_ULP if coarse else 1.0, name="disturbed")
        apart = neutrality.measure_distances(a.numbers, b.numbers)
        envelope = neutrality.measure_distances(a.numbers, disturbed.numbers)
        outside = neutrality.find_first_outside(apart, envelope)
        base = NeutralResult(
            switch.name, "rounding", switch.detail, step=self.changed.step,
            points=neutrality.make_points(apart, envelope),
            growth="inside" if outside is None else "outside",
        )  # fmt: skip
        if b.plan.watch.numbers is not None and b.plan.watch.numbers.float64:
            return self._judge_precision(base, outside)
        limit = max(self.changed.step + STEPS_IN_FLOAT64, (outside.number if outside is not None else 0) + 2)
        try:
            a64, b64 = (self._run(side, float64=True, last_step=limit) for side in (a, b))
            require_ended_well(a64, "side A in float64")
            require_ended_well(b64, "side B in float64")
        except NotComparable as error:
            return self._judge_by_envelope(base, str(error))
        compiled = count_uses("compile", a, b) > 0
        judgement = neutrality.judge_runs(a.numbers, b.numbers, a64.numbers, b64.numbers, None, compiled)
        if judgement.verdict != "clean":
            # Before the disturbed run may clear anything: chance makes of every run another one, of that one too.
            self._require_same_on_rerun(a)
            p64 = self._run(a, float64=True, disturbance=1.0, last_step=limit, name="disturbed")
            judgement = neutrality.judge_runs(a.numbers, b.numbers, a64.numbers, b64.numbers, p64.numbers, compiled)
        base = self._with_errors(base, judgement, a64)
        if judgement.verdict == "wrong":
            return self._explain_wrong(base, judgement, a64, b64)
        if judgement.number == 0 or judgement.verdict == "unclear":
            raise NotComparable("the runs in float64 have no step in common with the program's")
        lossy = "" if switch.coarser else neutrality.describe_lossy_side(a.numbers, b.numbers, a64.numbers, b64.numbers)
        if lossy:
            base = replace(base, outcome="wrong", detail=f"{switch.detail}; {lossy}")
            return self._look_into_regions(base, a64) if switch.name == "compile" else base
        new = find_first_new_value(*(side.numbers.operators.get(self.changed.step, []) for side in (b, a)))
        if new is not None:
            file = relative_path_if_below_working_directory(new.location.file)
            base = replace(base, operator=new.name, file=file, line=new.location.line)
        how = "in float64 both sides come together, so that what differs is rounding"
        narrow = sorted({*a64.numbers.narrow, *b64.numbers.narrow})
        how += f"; {', '.join(narrow[:3])} stayed in single precision there" if narrow else ""
        return replace(base, detail=f"{switch.detail}; {how}")

    # --- runs ----------------------------------------------------------------------------------------
    def _run(
        self, side: NumberedRun, *, float64: bool = False, disturbance: float = 0.0, last_step: int | None = None,
        operators_of: int | None = None, name: str = "", labels: tuple[str, ...] = (),
    ) -> NumberedRun:  # fmt: skip
        """Run a side again: in float64, disturbed, up to a step, with the operators of a step summarised."""
        request, steps = side.plan.watch.numbers, side.plan.watch.max_steps
        assert request is not None
        step = operators_of or self.changed.step
        if last_step is not None and last_step < side.step_count:
            steps = last_step
        asked = replace(request, float64=float64, disturbance=disturbance, operator_steps=(step, step))
        parts = [side.run.name, "float64" if float64 else "", name, f"step{operators_of}" if operators_of else ""]
        plan = side.plan.with_watch(numbers=asked, max_steps=steps)
        return self.check.run_once(plan, "-".join(filter(None, parts)), labels=labels)

    def _require_same_on_rerun(self, side: NumberedRun) -> None:
        """Raises NotComparable if side A differs from itself: then another side says nothing."""
        again = self.check.run_once(side.plan, f"{side.run.name}-again", again=True)
        if find_first_differing_record(side, again) is not None:
            raise NotComparable(ALREADY_DIFFERS)

    # --- verdicts ------------------------------------------------------------------------------------
    def _with_errors(self, base: NeutralResult, judgement: RunJudgement, a64: NumberedRun) -> NeutralResult:
        """Add how far both sides are from side A in float64, at the record that tells the most."""
        wrong = judgement.verdict == "wrong"
        kind, number = (judgement.kind, judgement.number) if wrong else (self.changed.kind, self.changed.number)
        records = [select_record(n, kind, number) for n in (self.a.numbers, self.b.numbers, a64.numbers)]
        if any(record is None for record in records):
            return base
        a, b, exact = (record for record in records if record is not None)
        worst = judgement.worst.key if wrong and judgement.worst is not None else None
        keys = neutrality.common_keys((a, b, exact))
        kinds = ("gradient", "output", "parameter") if worst is None else (worst[0],)
        kind_of = next((each for each in kinds if any(key[0] == each for key in keys)), "")
        keys = [key for key in keys if key[0] == kind_of] if worst is None else [worst]
        ulp = math.hypot(*(neutrality.ulp_norm(exact, a, key) for key in keys))
        errors = [
            math.hypot(*(norm(r.values[key] - exact.values[key]) for key in keys)) / ulp if ulp else math.inf
            for r in (a, b)
        ]  # fmt: skip
        step = judgement.number if kind == "step" else a.head["step"] + 1
        base = replace(base, step=step if wrong else base.step, value=" ".join(worst) if worst else f"all {kind_of}s")
        if not all(map(math.isfinite, errors)):
            return base
        return replace(base, error_a_ulp=float(f"{errors[0]:.4g}"), error_b_ulp=float(f"{errors[1]:.4g}"))

    def _explain_wrong(
        self, base: NeutralResult, judgement: RunJudgement, a64: NumberedRun, b64: NumberedRun
    ) -> NeutralResult:
        records = [select_record(n, judgement.kind, judgement.number) for n in (self.a.numbers, self.b.numbers)]
        step = judgement.number if judgement.kind == "step" else (records[0].head["step"] + 1 if records[0] else 1)
        if step not in a64.numbers.operators or step not in b64.numbers.operators:
            a64, b64 = (self._run(side, float64=True, last_step=step, operators_of=step) for side in (self.a, self.b))
        told: Culprit | None = explain_difference(records[0], records[1], a64.numbers, b64.numbers, step)
        region: CompiledRegion | None = None
        if self.switch.name == "compile":
            told, region = self._explain_compilation(told, a64, step)
        worst = judgement.worst
        left = "it keeps its size in float64, so that it is no rounding"
        if worst is not None and math.isfinite(worst.left) and worst.scale > 0:
            share = worst.left / worst.scale
            left = f"{' '.join(filter(None, worst.key))} differs by {share:.2g} of its size, in float64 too"
        base = replace(base, outcome="wrong", detail=f"{self.switch.detail}; {left}", step=step, region=region)
        return base if told is None else with_culprit(base, told)

    def _look_into_regions(self, base: NeutralResult, a64: NumberedRun) -> NeutralResult:
        """For a difference that shows only as the program computes: its stages are not told apart in float64."""
        told, region = self._explain_compilation(None, a64, self.changed.step, in_float64=False)
        return with_culprit(replace(base, region=region), told) if region.node else base

    def _explain_compilation(
        self, told: Culprit | None, a64: NumberedRun, step: int, in_float64: bool = True
    ) -> tuple[Culprit, CompiledRegion]:  # fmt: skip
        """Which stage and which node of a region makes the difference; runs that fail say nothing."""

        def run_with(backend: str, float64: bool, labels: tuple[str, ...] = ()) -> NumberedRun | None:
            side = replace(self.b, plan=with_switch("compile", backend)(self.b.plan))
            name = backend.replace(" ", "-")
            steps = step if float64 else None
            try:
                return self._run(side, float64=float64, last_step=step, operators_of=steps, name=name, labels=labels)
            except RunFailed:
                return None

        def run_in_float64(backend: str) -> RunNumbers | None:
            made = run_with(backend, True) if in_float64 else None
            return None if made is None or made.run.is_failed else made.numbers

        def inspect(setting: str) -> RegionFinding | None:
            made = run_with(setting, False, (REGIONS,))
            return read_region_finding(made.run.folder) if made is not None else None

        sides = self.a.numbers, self.b.numbers, a64.numbers
        return explain_compilation(told, sides, step, inspect, run_in_float64)

    def _judge_by_envelope(self, base: NeutralResult, why: str) -> NeutralResult:
        """Without float64: a difference that stays where a disturbance of one ulp leads is rounding."""
        if base.growth == "outside":
            raise NotComparable(f"the difference grows out of the envelope, and float64 cannot tell what it is: {why}")
        return replace(base, detail=f"{self.switch.detail}; it stays in the envelope of one ulp ({why})")

    def _judge_precision(self, base: NeutralResult, outside: DistancePoint | None) -> NeutralResult:
        """The program's own precision against float64: is what it loses no more than a disturbance does?"""
        base = self._with_errors(base, RunJudgement("clean", self.changed.kind, self.changed.number, ()), self.b)
        if outside is None:
            return replace(base, detail=f"{self.switch.detail}; the error stays in the envelope of one ulp")
        point = next((p for p in base.points if p.disturbed and p.apart > LOSES_HALF * p.disturbed), None)
        if point is None:
            return replace(base, detail=f"{self.switch.detail}; the error leaves the envelope of one ulp")
        text = f"the error in step {point.step} is {point.apart / (point.disturbed or 1):.2g} times that of one ulp"
        return replace(base, outcome="wrong", step=point.step, detail=f"{self.switch.detail}; {text}")


def with_culprit(result: NeutralResult, told: Culprit) -> NeutralResult:
    file = relative_path_if_below_working_directory(told.file)
    detail = "; ".join(filter(None, (result.detail, told.why)))
    return replace(result, detail=detail, operator=told.operator, file=file, line=told.line)


def select_record(numbers: RunNumbers, kind: str, number: int) -> NumberRecord | None:
    return (numbers.steps if kind == "step" else numbers.calls).get(number)


def require_same_names(a: RunNumbers, b: RunNumbers, changed: FirstChange) -> None:
    """Raises NotComparable if the two sides train parameters of other names or sizes."""
    one, other = (select_record(numbers, changed.kind, changed.number) for numbers in (a, b))
    if one is None or other is None:
        raise NotComparable("the step that differs first was written down on one side only")
    for kind in ("parameter", "output"):
        names = [{key[1]: len(v) for key, v in record.values.items() if key[0] == kind} for record in (one, other)]
        if names[0] != names[1]:
            odd = sorted(name for name in {*names[0], *names[1]} if names[0].get(name) != names[1].get(name))
            raise NotComparable(f"{kind} {odd[0]} is not the same on both sides, or is there on one only")
