"""Compare the traces of two runs: the first difference in computed values, and host events that differ.

Only computed values are compared: operators, draws from torch's generators, the states after optimizer steps and the
models at the end. Host events (clocks, entropy, listings, ...) may differ freely as long as no value does; they are
evidence (`find_differing_host_events`). Operators that only one run has (periodic logging, say) are skipped if
everything around them is equal: they become the difference only when another difference follows them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from samerun.record.comparison.alignment import (
    Difference,
    StreamComparison,
    classify_difference_by_event_kind_then_operands,
    read_event,
)
from samerun.record.comparison.causal_order import (
    is_rank_or_communicating_process,
    read_collectives_and_messages,
    select_processes_differing_first,
    sort_key_of_role,
    starts_process_before,
)
from samerun.record.comparison.streams import (
    IGNORE_UNUSED_MEMORY,
    ONLY_MAIN_THREAD,
    ONLY_SAMPLE_ROWS,
    Array,
    ComparisonScope,
    IndexedEvents,
    SharedNumbering,
    ThreadStreams,
    is_process_compared,
)  # fmt: skip
from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace
from samerun.record.trace.run import NUMBERED_BY_ARRIVAL, Event, RunTraces, select_events

COLLECTIVE_SPACES = ("c10d.", "_c10d_functional")
MAX_THREAD_NUMBER = 0xFFFF
"""An event has 16 bits for its thread number."""


def find_first_difference(a: RunTraces, b: RunTraces, scope: ComparisonScope = ()) -> Difference | None:
    """The first difference between two runs, or None if every compared value is equal.

    Of several processes that differ, the one where it is earliest in the order that collectives and messages give
    (`samerun.record.comparison.causal_order`); `also_in` names those that are as early.
    `scope`: what is not compared, see `samerun.record.comparison.streams`.
    """
    roles = sorted(set(a.traces) | set(b.traces), key=lambda role: (role != "main", sort_key_of_role(role)))
    roles = [role for role in roles if is_process_compared(role, scope)]
    missing = None
    found: dict[str, Difference] = {}
    for role in roles:
        trace_a, trace_b = a.traces.get(role), b.traces.get(role)
        if trace_a is None or trace_b is None:
            present = trace_a or trace_b
            assert present is not None
            if missing is None and any((c["kind"] == f.OPERATOR).any() for c in present.iter_event_chunks()):
                missing = Difference("process", role, "main", None, None, 0, 0, "a" if trace_a else "b")
            continue
        difference = compare_traces(trace_a, trace_b, scope)
        if (
            difference is not None
            and role == "main"
            and not starts_process_before(trace_a, _index_in_a_or_event_count(difference, a))
        ):
            return difference
        if difference is not None:
            found[role] = difference
    if found:
        return choose_earliest_difference(a, found)
    return missing or (None if scope else _find_difference_if_one_has_no_operators(a, b, roles))


def choose_earliest_difference(a: RunTraces, difference_by_role: dict[str, Difference]) -> Difference:
    """Of the first differences of processes, by role, the earliest. Ranks come before the processes beside them, which
    they start, or which wait for them."""
    exchanges = {role: read_collectives_and_messages(trace) for role, trace in a.traces.items()}
    ranks = {
        role: each
        for role, each in difference_by_role.items()
        if is_rank_or_communicating_process(role, exchanges[role])
    }
    if not ranks:
        return next(iter(difference_by_role.values()))
    indices = {role: _index_in_a_or_event_count(each, a) for role, each in ranks.items()}
    if any(each.sent or each.received for each in exchanges.values()):
        earliest = select_processes_differing_first(indices, exchanges)
        before = {role: exchanges[role].count_exchanges_before(indices[role]) for role in earliest}
        first = min(earliest, key=before.__getitem__)
    else:  # a trace of an earlier samerun, or of steps only
        before = {role: count_collectives_and_messages_before(a.traces[role], each.a) for role, each in ranks.items()}
        order = {role: (before[role], each.step) for role, each in ranks.items()}
        first = min(order, key=order.__getitem__)
        earliest = [role for role in ranks if order[role] == order[first]]
    return replace(ranks[first], also_in=tuple(role for role in earliest if role != first))


def _index_in_a_or_event_count(difference: Difference, a: RunTraces) -> int:
    """Where a difference is in the trace of run A: behind its end for what only run B has."""
    return difference.a.index if difference.a is not None else a.traces[difference.role].count


def count_collectives_and_messages_before(trace: Trace, event: Event | None) -> int:
    """How many collectives and messages a process had called before an event."""
    names = np.array([n for n, text in enumerate(trace.strings) if text.startswith(COLLECTIVE_SPACES)], dtype=np.uint32)
    count = at = 0
    for chunk in trace.iter_event_chunks() if len(names) and event is not None else ():
        called = (chunk["kind"] == f.OPERATOR) & np.isin(chunk["name"], names)
        count += int(np.count_nonzero(called[: max(0, event.index - at)])) if event is not None else 0
        at += len(chunk)
    return count


def _find_difference_if_one_has_no_operators(a: RunTraces, b: RunTraces, roles: list[str]) -> Difference | None:
    """The first operator of one run if the other has no operators at all.

    Extra operators are normally skipped because everything around them is equal. Here nothing surrounds them, so two
    runs of which one computes nothing would count as the same.
    """
    first_a, first_b = (
        next((first for role in roles if (first := _find_first_operator_with_role(run.traces.get(role)))), None)
        for run in (a, b)
    )
    present = first_a or first_b
    if present is None or (first_a and first_b):
        return None
    role, event = present
    if first_a:
        return Difference("operator", role, "main", event, None, 1, 1, "a", (event,))
    return Difference("operator", role, "main", None, event, 1, 0, "b", (event,), 1)


def _find_first_operator_with_role(trace: Trace | None) -> tuple[str, Event] | None:
    """(role, event) of the first operator in a trace."""
    at = 0
    for chunk in trace.iter_event_chunks() if trace is not None else ():
        hits = np.flatnonzero(chunk["kind"] == f.OPERATOR)
        if trace is not None and len(hits):
            return trace.role, read_event(trace, at + int(hits[0]))
        at += len(chunk)
    return None


def compare_traces(a: Trace, b: Trace, scope: ComparisonScope = ()) -> Difference | None:
    """The first difference between two processes: the earliest over all threads."""
    if ONLY_SAMPLE_ROWS in scope:
        return compare_sample_rows(a, b)
    threads_a, threads_b = read_thread_numbers_by_role(a), read_thread_numbers_by_role(b)
    numbering = SharedNumbering(a, b, scope)
    single_threaded = len(threads_a) == 1 and len(threads_b) == 1
    left, right = (
        ThreadStreams(trace, numbering, translate, None if single_threaded else len(threads))
        for trace, translate, threads in ((a, False, threads_a), (b, True, threads_b))
    )
    differences: list[Difference] = []
    for role in ["main"] if ONLY_MAIN_THREAD in scope else dict.fromkeys([*threads_a, *threads_b]):
        numbers_a, numbers_b = threads_a.get(role, []), threads_b.get(role, [])
        if role.rsplit("/", 1)[-1] == f.POOL_THREAD:
            difference = compare_pool_threads_as_sets(
                (a, b), left.gather_events(numbers_a), right.gather_events(numbers_b), role
            )
        else:
            streams = left.open_stream(numbers_a), right.open_stream(numbers_b)
            unused = IGNORE_UNUSED_MEMORY in scope
            difference = StreamComparison((a, b), streams, role, unused).find_first_difference()
        if difference is not None:
            differences.append(difference)
    return min(differences, key=lambda d: d.event.index if d.event else 0, default=None)


def read_thread_numbers_by_role(trace: Trace) -> dict[str, list[int]]:
    """Thread role -> thread numbers. The threads of a pool share one role."""
    roles: dict[str, list[int]] = {"main": [0]}
    known = {0}
    for event in select_events(trace, (f.THREAD,)):
        if event.inputs in known or event.inputs > MAX_THREAD_NUMBER:
            continue  # hostile trace: a thread with many roles would be compared once for each of them
        known.add(event.inputs)
        role = event.name
        head, _, tail = role.rpartition("/")
        if tail.startswith(f.POOL_THREAD):
            role = f"{head}/{f.POOL_THREAD}"
        roles.setdefault(role, []).append(int(event.inputs))
    return roles


def compare_pool_threads_as_sets(
    traces: tuple[Trace, Trace], left: IndexedEvents, right: IndexedEvents, thread_role: str
) -> Difference | None:
    """Compare the events of pool threads as sets: which thread runs a task, and when, is a race."""
    (a, b), (ea, ia), (eb, ib) = traces, left, right
    keys_a, keys_b = hash_events(ea), hash_events(eb)
    sorted_a, sorted_b = np.sort(keys_a), np.sort(keys_b)
    if np.array_equal(sorted_a, sorted_b):
        return None
    only_a, only_b = np.flatnonzero(_missing_mask(keys_a, sorted_b)), np.flatnonzero(_missing_mask(keys_b, sorted_a))
    if not len(only_a):
        other = read_event(b, int(ib[only_b[0]])) if len(only_b) else None
        step = b.count_steps_before(other.index) + 1 if other is not None else 0
        return Difference("operator", a.role, thread_role, None, other, step, 0, "b")
    event = read_event(a, int(ia[only_a[0]]))
    step, first, rest = a.count_steps_before(event.index) + 1, ea[only_a[0]], eb[only_b]
    alike = (rest["kind"] == first["kind"]) & (rest["name"] == first["name"])
    alike &= rest["location"] == first["location"]
    if not alike.any():
        return Difference("operator", a.role, thread_role, event, None, step, 0, "a")
    other = read_event(b, int(ib[only_b[np.flatnonzero(alike)[0]]]))
    return Difference(
        classify_difference_by_event_kind_then_operands(event, other), a.role, thread_role, event, other, step, 0
    )


def compare_sample_rows(a: Trace, b: Trace) -> Difference | None:
    """The first operator, of those that both runs have, whose results for single samples differ."""
    rows_a, rows_b = read_sample_row_events(a), read_sample_row_events(b)
    for key, event in rows_a.items():
        other = rows_b.get(key)
        if other is not None and event.outputs != other.outputs:
            return Difference("rows", a.role, "main", event, other, a.count_steps_before(event.index) + 1, 0)
    return None


def read_sample_row_events(trace: Trace) -> dict[tuple[object, ...], Event]:
    """Operator, source location and number of the pass over the data -> event with the digest of its rows."""
    rows: dict[tuple[object, ...], Event] = {}
    for event in select_events(trace, (f.ROWS,)):
        rows[(event.name, event.file, event.line, event.module, event.inputs)] = event
    return rows


def _missing_mask(keys: Array, sorted_others: Array) -> Array:
    """Mask of the keys that do not occur in the sorted others."""
    if not len(sorted_others):
        return np.ones(len(keys), dtype=bool)
    at = np.minimum(np.searchsorted(sorted_others, keys), len(sorted_others) - 1)
    return np.asarray(sorted_others[at] != keys)


def hash_events(events: Array) -> Array:
    """One 64-bit number for each event, so that sets of events can be compared."""
    with np.errstate(over="ignore"):
        key = events["out0"] * np.uint64(0x9E3779B97F4A7C15) ^ events["inputs"]
        key = key * np.uint64(0xBF58476D1CE4E5B9) ^ events["name"].astype(np.uint64)
        key = key * np.uint64(0x94D049BB133111EB) ^ events["location"].astype(np.uint64)
    return np.asarray(key)


__all__ = ["Difference", "compare_traces", "find_first_difference"]


HOST_EVENT_KINDS = (
    f.DRAW, f.SEED, f.CREATE, f.ENTROPY, f.CLOCK, f.LISTING, f.FILE, f.ENVIRONMENT, f.LOADER, f.BATCH,
    f.LOAD, f.COMPLETION, f.FRESH, f.FACT,
)  # fmt: skip
READ_KINDS = (f.FILE, f.LOAD)
"""Kinds that count even if only the second run has them: it may have found a file that the first one left behind."""


@dataclass(frozen=True)
class HostEventDifference:
    """One host event that differs between the runs.

    `b` is None if only one run has the event. That run is the first one, unless `only_b` is set: then `a` is an event
    of the second run.
    """

    role: str
    a: Event
    b: Event | None
    only_b: bool = False

    @property
    def kind(self) -> int:
        return self.a.kind

    @property
    def source_location(self) -> tuple[str, int]:
        return self.a.file, self.a.line


def find_differing_host_events(
    a: RunTraces, b: RunTraces, role: str, end_event_a: int | None, end_event_b: int | None = None
) -> list[HostEventDifference]:
    """The host events that differ: those of process `role` before event `end_event_a`, then those of other processes.

    `end_event_b`: index of the same event in the second run, where the two may be at different positions.

    Events are paired in order within one thread, kind, name and source location. Of each such group only the first
    differing pair is a clue: what follows it is usually a consequence. Generators created without a seed count even
    if their events are equal, because their initial states are not in the trace.
    """
    roles = [role, *sorted(r for r in set(a.traces) & set(b.traces) if r != role)]
    clues: list[HostEventDifference] = []
    for each in roles:
        trace_a, trace_b = a.traces.get(each), b.traces.get(each)
        if trace_a is None or trace_b is None:
            continue
        limit = end_event_a if each == role else None
        groups_a = group_events_by_name_and_location(select_events(trace_a, HOST_EVENT_KINDS, limit))
        groups_b = group_events_by_name_and_location(select_events(trace_b, HOST_EVENT_KINDS))
        clues_of_process: list[HostEventDifference] = []
        for key, events in groups_a.items():
            others = groups_b.get(key, [])
            for number, event in enumerate(events):
                pair = others[number] if number < len(others) else None
                if pair is None or event.is_seeded_by_system or values_differ_as_evidence(event, pair):
                    clues_of_process.append(HostEventDifference(each, event, pair))
                    break
        for key, events in groups_b.items():
            late = each == role and end_event_b is not None and events[0].index > end_event_b
            if key not in groups_a and events[0].kind in READ_KINDS and not late:
                clues_of_process.append(HostEventDifference(each, events[0], None, only_b=True))
        if NUMBERED_BY_ARRIVAL.fullmatch(each) and each != role:
            clues_of_process = [clue for clue in clues_of_process if not is_of_another_process(clue, a, b)]
        clues.extend(sorted(clues_of_process, key=lambda clue: clue.a.index))
    return clues


def is_of_another_process(clue: HostEventDifference, a: RunTraces, b: RunTraces) -> bool:
    """Whether processes that are numbered by arrival only have other numbers: together both runs have the same."""
    if clue.a.is_seeded_by_system:
        return False

    def list_outputs(run: RunTraces) -> list[bytes]:
        return sorted(
            event.outputs
            for each, trace in run.traces.items()
            if NUMBERED_BY_ARRIVAL.fullmatch(each)
            for event in select_events(trace, (clue.kind,))
            if (event.name, event.file, event.line) == (clue.a.name, *clue.source_location)
        )

    return list_outputs(a) == list_outputs(b)


def group_events_by_name_and_location(events: list[Event]) -> dict[tuple[object, ...], list[Event]]:
    """Events by thread, kind, name and source location; by their text too, unless it is a path that may differ."""
    groups: dict[tuple[object, ...], list[Event]] = defaultdict(list)
    for event in events:
        text = "" if event.kind in (f.LISTING, f.FILE, f.FACT) else event.text
        groups[(event.thread, event.kind, event.name, event.file, event.line, text)].append(event)
    return groups


def values_differ_as_evidence(a: Event, b: Event) -> bool:
    """Whether two paired events are evidence: a file read under another path is not, nor are uninitialised bytes."""
    if a.kind in READ_KINDS:
        return a.outputs != b.outputs and a.text == b.text
    if a.kind == f.FRESH:
        return False
    return (a.inputs, a.outputs) != (b.inputs, b.outputs)


def select_host_events(run: RunTraces, role: str, end_event: int | None = None) -> list[Event]:
    """All host events of a process, up to event `end_event`."""
    trace = run.traces.get(role)
    return select_events(trace, HOST_EVENT_KINDS, end_event) if trace is not None else []
