"""Signs in traces: that a program may be flaky, and what a variation changed in a run."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import zip_longest
from pathlib import Path

import numpy as np

from samerun.check.evidence.clock_uses import clock_may_affect_results
from samerun.check.evidence.line_search import first_line_using_id_or_zero
from samerun.check.evidence.situation import Situation, Suspect
from samerun.check.evidence.task_writes import list_task_writes
from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace
from samerun.record.trace.run import Event, RunTraces, count_events, select_events
from samerun.record.watching.collectives import IN_FLIGHT_READ, UNAWAITED_MESSAGE
from samerun.record.watching.watched_operator import may_add_in_order_of_arrival

# --- in one run: whether the program may differ in some runs only
QUEUES = ("queue.get", "multiprocessing.Queue.get")


def any_user_file_calls_id(traces: RunTraces) -> bool:
    """Whether the user's source calls `id` or passes it on: the order of addresses seldom changes."""
    return any(first_line_using_id_or_zero(file) > 0 for file in list_user_files(traces))


def list_user_files(traces: RunTraces) -> set[str]:
    """The user's files that ran."""
    return {place[0] for trace in traces.traces.values() for place in trace.locations if place[0]}


def has_no_sign_of_race(traces: RunTraces, treat_id_as_sign: bool = True) -> bool:
    """Whether there is no sign of a race: anything else that differs by itself differs in the second run already.

    Signs are threads that draw from one generator, write to one tensor or, by the source, to one object, results taken
    as they come, clocks that may decide something, processes other than a DataLoader's, operators whose order of
    summation may follow the threads, a DataLoader with several workers and `in_order=False`, reads before a collective
    was waited for, and (`treat_id_as_sign`) `id`. A process that computes nothing is one too: it may write a file. One
    thread that prepares batches or writes a log is not a sign, nor is the duration of a step that is only printed.
    """
    if treat_id_as_sign and any_user_file_calls_id(traces):
        return False
    clocks: dict[str, set[int]] = {file: set() for file in list_user_files(traces)}
    has_second_worker = any(role.endswith(".worker1") for role in traces.traces)
    for role, trace in traces.traces.items():
        if ("/" in role and "/loader" not in role) or starts_processes_itself(trace):
            return False
        if any(map(may_add_in_order_of_arrival, trace.strings)):
            return False
        if threads_share_generator_or_tensor(trace) or {IN_FLIGHT_READ, UNAWAITED_MESSAGE} & {*trace.strings}:
            return False
        if has_second_worker and any(e.text == "made" and not e.inputs for e in select_events(trace, (f.LOADER,))):
            return False
        for event in select_events(trace, (f.COMPLETION, f.CLOCK)):
            if event.direct and event.kind == f.CLOCK:
                clocks[event.file].add(event.line)
            elif event.direct and not is_queue_get_with_one_started_thread(trace, event):
                return False
    if threads_may_write_to_one_object(traces):
        return False
    return not any(clocks.values()) or not clock_may_affect_results(clocks)


def threads_may_write_to_one_object(traces: RunTraces) -> bool:
    """Whether several threads ran, and the source (if any is known) hands them what writes to what others see."""
    started = max((count_events(trace, f.THREAD) for trace in traces.traces.values()), default=0)
    files = list_user_files(traces)
    return started > 1 and (not files or bool(list_task_writes(files)))


def starts_processes_itself(trace: Trace) -> bool:
    """Whether the process started others, programs or a pool: they may compute nothing, and so leave no trace."""
    return not {*f.STARTS}.isdisjoint(trace.strings)


def is_queue_get_with_one_started_thread(trace: Trace, event: Event) -> bool:
    """Whether an item comes from a queue that a single thread fills, and so in a fixed order."""
    return event.name in QUEUES and len(select_events(trace, (f.THREAD,))) == 1


def threads_share_generator_or_tensor(trace: Trace) -> bool:
    """Whether several threads draw from one generator, or one writes into what another has written."""
    writes = np.array([n for n, text in enumerate(trace.strings) if is_inplace_operator_name(text)], dtype=np.uint32)
    drawing: dict[int, set[int]] = defaultdict(set)
    for chunk in trace.iter_event_chunks():
        foreign = (chunk["kind"] == f.OPERATOR) & ((chunk["flags"] & f.FOREIGN_WRITE) != 0)
        if foreign.any() and bool(np.isin(chunk["name"][foreign], writes).any()):
            return True
        draws = chunk[chunk["kind"] == f.DRAW]
        for name, thread in {(int(n), int(t)) for n, t in zip(draws["name"], draws["thread"], strict=True)}:
            drawing[name].add(thread)
    return any(len(threads) > 1 for threads in drawing.values())


def is_inplace_operator_name(operator_name: str) -> bool:
    """Whether an operator writes in place, by its name."""
    return operator_name.split(".")[1:2] != [] and operator_name.split(".")[1].endswith("_")


# --- in two runs under a variation: other branches, batch sizes, compiled draws, draws of workers
GLOBAL_GENERATORS = ("torch", "numpy", "python")
"""Generators that a DataLoader seeds in each worker, with the worker's number."""


def find_last_bits_branch_suspect(situation: Situation) -> Suspect | None:
    """The line where values that differ in their last bits decide that the runs go separate ways.

    None if both runs compute the same operators to the end.
    """
    first = situation.difference.a
    one, other = (run.traces.traces.get(situation.difference.role) for run in (situation.a, situation.b))
    if first is None or one is None or other is None or situation.difference.what not in ("outputs", "inputs"):
        return None
    last = first
    pair = (select_main_thread_events(select_events(trace, (f.OPERATOR,))) for trace in (one, other))
    for x, y in zip_longest(*pair):
        if x is not None and y is not None and (x.name, x.file, x.line) == (y.name, y.file, y.line):
            last = x if x.index >= first.index else last
            continue
        if last is first:
            return None
        one_way, other_way = (f"line {e.line}" if e is not None else "the end" for e in (x, y))
        short = last.name.removeprefix("aten.").split(".")[0]
        why = (
            f"{first.name} at line {first.line} gives other last bits",
            f"{short} at line {last.line} then decides: one run goes on at {one_way}, the other at {other_way}",
        )
        return Suspect("control-flow", last.file, last.line, why, 0.0, certain=True)
    return None


def select_main_thread_events(events: list[Event]) -> list[Event]:
    """The events of the main thread: the order of the others is not fixed."""
    return [e for e in events if e.thread == 0]


def find_differing_row_count_suspect(situation: Situation, saved_tensors: tuple[Path, Path] | None) -> Suspect | None:
    """A suspect if the first operator that differs computes another number of rows."""
    event = situation.difference.a
    if saved_tensors is None or event is None or event.kind != f.OPERATOR:
        return None
    shapes = [read_first_saved_shape(path) for path in saved_tensors]
    one, other = shapes
    if not one or not other or len(one) != len(other) or one[0] == other[0] or one[1:] != other[1:]:
        return None
    short = event.name.removeprefix("aten.").split(".")[0]
    why = f"{short} at line {event.line} computes {one[0]} rows at once in one run, {other[0]} in the other"
    return Suspect("batch-size", event.file, event.line, (why,), 0.0, certain=True)


def find_compiled_draws_suspect(situation: Situation) -> Suspect | None:
    """A suspect if only one run compiles something and torch's generator then goes through other states."""
    traces = [run.traces.traces.get(situation.difference.role) for run in (situation.a, situation.b)]
    if None in traces:
        return None
    events = [select_events(trace, (f.FACT, f.DRAW)) for trace in traces if trace is not None]
    places, draws = zip(*(list_compile_sites_and_draw_states(found) for found in events), strict=True)
    only = [place for place in (*places[0], *places[1]) if (place in places[0]) != (place in places[1])]
    if not only or draws[0] == draws[1]:
        return None
    file, line = only[0]
    why = (
        f"only one run compiles what is named at line {line}",
        "the compiled code draws another number of times, or in another order",
    )
    return Suspect("extra-draw", file, line, why, 0.0, (pins.EAGER,))


def list_compile_sites_and_draw_states(events: list[Event]) -> tuple[list[tuple[str, int]], list[bytes]]:
    """The lines that compile something, and the states of torch's generator at its draws."""
    places = [(e.file, e.line) for e in events if e.kind == f.FACT and e.name == "torch.compile"]
    return places, [e.outputs for e in events if e.kind == f.DRAW and e.name.startswith("torch")]


def read_first_saved_shape(path: Path) -> list[int]:
    """The shape of the first tensor that was saved; empty if there is none."""
    try:
        with open(path, "rb") as file:
            tensors = json.loads(file.readline())["tensors"]
    except (OSError, ValueError, KeyError):
        return []
    return [int(n) for n in tensors[0]["shape"]] if tensors else []


def find_first_worker_draws(situation: Situation) -> list[Event]:
    """The first draw of each generator at each of the user's lines, in the workers of the varied run.

    Generators made in the worker itself are left out: they depend on their own seeds.
    """
    found: dict[tuple[str, str, int], Event] = {}
    for role, trace in sorted(situation.b.traces.traces.items()):
        if "/loader" not in role:
            continue
        events = select_events(trace, (f.DRAW, f.CREATE, f.SEED))
        # torch's worker loop seeds what is global and makes a generator for itself, before any of the user's code
        loop = {(e.file, e.line) for e in events if e.kind == f.SEED and e.name in GLOBAL_GENERATORS and not e.direct}
        own = {
            e.name for e in events
            if e.kind in (f.CREATE, f.SEED) and e.name not in GLOBAL_GENERATORS
            and e.line and (e.direct or (e.file, e.line) not in loop)
        }  # fmt: skip
        seeded = {e.name for e in events if e.kind == f.SEED and e.direct and e.name in GLOBAL_GENERATORS}
        for event in events:
            if event.kind == f.DRAW and event.line and event.name not in own | seeded:
                found.setdefault((event.name, event.file, event.line), event)
    return list(found.values())
