"""Random bytes that native code draws from the system: pinned and counted by a preloaded library."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from samerun.check.evidence.line_search import (
    DifferingVariable,
    find_line_trace_or_main_trace,
    parse_source_or_empty,
    read_statement_source_or_empty,
)
from samerun.check.evidence.situation import Suspect
from samerun.check.execution.runner import Run
from samerun.check.plan import RunPlan
from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.trace.run import select_events
from samerun.record.watching.line_follower import NATIVE_DRAW
from samerun.record.watching.native_entropy import (
    create_zeroed_counter_file,
    find_preload_library,
    make_preload_environment,
    write_pinned_random_device_file,
)

RANDOM_QUERY = re.compile(r"\brandom(blob)?\s*\(", re.IGNORECASE)


def write_stream_and_pin_native_draws_if_possible(plan: RunPlan) -> RunPlan:
    """The plan (of a run that was made) with these bytes pinned; unchanged if the library is not available."""
    preload = find_preload_library()
    if preload is None:
        return plan
    stream = Path(plan.watch.folder).parent / f"native-entropy-{plan.watch.pin_variant}.bin"
    write_pinned_random_device_file(stream, plan.watch.pin_variant)
    return plan.with_environment(**make_preload_environment(preload, plan.environment, stream, plan.watch.pin_variant))


def with_native_draws_recorded_if_possible(plan: RunPlan) -> RunPlan:
    """The plan with draws of such bytes recorded per line, for runs whose lines are traced.

    A program that the user's line starts and waits for draws on that line, too.
    """
    preload = find_preload_library()
    if preload is None:
        return plan
    counter = Path(plan.watch.folder).parent / "native-entropy-count.bin"
    create_zeroed_counter_file(counter)
    return plan.with_environment(**make_preload_environment(preload, plan.environment, None, counter_file=counter))


def find_last_native_draw_suspect(
    line_traced_run: Run, differing_variable: DifferingVariable | None, role: str
) -> Suspect | None:
    """The last line that drew before the first variable differs; None if none of the user's lines drew.

    Importing a library often draws, for hash seeds and names that reach nothing: such a line is never named.
    """
    drew: tuple[str, int] | None = None
    trace = find_line_trace_or_main_trace(line_traced_run, role)
    for event in select_events(trace, (f.LINE,)) if trace is not None else ():
        if event.name == NATIVE_DRAW:
            if not read_statement_source_or_empty(event.file, event.line).lstrip().startswith(("import ", "from ")):
                drew = (event.file, event.line)
        elif differing_variable is not None and (event.file, event.line, event.name) == (
            differing_variable.file, differing_variable.line, differing_variable.variable,
        ):  # fmt: skip
            break
    if drew is None:
        return None
    why = [f"native code or a program called at line {drew[1]} draws random bytes from the system, past Python"]
    if differing_variable is not None:
        why.append(differing_variable.first_difference_sentence)
        query = find_sql_random_literal_line_or_zero(differing_variable.file, differing_variable.line)
        if query:  # SQLite seeds its generator at the first statement of the process, whichever that is
            why.append(f"random() in the query at line {query} takes its numbers from them")
            drew = differing_variable.file, query
    return Suspect("os-entropy", *drew, tuple(why), 0, (pins.NATIVE_ENTROPY,))


def find_sql_random_literal_line_or_zero(file: str, line: int) -> int:
    """The line, in the innermost function around a line, of a text with SQL's random(); 0 if SQLite is not used."""
    tree = parse_source_or_empty(file)
    if not any(
        isinstance(node, ast.Import) and any(n.name == "sqlite3" for n in node.names) for node in ast.walk(tree)
    ):
        return 0
    around = [
        node for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef))
        and (isinstance(node, ast.Module) or node.lineno <= line <= (node.end_lineno or 0))
    ]  # fmt: skip
    for node in ast.walk(around[-1]) if around else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and RANDOM_QUERY.search(node.value):
            return node.lineno
    return 0
