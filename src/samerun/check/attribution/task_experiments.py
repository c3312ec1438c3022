"""An order of threads or processes that nothing recorded: each hands its results to the others by itself.

A list that tasks append to, a dictionary of a manager, a counter in shared memory take what comes first. Where the
difference goes once they run one after the other, that order is why; the line is read off the source, and is that of a
suspect therefore.
"""

from __future__ import annotations

import ast
import os
from dataclasses import replace

from samerun.base.source_edits import last_identifier
from samerun.check.attribution.confirmation import confirm_by_experiment, limit_pins_to_line
from samerun.check.attribution.value_measurement import AttributionSearch
from samerun.check.evidence.line_search import DifferingVariable, parse_source_or_empty
from samerun.check.evidence.situation import Situation, Suspect
from samerun.check.evidence.task_writes import list_task_writes, select_task_writes_read_at_lines
from samerun.check.evidence.trace_signs import list_user_files, starts_processes_itself
from samerun.check.execution.runner import Run
from samerun.record import pins
from samerun.record.comparison.results import is_child_but_no_loader_worker
from samerun.record.trace import format as f
from samerun.record.trace.run import RunTraces, count_events, select_events

MOST_LINES = 3
MOST_GENERATORS = 2
"""So many lines that make generators are tested with tasks one after the other."""
SEED_PINS = frozenset((pins.PYTHON_GENERATOR, pins.NUMPY_GENERATOR, pins.TORCH_GENERATOR, pins.ENTROPY))
TIMERS = ("Timer", "setitimer", "alarm", "call_later")


def rerun_and_find_task_order_suspect(
    search: AttributionSearch, situation: Situation, variable: DifferingVariable | None, followed_traces: RunTraces
) -> Suspect | None:
    """The line at which threads or processes come in another order, or that sets a timer; None if that is not why.

    `variable`: the first one that differs where lines were followed. `followed_traces`: of a run that was followed.
    """
    plan, event = situation.a.plan, situation.difference.event
    if situation.variation != "rerun" or pins.SERIAL in plan.watch.pins:
        return None
    files = list_user_files(situation.a.traces) | list_user_files(followed_traces)
    timer = find_timer_suspect(files) if situation.difference.what in ("operator", "process") else None
    if timer is not None:
        return timer
    if not starts_threads_or_processes(situation.a.traces):
        return None
    shown = (variable.file, variable.line) if variable is not None else (event.file, event.line) if event else ("", 0)
    why = "the difference goes if threads and processes run one after the other"
    suspect = Suspect("thread-race", *shown, (why,), 0, (pins.SERIAL,))
    if not confirm_by_experiment(search, situation, plan, suspect, "pinned-serial", suspect.pins):
        return None
    lines = {shown[1]} | ({event.line} if event is not None and event.file == shown[0] else set())
    writes = select_task_writes_read_at_lines(list_task_writes(files), shown[0], sorted(lines))[:MOST_LINES]
    if not writes:
        return suspect
    evidence = [f"`{writes[0].container}` at line {writes[0].line} takes what comes first", why]
    evidence += [f"so does `{w.container}` at {os.path.basename(w.file)}:{w.line}" for w in writes[1:]]
    if variable is not None:
        evidence.append(variable.first_difference_sentence)
    return Suspect("thread-race", writes[0].file, writes[0].line, tuple(evidence), 0, suspect.pins)


def confirm_seed_with_tasks_in_turn(
    search: AttributionSearch, situation: Situation, refuted: list[Suspect]
) -> Suspect | None:
    """The line at which tasks make generators without a seed, by runs in which tasks come one after the other; or None.

    Which task gets which of the fixed seeds is chance otherwise, so that the difference stays though they are fixed.
    """
    made = [each for each in refuted if SEED_PINS.intersection(each.pins) and is_reached_by_tasks(situation, each)]
    if not made or pins.SERIAL in situation.a.plan.watch.pins:
        return None
    plan = situation.a.plan.with_added_pins(pins.SERIAL)
    a, b = (search.run_and_record(plan, f"in-turn-{number}", ("pin:in-turn",)) for number in (1, 2))
    difference = search.compare_runs(a, b)
    if difference is None:
        return None
    in_turn = replace(situation, a=a, b=b, difference=difference)
    for number, suspect in enumerate(made[:MOST_GENERATORS], 1):
        names = limit_pins_to_line(suspect)
        if confirm_by_experiment(search, in_turn, plan, suspect, f"in-turn-pinned-{number}", names):
            why = "tasks that run one after the other differ too, and do not if this line is held still"
            return replace(suspect, evidence=(*suspect.evidence, why), certain=True)
    return None


def mark_untested_if_not_serial(suspect: Suspect, pinned: Run | None) -> list[Suspect]:
    """The suspect, if what was to run first went on beside its starter in the pinned run; else nothing."""
    if pins.SERIAL not in suspect.pins or pinned is None:
        return []
    traces = pinned.traces.traces.values()
    left = next((e for t in traces for e in select_events(t, (f.FACT,)) if e.name == f.NOT_SERIAL), None)
    if left is None:
        return []
    why = f"no experiment holds it: what line {left.line} starts does not end before the program goes on"
    return [replace(suspect, evidence=(*suspect.evidence, why))]


def is_reached_by_tasks(situation: Situation, suspect: Suspect) -> bool:
    """Whether a thread, or a process that may take any task, made a generator at a suspect's line."""
    return any(
        (event.thread or is_child_but_no_loader_worker(role))
        and (event.file, event.line) == (suspect.file, suspect.line)
        for role, trace in situation.a.traces.traces.items()
        for event in select_events(trace, (f.CREATE, f.ENTROPY))
    )


def starts_threads_or_processes(traces: RunTraces) -> bool:
    """Whether anything runs beside the main thread, workers of a DataLoader left out."""
    return any("/" in role and "/loader" not in role for role in traces.traces) or any(
        count_events(trace, f.THREAD) or starts_processes_itself(trace) for trace in traces.traces.values()
    )


def find_timer_suspect(files: set[str]) -> Suspect | None:
    """The line that makes a timer: what it does comes after more steps or fewer."""
    for file in sorted(files):
        for node in ast.walk(parse_source_or_empty(file)):
            if isinstance(node, ast.Call) and last_identifier(node.func) in TIMERS:
                why = f"a timer is set at line {node.lineno}, and the runs go separate ways"
                return Suspect("time", file, node.lineno, (why,), 0)
    return None
