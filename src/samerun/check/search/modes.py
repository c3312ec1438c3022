"""Other ways of a check: `--double`, one run with every operator executed twice; `--eager`, compilation off first."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from samerun.base.records import (
    DIFFERENT,
    SAME,
    TROUBLE,
    CheckReport,
    Compilation,
    FirstDifference,
    Fix,
    FoundCause,
    Hazard,
    Outcome,
    Verdict,
)
from samerun.base.user_code import format_source_location as source_location
from samerun.check.attribution import attribution
from samerun.check.evidence.situation import Suspect
from samerun.check.evidence.value_differences import ElementDifference, compare_first_differing_saved_tensors
from samerun.check.execution.runner import Run, RunFailed
from samerun.check.plan import RunPlan, Variation
from samerun.check.search.findings import IgnoreRule, make_fresh_search_with_plan, matches_any_rule, unmatched_rules
from samerun.check.search.report_records import make_run_record, relative_path_if_below_working_directory
from samerun.check.search.run_status import require_success, require_trace_to_compare
from samerun.check.search.search import Search
from samerun.check.variations.memory import vary_or_zero_fresh_memory
from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace
from samerun.record.trace.run import Event, select_events
from samerun.record.watching.double_execution import double_findings

# --- `--double`: one run in which every operator is executed twice, and what differs between the two
KINDS = {
    double_findings.KERNEL: "nondeterministic-operator",
    double_findings.UNWRITTEN: "uninitialised-memory",
    double_findings.INSIDE: "uninitialised-memory",
    double_findings.RACE: "thread-race",
}
MOST_NOTES = 5
OTHER_OPERATOR = (
    "use another operator there, or another driver or backend of it, and report it to PyTorch:"
    " it reads memory of its own that it has not written"
)


def with_every_operator_repeated(plan: RunPlan, executions: int) -> RunPlan:
    """The plan with every operator executed `executions` times; fresh memory holds zeros in the first execution."""
    return vary_or_zero_fresh_memory(plan, False).with_watch(executions=executions, depth="ops")


@dataclass
class OperatorHazard:
    """One line of the program that makes results vary, and the event that showed it."""

    kind: str
    file: str
    line: int
    first: Event
    step: int
    what: str
    elements: ElementDifference | None
    certain: bool
    evidence: list[str] = field(default_factory=list)

    def to_suspect(self) -> Suspect:
        return Suspect(self.kind, self.file, self.line, tuple(self.evidence), 0.0, certain=self.certain)

    def to_cause(self) -> FoundCause:
        return FoundCause(
            self.kind,
            relative_path_if_below_working_directory(self.file),
            self.line,
            tuple(self.evidence),
            self.certain,
        )

    def make_fix(self) -> Fix:
        usual = attribution.make_attributed_cause(self.to_suspect(), None).fix
        return replace(usual, summary=OTHER_OPERATOR) if self.what == double_findings.INSIDE else usual


def make_double_execution_variation(executions: int) -> Variation:
    """The variation as which the report lists this run."""
    times = "twice" if executions == 2 else f"{executions} times"
    return Variation("double", "double", f"every operator executed {times} in one run", lambda plan, vary: plan, "")


def check_by_repeating_every_operator(
    search: Search, executions: int, ignore_rules: Sequence[IgnoreRule] = ()
) -> CheckReport:
    """Raises RunFailed if the program does not end well. `ignore_rules`: findings that do not count."""
    run = search.run_and_record(with_every_operator_repeated(search.plan, executions), "double")
    require_trace_to_compare(run)
    hazards, notes = read_double_execution_hazards_and_notes(run)
    try:
        require_success(run)
    except RunFailed as error:
        if hazards:
            seen = ", ".join(f"{hazard.kind} at {source_location(hazard.file, hazard.line)}" for hazard in hazards)
            error.hint = f"{error.hint} Found before it ended: {seen}."
        raise
    left_out = [hazard for hazard in hazards if matches_any_rule(ignore_rules, hazard.to_cause())]
    hazards = [hazard for hazard in hazards if hazard not in left_out]
    notes += [f"Ignored: {hazard.kind} at {source_location(hazard.file, hazard.line)}." for hazard in left_out]
    without = unmatched_rules(ignore_rules, [hazard.to_cause() for hazard in left_out])
    notes += [f"--ignore {rule.text}: nothing of the kind was found." for rule in without]
    counted = tuple(to_hazard_record(hazard, False) for hazard in hazards) + tuple(
        to_hazard_record(hazard, True) for hazard in left_out
    )
    verdict: Verdict = DIFFERENT if hazards else SAME
    asked = make_double_execution_variation(executions)
    search.outcomes[asked.name] = Outcome(asked.name, verdict, asked.detail)
    search.notes += notes
    if not hazards:
        return replace(search.record_skipped_and_make_report(SAME), causes=counted)
    first_hazard, rest = hazards[0], [hazard.to_suspect() for hazard in hazards[1:]]
    answer = replace(
        attribution.make_attributed_cause(first_hazard.to_suspect(), first_hazard.elements, rest),
        fix=first_hazard.make_fix(),
    )
    report = search.record_skipped_and_make_report(DIFFERENT, found=answer)
    certain_places = {
        (hazard.kind, relative_path_if_below_working_directory(hazard.file), hazard.line)
        for hazard in hazards
        if hazard.certain
    }
    others = tuple(replace(o, certain=(o.kind, o.file, o.line) in certain_places) for o in report.others)
    return replace(report, first_difference=to_first_difference_record(first_hazard), others=others, causes=counted)


def to_hazard_record(hazard: OperatorHazard, ignored: bool) -> Hazard:
    """The hazard as a record of the report."""
    cause = hazard.to_cause()
    return Hazard(
        cause.kind, cause.file, cause.line, cause.evidence, cause.certain, "double", hazard.make_fix(), ignored=ignored
    )


def to_first_difference_record(hazard: OperatorHazard) -> FirstDifference:
    """The first difference between two executions."""
    event, elements = hazard.first, hazard.elements
    return FirstDifference(
        "double", event.index, hazard.step, event.phase, event.module, event.name,
        relative_path_if_below_working_directory(event.file), event.line, "same" if hazard.what in (
            double_findings.KERNEL, double_findings.INSIDE
        ) else "different",
        elements.different if elements else None, elements.total if elements else None,
        elements.max_abs if elements else None, elements.max_ulp if elements else None,
    )  # fmt: skip


# --- from the trace --------------------------------------------------------------------------------------
def read_double_execution_hazards_and_notes(run: Run) -> tuple[list[OperatorHazard], list[str]]:
    """The hazards of a run in the order in which they were found, and notes about lesser findings."""
    hazards: dict[tuple[Any, ...], OperatorHazard] = {}
    changed: dict[tuple[Any, ...], str] = {}
    raced: set[tuple[Any, ...]] = set()
    not_executed: dict[str, int] = {}
    roles = sorted(run.traces.traces, key=lambda role: (role != "main", role))
    for trace in (run.traces.traces[role] for role in roles):
        step = 1
        for event in select_events(trace, (f.DOUBLE, f.STEP)):
            if event.kind == f.STEP:
                step += 1
                continue
            finding = json.loads(event.text)
            what = finding["what"]
            if what == double_findings.UNSEEN:
                not_executed[finding["how"]] = not_executed.get(finding["how"], 0) + finding["times"]
            elif finding["times"] > 1:
                continue
            elif what == double_findings.OUTSIDE:
                at = (*make_allocation_site_key(trace, finding), event.file, event.line)
                changed.setdefault(at, describe_memory_change_outside_torch(trace, event, finding))
            else:
                if what == double_findings.RACE:
                    raced.add(make_allocation_site_key(trace, finding))
                add_finding_to_hazards(hazards, trace, event, finding, step)
    notes = [note for memory_and_line, note in changed.items() if memory_and_line[:3] not in raced]
    if len(notes) > MOST_NOTES:
        notes = [*notes[:MOST_NOTES], f"{len(notes) - MOST_NOTES} more places read memory changed outside torch."]
    if not_executed:
        parts = ", ".join(f"{how} ({times} calls)" for how, times in sorted(not_executed.items()))
        notes.append(f"Not executed twice, so not looked into: {parts}.")
    return list(hazards.values()), notes


def make_allocation_site_key(trace: Trace, finding: dict[str, Any]) -> tuple[Any, ...]:
    """A key for the memory that a finding is about."""
    return trace.role, finding.get("made", 0), finding.get("how", "")


def add_finding_to_hazards(
    hazards: dict[tuple[Any, ...], OperatorHazard], trace: Trace, event: Event, finding: dict[str, Any], step: int
) -> None:
    """Add a finding: as a new hazard, or as more evidence for a known one."""
    what = finding["what"]
    elements = None
    if finding.get("kept"):
        pair = [trace.path.with_name(f"{finding['kept']}.{end}") for end in ("a", "b")]
        elements = compare_first_differing_saved_tensors(pair[0], pair[1], event.line)
        if elements is None and what == double_findings.KERNEL and do_both_files_exist(pair):
            return
    allocated_at, written_at = (trace.location_or_empty(finding.get(name, 0))[:2] for name in ("made", "written"))
    file, line = event.file, event.line
    if what in (double_findings.UNWRITTEN, double_findings.INSIDE) and allocated_at[1]:
        file, line = allocated_at
    elif what == double_findings.RACE and (written_at[1] or allocated_at[1]):
        file, line = written_at if written_at[1] else allocated_at
    kind = KINDS[what]
    certain = not finding.get("unsure", False)
    hazard = hazards.setdefault(
        (kind, file, line), OperatorHazard(kind, file, line, event, step, what, elements, certain)
    )
    hazard.certain = hazard.certain or certain
    hazard.evidence += [
        text
        for text in list_double_execution_evidence(event, finding, allocated_at, written_at)
        if text not in hazard.evidence
    ]


def do_both_files_exist(paths: Sequence[Path]) -> bool:
    """Whether both results were saved. If so and no element differs, their bits differ inside NaNs only."""
    return all(path.exists() for path in paths)


def list_double_execution_evidence(
    event: Event, finding: dict[str, Any], allocated_at: tuple[str, int], written_at: tuple[str, int]
) -> list[str]:
    """The evidence of a finding in words."""
    what, reader = finding["what"], f"{event.name} at {source_location(event.file, event.line)}"
    if what == double_findings.KERNEL:
        rate = f"{finding['different']} of {finding['runs'] - 1} further executions gave other bits"
        return [f"{reader} was executed again with the same inputs: {rate}"]
    if what == double_findings.INSIDE:
        maker = f"{finding['how']} at {source_location(*allocated_at)}" if allocated_at[1] else reader
        texts = [f"the result of {maker} depends on what memory held that the operator allocated for itself"]
        return [*texts, f"{reader} computes with it"] if allocated_at[1] else texts
    if what == double_findings.UNWRITTEN:
        origin = f"memory made by {finding['how']}" + (
            f" at {source_location(*allocated_at)}" if allocated_at[1] else ""
        )
        return [f"{origin} is read before all of it was written", f"the result of {reader} depends on what it held"]
    texts = [f"an operand of {reader} was changed by another thread while the operator was at work"]
    if finding.get("unsure"):
        texts = [f"an operand of {reader} was changed by another thread since it was last read",
                "this thread did not wait for another one in between"]  # fmt: skip
    if finding.get("how") == "operator":
        texts.append(
            f"an operator at {source_location(*written_at)} writes to the same tensor" if written_at[1] else ""
        )
        texts.append(f"that thread is {finding['thread']}" if finding.get("thread") else "")
    else:
        texts.append(
            "it was not an operator that wrote: " + describe_how_memory_became_shared(finding, allocated_at, written_at)
        )
    return [text for text in texts if text]


def describe_how_memory_became_shared(
    finding: dict[str, Any], allocated_at: tuple[str, int], written_at: tuple[str, int]
) -> str:
    """How other threads got access to the memory, as far as that was recorded."""
    if finding.get("how"):
        return f"the memory was shared by {finding['how']} at {source_location(*written_at)}"
    if allocated_at[1]:
        return f"the memory was made at {source_location(*allocated_at)}, and how others got its address was not seen"
    return "where the memory comes from was not seen"


def describe_memory_change_outside_torch(trace: Trace, event: Event, finding: dict[str, Any]) -> str:
    """A note about memory that the program changes outside torch, between operators."""
    allocated_at, written_at = (trace.location_or_empty(finding.get(name, 0))[:2] for name in ("made", "written"))
    return (
        f"{source_location(event.file, event.line)} ({event.name}) reads memory that was changed since torch last used"
        " it, and"
        f" not by torch: {describe_how_memory_became_shared(finding, allocated_at, written_at)}. That is in"
        " order where your program fills it between batches;"
        " no other thread was seen to write while an operator read."
    )


# --- `--eager`: the program with compilation off, to look inside what is one operator when it is compiled
ReportMaker = Callable[[Search], CheckReport]
COMPILED_REGION = "compiled graph"
"""The name of the one event that stands for a compiled region."""


def with_compilation_disabled(plan: RunPlan) -> RunPlan:
    """The same program with compilation off: `torch.compile` returns its argument.

    The variables are for code that calls dynamo itself; torch reads them when it is asked to compile.
    """
    return plan.with_added_pins(pins.EAGER).with_environment(TORCH_COMPILE_DISABLE="1", TORCHDYNAMO_DISABLE="1")


def check_eager_and_compiled(search: Search, check_eager: ReportMaker, check_compiled: ReportMaker) -> CheckReport:
    """Check with compilation off, then as is; returns the first report, or the second if only that one differs.

    Raises RunFailed when the program does not end well with compilation off.
    """
    eager_report = check_eager(
        make_fresh_search_with_plan(search, with_compilation_disabled(search.plan), {}, skip_values=False)
    )
    call_sites = list_compile_call_sites(search.runs[0])
    if not call_sites:
        note = "--eager: the program compiles nothing, so this is the program as it is."
        compilation = Compilation(eager_report.verdict, None, (), "eager")
        return replace(eager_report, compilation=compilation, notes=(*eager_report.notes, note))
    compiled_search = make_fresh_search_with_plan(search, search.plan, {}, skip_values=False)
    compiled_search.prefix = "compiled-"
    shown_sites = ", ".join(f"{file}:{line}" for file, line in call_sites)
    try:
        compiled_report = check_compiled(compiled_search)
    except RunFailed as error:
        note = f"Compiled (at {shown_sites}), the program fails: {error.message}"
        return add_compilation_to_report(
            search, eager_report, Compilation(eager_report.verdict, TROUBLE, call_sites, "eager"), note
        )
    only = compiled_report.verdict == DIFFERENT and eager_report.verdict != DIFFERENT
    compilation = Compilation(
        eager_report.verdict, compiled_report.verdict, call_sites, "compiled" if only else "eager"
    )
    if only:
        note = f"The difference shows only compiled (at {shown_sites}): with compilation off, every value is the same."
        return add_compilation_to_report(search, compiled_report, compilation, note)
    if eager_report.verdict != DIFFERENT:
        return add_compilation_to_report(
            search, eager_report, compilation, f"The same with compilation off, and compiled (at {shown_sites})."
        )
    if compiled_report.verdict != DIFFERENT:
        note = f"The difference shows only with compilation off: compiled (at {shown_sites}), every value is the same."
        return add_compilation_to_report(search, eager_report, compilation, note)
    note = f"What stands above was found with compilation off. Compiled (at {shown_sites}), the program differs too"
    first = compiled_report.first_difference
    note += f": first in {first.operator} at {first.file}:{first.line}." if first is not None and first.file else "."
    return add_compilation_to_report(search, eager_report, compilation, note)


def add_compilation_to_report(search: Search, report: CheckReport, compilation: Compilation, note: str) -> CheckReport:
    runs = tuple(make_run_record(run, search.saved) for run in search.runs)
    return replace(report, compilation=compilation, notes=(*report.notes, note), runs=runs)


def add_eager_hint_if_in_compiled_region(report: CheckReport) -> CheckReport:
    """Suggest --eager in the report if the first difference lies in a compiled region."""
    first = report.first_difference
    if first is None or first.operator != COMPILED_REGION or report.compilation is not None:
        return report
    note = "The first difference lies in a compiled region, which counts as one operator: --eager looks inside."
    return replace(report, notes=(*report.notes, note))


def list_compile_call_sites(run: Run) -> tuple[tuple[str, int], ...]:
    """The lines at which the program asks for compilation, each once, in the order of the run."""
    found = [
        (relative_path_if_below_working_directory(event.file), event.line)
        for _, trace in sorted(run.traces.traces.items())
        for event in select_events(trace, (f.FACT,))
        if event.name == "torch.compile"
    ]
    return tuple(dict.fromkeys(found))
