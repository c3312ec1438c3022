"""`check --eager`: the program with compilation off, to look inside what is one operator when it is compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from samerun.base.records import DIFFERENT, TROUBLE, CheckReport, Compilation
from samerun.check.execution.runner import Run, RunFailed
from samerun.check.plan import Plan
from samerun.check.search.findings import restart_search
from samerun.check.search.report_records import relative_path_if_below_working_directory
from samerun.check.search.search import Search
from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.trace.run import select_events

ReportMaker = Callable[[Search], CheckReport]
COMPILED_REGION = "compiled graph"
"""The name of the one event that stands for a compiled region."""


def disable_compilation(plan: Plan) -> Plan:
    """The same program with compilation off: `torch.compile` returns its argument.

    The variables are for code that calls dynamo itself; torch reads them when it is asked to compile.
    """
    return plan.with_pins(pins.EAGER).with_environment(TORCH_COMPILE_DISABLE="1", TORCHDYNAMO_DISABLE="1")


def check_eager_and_compiled(search: Search, check_eager: ReportMaker, check_compiled: ReportMaker) -> CheckReport:
    """Check with compilation off, then as is; returns the first report, or the second if only that one differs.

    Raises RunFailed when the program does not end well with compilation off.
    """
    eager_report = check_eager(restart_search(search, disable_compilation(search.plan), {}, skip_values=False))
    call_sites = list_compile_call_sites(search.runs[0])
    if not call_sites:
        note = "--eager: the program compiles nothing, so this is the program as it is."
        compilation = Compilation(eager_report.verdict, None, (), "eager")
        return replace(eager_report, compilation=compilation, notes=(*eager_report.notes, note))
    compiled_search = restart_search(search, search.plan, {}, skip_values=False)
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
    runs = tuple(search.to_run_record(run) for run in search.runs)
    return replace(report, compilation=compilation, notes=(*report.notes, note), runs=runs)


def add_eager_hint(report: CheckReport) -> CheckReport:
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
