"""Align two runs and find the first event that differs.

Compared are the values a program computes: operators, draws of torch's generators, what optimizer steps
and ended models hold. Host events (clocks, entropy, listings, ...) are evidence: they may differ freely
as long as no value does. Operators that only one run has (logging by the clock, say) are passed over
when everything around them is the same: they are the difference only when they are followed by one.
"""

from __future__ import annotations

import numpy as np

from samerun.record.comparison.alignment import StreamComparison, event_at
from samerun.record.comparison.difference import Difference, kind_of_difference
from samerun.record.comparison.streams import Array, Names, ThreadStreams
from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace
from samerun.record.trace.run import Event, RunTraces, events_of
from samerun.record.trace.scope import ROWS, compared

MOST_THREADS = 0xFFFF
"""An event has 16 bits for the number of its thread."""


def first_difference(a: RunTraces, b: RunTraces, scope: tuple[str, ...] = ()) -> Difference | None:
    """The first difference of two runs, or None when every value compared is the same.

    In the main process first, then in the others in the order of their roles. `scope` says what is left
    out: see `samerun.record.trace.scope`.
    """
    roles = sorted(set(a.traces) | set(b.traces), key=lambda role: (role != "main", role))
    roles = [role for role in roles if compared(role, scope)]
    missing = None
    for role in roles:
        one, other = a.traces.get(role), b.traces.get(role)
        if one is None or other is None:
            present = one or other
            assert present is not None
            if missing is None and any((c["kind"] == f.OPERATOR).any() for c in present.chunks()):
                missing = Difference("process", role, "main", None, None, 0, 0, "a" if one else "b")
            continue
        found = compare_traces(one, other, scope)
        if found is not None:
            return found
    return missing or (None if scope else _find_empty_run(a, b, roles))


def _find_empty_run(a: RunTraces, b: RunTraces, roles: list[str]) -> Difference | None:
    """The first operator of a run where the other has none at all.

    Operators that only one run has are passed over because all around them is the same. Around these there is nothing.
    """
    one, other = (
        next((found for role in roles if (found := _first_operator(run.traces.get(role)))), None) for run in (a, b)
    )
    present = one or other
    if present is None or (one and other):
        return None
    role, event = present
    if one:
        return Difference("operator", role, "main", event, None, 1, 1, "a", (event,))
    return Difference("operator", role, "main", None, event, 1, 0, "b", (event,), 1)


def _first_operator(trace: Trace | None) -> tuple[str, Event] | None:
    at = 0
    for chunk in trace.chunks() if trace is not None else ():
        hits = np.flatnonzero(chunk["kind"] == f.OPERATOR)
        if trace is not None and len(hits):
            return trace.role, event_at(trace, at + int(hits[0]))
        at += len(chunk)
    return None


def compare_traces(a: Trace, b: Trace, scope: tuple[str, ...] = ()) -> Difference | None:
    """The first difference of two processes: of all its threads' the earliest."""
    if ROWS in scope:
        return compare_rows(a, b)
    threads_a, threads_b = threads_of(a), threads_of(b)
    names = Names(a, b, scope)
    alone = len(threads_a) == 1 and len(threads_b) == 1
    left, right = (
        ThreadStreams(trace, names, translate, None if alone else len(threads))
        for trace, translate, threads in ((a, False, threads_a), (b, True, threads_b))
    )
    found: list[Difference] = []
    for role in dict.fromkeys([*threads_a, *threads_b]):
        one, other = threads_a.get(role, []), threads_b.get(role, [])
        if role.rsplit("/", 1)[-1] == f.POOL_THREAD:
            difference = compare_sets((a, b), left.gather(one), right.gather(other), role)
        else:
            difference = StreamComparison((a, b), (left.stream(one), right.stream(other)), role).first()
        if difference is not None:
            found.append(difference)
    return min(found, key=lambda d: d.event.index if d.event else 0) if found else None


def threads_of(trace: Trace) -> dict[str, list[int]]:
    """Thread role -> its numbers. Threads of pools share one role."""
    roles: dict[str, list[int]] = {"main": [0]}
    known = {0}
    for event in events_of(trace, (f.THREAD,)):
        if event.inputs in known or event.inputs > MOST_THREADS:
            continue  # no recorder writes that; a number that belonged to many roles would be compared as often
        known.add(event.inputs)
        role = event.name
        head, _, tail = role.rpartition("/")
        if tail.startswith(f.POOL_THREAD):
            role = f"{head}/{f.POOL_THREAD}"
        roles.setdefault(role, []).append(int(event.inputs))
    return roles


def compare_sets(
    traces: tuple[Trace, Trace], left: tuple[Array, Array], right: tuple[Array, Array], role: str
) -> Difference | None:
    """Threads of a pool take tasks as they come: their events are compared without their order."""
    (a, b), (ea, ia), (eb, ib) = traces, left, right
    keys_a, keys_b = set_keys(ea), set_keys(eb)
    sorted_a, sorted_b = np.sort(keys_a), np.sort(keys_b)
    if np.array_equal(sorted_a, sorted_b):
        return None
    only_a, only_b = np.flatnonzero(_lacking(keys_a, sorted_b)), np.flatnonzero(_lacking(keys_b, sorted_a))
    if not len(only_a):
        other = event_at(b, int(ib[only_b[0]])) if len(only_b) else None
        step = b.steps_before(other.index) + 1 if other is not None else 0
        return Difference("operator", a.role, role, None, other, step, 0, "b")
    one = event_at(a, int(ia[only_a[0]]))
    step, first, there = a.steps_before(one.index) + 1, ea[only_a[0]], eb[only_b]
    alike = (there["kind"] == first["kind"]) & (there["name"] == first["name"]) & (there["place"] == first["place"])
    if not alike.any():
        return Difference("operator", a.role, role, one, None, step, 0, "a")
    other = event_at(b, int(ib[only_b[np.flatnonzero(alike)[0]]]))
    return Difference(kind_of_difference(one, other), a.role, role, one, other, step, 0)


def compare_rows(a: Trace, b: Trace) -> Difference | None:
    """The first result whose rows differ, of those that both runs have; their passes over the data are counted."""
    left, right = rows_of(a), rows_of(b)
    for key, one in left.items():
        other = right.get(key)
        if other is not None and one.outputs != other.outputs:
            return Difference("rows", a.role, "main", one, other, a.steps_before(one.index) + 1, 0)
    return None


def rows_of(trace: Trace) -> dict[tuple[object, ...], Event]:
    found: dict[tuple[object, ...], Event] = {}
    for event in events_of(trace, (f.ROWS,)):
        found[(event.name, event.file, event.line, event.module, event.inputs)] = event
    return found


def _lacking(keys: Array, others: Array) -> Array:
    """Mask of the keys that are not among the sorted others."""
    if not len(others):
        return np.ones(len(keys), dtype=bool)
    at = np.minimum(np.searchsorted(others, keys), len(others) - 1)
    return np.asarray(others[at] != keys)


def set_keys(events: Array) -> Array:
    """One number for each event, for comparing sets of them."""
    with np.errstate(over="ignore"):
        key = events["out0"] * np.uint64(0x9E3779B97F4A7C15) ^ events["inputs"]
        key = key * np.uint64(0xBF58476D1CE4E5B9) ^ events["name"].astype(np.uint64)
        key = key * np.uint64(0x94D049BB133111EB) ^ events["place"].astype(np.uint64)
    return np.asarray(key)


__all__ = ["Difference", "compare_traces", "first_difference"]
