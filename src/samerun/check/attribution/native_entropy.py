"""Random bytes that native code draws from the system: pinned and counted by a preloaded library."""

from __future__ import annotations

from pathlib import Path

from samerun.check.evidence.line_search import DifferingVariable, find_line_trace_or_main_trace
from samerun.check.evidence.situation import Suspect
from samerun.check.execution.runner import Run
from samerun.check.plan import RunPlan
from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.trace.run import select_events
from samerun.record.watching.line_follower import NATIVE_DRAW
from samerun.record.watching.native_entropy import (
    find_preload_library,
    make_preload_environment,
    write_pinned_random_device_file,
)


def write_stream_and_pin_native_draws(plan: RunPlan) -> RunPlan:
    """The plan (of a run that was made) with these bytes pinned; unchanged if the library is not available."""
    preload = find_preload_library()
    if preload is None:
        return plan
    stream = Path(plan.watch.folder).parent / f"native-entropy-{plan.watch.pin_variant}.bin"
    write_pinned_random_device_file(stream, plan.watch.pin_variant)
    return plan.with_environment(**make_preload_environment(preload, plan.environment, stream, plan.watch.pin_variant))


def with_native_draws_recorded_if_possible(plan: RunPlan) -> RunPlan:
    """The plan with draws of such bytes recorded per line, for runs whose lines are traced."""
    preload = find_preload_library()
    return (
        plan if preload is None else plan.with_environment(**make_preload_environment(preload, plan.environment, None))
    )


def find_last_native_draw_suspect(
    line_traced_run: Run, differing_variable: DifferingVariable | None, role: str
) -> Suspect | None:
    """The last line that drew before the first variable differs; None if none of the user's lines drew."""
    drew: tuple[str, int] | None = None
    trace = find_line_trace_or_main_trace(line_traced_run, role)
    for event in select_events(trace, (f.LINE,)) if trace is not None else ():
        if event.name == NATIVE_DRAW:
            drew = (event.file, event.line)
        elif differing_variable is not None and (event.file, event.line, event.name) == (
            differing_variable.file, differing_variable.line, differing_variable.variable,
        ):  # fmt: skip
            break
    if drew is None:
        return None
    why = [f"native code called at line {drew[1]} draws random bytes from the system, past Python"]
    if differing_variable is not None:
        why.append(differing_variable.evidence)
    return Suspect("os-entropy", *drew, tuple(why), 0, (pins.NATIVE_ENTROPY,))
