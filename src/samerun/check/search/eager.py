"""`check --eager`: the program with compilation off, to look inside what is one operator when it is compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from samerun.base.records import DIFFERENT, TROUBLE, CheckReport, Compilation
from samerun.check.execution.runner import Run, RunFailed
from samerun.check.plan import Plan
from samerun.check.search.places import relative_path
from samerun.check.search.rounds import again
from samerun.check.search.search import Search
from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.trace.run import select_events

Judge = Callable[[Search], CheckReport]
REGION = "compiled graph"
"""The name of the one event that stands for a compiled region."""


def eager(plan: Plan) -> Plan:
    """The same program with compilation off: `torch.compile` gives back what it is given.

    The variables are for code that asks dynamo itself; torch reads them when it is asked to compile.
    """
    return plan.with_pins(pins.EAGER).with_environment(TORCH_COMPILE_DISABLE="1", TORCHDYNAMO_DISABLE="1")


def both(search: Search, judge: Judge, judge_compiled: Judge) -> CheckReport:
    """With compilation off, and then as it is: the report of the first, and of the second where only that differs.

    Raises RunFailed when the program does not end well with compilation off.
    """
    one = judge(again(search, eager(search.plan), {}, brief=False))
    regions = compiled_at(search.runs[0])
    if not regions:
        note = "--eager: the program compiles nothing, so this is the program as it is."
        return replace(one, compilation=Compilation(one.verdict, None, (), "eager"), notes=(*one.notes, note))
    following = again(search, search.plan, {}, brief=False)
    following.prefix = "compiled-"
    places = ", ".join(f"{file}:{line}" for file, line in regions)
    try:
        two = judge_compiled(following)
    except RunFailed as error:
        note = f"Compiled (at {places}), the program fails: {error.message}"
        return told(search, one, Compilation(one.verdict, TROUBLE, regions, "eager"), note)
    only = two.verdict == DIFFERENT and one.verdict != DIFFERENT
    compilation = Compilation(one.verdict, two.verdict, regions, "compiled" if only else "eager")
    if only:
        note = f"The difference shows only compiled (at {places}): with compilation off, every value is the same."
        return told(search, two, compilation, note)
    if one.verdict != DIFFERENT:
        return told(search, one, compilation, f"The same with compilation off, and compiled (at {places}).")
    if two.verdict != DIFFERENT:
        note = f"The difference shows only with compilation off: compiled (at {places}), every value is the same."
        return told(search, one, compilation, note)
    note = f"What stands above was found with compilation off. Compiled (at {places}), the program differs too"
    first = two.first_difference
    note += f": first in {first.operator} at {first.file}:{first.line}." if first is not None and first.file else "."
    return told(search, one, compilation, note)


def told(search: Search, report: CheckReport, compilation: Compilation, note: str) -> CheckReport:
    runs = tuple(search.record(run) for run in search.runs)
    return replace(report, compilation=compilation, notes=(*report.notes, note), runs=runs)


def hint(report: CheckReport) -> CheckReport:
    """Where a compiled region is all that can be named: how to look inside."""
    first = report.first_difference
    if first is None or first.operator != REGION or report.compilation is not None:
        return report
    note = "The first difference lies in a compiled region, which counts as one operator: --eager looks inside."
    return replace(report, notes=(*report.notes, note))


def compiled_at(run: Run) -> tuple[tuple[str, int], ...]:
    """The lines at which the program asks for compilation, each once, in the order of the run."""
    found = [
        (relative_path(event.file), event.line)
        for _, trace in sorted(run.traces.traces.items())
        for event in select_events(trace, (f.FACT,))
        if event.name == "torch.compile"
    ]
    return tuple(dict.fromkeys(found))
