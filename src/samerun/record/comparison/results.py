"""Whether two runs have the same results although what their threads or processes computed in between differs.

Threads that add to one tensor under a lock, results that are taken as they come and sorted afterwards: the values in
between depend on who came first, and nothing that anybody can read at the end does. What can be read is a result:
states after optimizer steps, models and marks, what is saved, files written, numbers that leave the tensors, and all
memory that is still there when a process with threads ends.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from samerun.record.comparison.alignment import Difference
from samerun.record.comparison.streams import SOFT_LEAVES
from samerun.record.trace import format as f
from samerun.record.trace.reader import SourceLocation, Trace
from samerun.record.trace.run import Event, RunTraces, resolve_raw_event, select_events

RESULT_KINDS = (f.LEAF, f.SAVE, f.FINAL, f.OUTPUT, f.MARK)
READING_OPERATORS = ("aten._local_scalar_dense", "aten.is_nonzero", "aten.equal")
"""Operators by which a tensor's value reaches Python: it may be printed, or decide what the program does next."""

ResultKey = tuple[object, ...]


def is_harmless_order_difference(a: RunTraces, b: RunTraces, difference: Difference) -> bool:
    """Whether a difference may come from the order in which threads or processes met, and no result differs."""
    return (
        may_come_from_thread_order(a, b, difference)
        and collect_results(a) == collect_results(b)
        and have_same_final_memory(a, b)
    )


def may_come_from_thread_order(a: RunTraces, b: RunTraces, difference: Difference) -> bool:
    """Whether something that runs beside the main thread had a part in the values that differ first.

    An intermediate value of a single thread is a function of what came before: if it differs, something was different.
    """
    if difference.what not in ("outputs", "inputs", "scalars", "operator", "process", "draw"):
        return False
    if difference.thread != "main" or is_child_but_no_loader_worker(difference.role):
        return True  # which thread or process does a task, and draws for it, is chance
    pair = [event for event in (difference.a, difference.b) if event is not None]
    flags = [event.flags for event in pair if event.kind == f.OPERATOR]
    if any(each & f.UNINITIALISED for each in flags):
        return False  # what memory holds that nobody wrote comes from no other thread
    if any(each & f.FOREIGN_WRITE for each in flags):
        return True
    traces = [run.traces.get(difference.role) for run in (a, b)]
    orders = [[e.outputs for e in select_events(trace, (f.COMPLETION,))] for trace in traces if trace is not None]
    return len(orders) == 2 and orders[0] != orders[1]


def is_child_but_no_loader_worker(role: str) -> bool:
    """Whether a process is a child that may take any task: a loader gives each of its workers its own batches."""
    return "/" in role and "/loader" not in role


def have_same_final_memory(a: RunTraces, b: RunTraces) -> bool:
    """Whether what is alive at the end of one run exists in the other: at its end, or as a result on the way.

    A variable of a loop keeps the result that came last: its operator gives the same results in both runs, in another
    order. A sum in another order is a value that only one run has, or that the other has of other sums. Child processes
    count as one.
    """
    groups: dict[str, tuple[list[Trace], list[Trace]]] = {}
    for role in set(a.traces) & set(b.traces):
        for run, traces in zip((a, b), groups.setdefault(_name_of_results(role), ([], [])), strict=True):
            traces.append(run.traces[role])
    for traces_a, traces_b in groups.values():
        live_a, live_b = (
            {event.outputs for trace in traces for event in select_events(trace, (f.MEMORY,))}
            for traces in (traces_a, traces_b)
        )
        if live_a == live_b:
            continue
        outputs_a, outputs_b = _read_outputs_by_operator(traces_a), _read_outputs_by_operator(traces_b)
        in_same_numbers = [made for key, made in outputs_a.items() if made == outputs_b.get(key)]
        if not all(any(value in made for made in in_same_numbers) for value in live_a ^ live_b):
            return False
    return True


def _name_of_results(role: str) -> str:
    """Under which name the results of a process are gathered: which child does a task is chance."""
    return "children" if "/" in role else role


def _read_outputs_by_operator(traces: list[Trace]) -> dict[tuple[str, SourceLocation], Counter[bytes]]:
    """By name and line of an operator, how often it gave each result."""
    found: dict[tuple[str, SourceLocation], Counter[bytes]] = defaultdict(Counter)
    for trace in traces:
        for chunk in trace.iter_event_chunks():
            records = chunk[chunk["kind"] == f.OPERATOR]
            joined = np.stack([records["out0"], records["out1"]], axis=1).astype("<u8").tobytes()
            places = zip(records["name"].tolist(), records["location"].tolist(), strict=True)
            for at, (name, location) in enumerate(places):
                key = trace.string_or_empty(name), trace.location_or_empty(location)
                found[key][joined[16 * at : 16 * at + 16]] += 1
    return found


def collect_results(run: RunTraces) -> dict[str, tuple[list[ResultKey], Counter[ResultKey]]]:
    """The results of each process: those of its main thread in order, those of other threads as a set.

    Child processes count as one.
    """
    results: dict[str, tuple[list[ResultKey], Counter[ResultKey]]] = {}
    for role, trace in run.traces.items():
        is_child = "/" in role
        ordered, unordered = results.setdefault(_name_of_results(role), ([], Counter()))
        for event in _iterate_results_and_value_reads(trace):
            key = (event.kind, event.name, event.file, event.line, event.text, event.outputs)
            if event.thread == 0 and event.kind in (f.LEAF, f.SAVE, f.FINAL, f.MARK) and not is_child:
                ordered.append(key)
            else:
                unordered[key] += 1
    return {role: found for role, found in results.items() if found[0] or found[1]}


def _iterate_results_and_value_reads(trace: Trace) -> Iterator[Event]:
    reading = [number for number, text in enumerate(trace.strings) if text.startswith(READING_OPERATORS)]
    at = 0
    for chunk in trace.iter_event_chunks():
        mask = np.isin(chunk["kind"], RESULT_KINDS)
        mask |= (chunk["kind"] == f.OPERATOR) & np.isin(chunk["name"], reading)
        for i in np.flatnonzero(mask):
            event = resolve_raw_event(trace, at + int(i), chunk[i])
            if event.kind != f.LEAF or event.name not in SOFT_LEAVES:
                yield event
        at += len(chunk)
