"""Host events that differ between two runs: evidence for the cause of a difference in values."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from samerun.record.trace import format as f
from samerun.record.trace.run import Event, RunTraces, select_events

HOST_EVENT_KINDS = (
    f.DRAW, f.SEED, f.CREATE, f.ENTROPY, f.CLOCK, f.LISTING, f.FILE, f.ENVIRONMENT, f.LOADER, f.BATCH,
    f.LOAD, f.COMPLETION, f.FRESH, f.FACT,
)  # fmt: skip
READ_KINDS = (f.FILE, f.LOAD)
"""Kinds that count even if only the second run has them: it may have found a file that the first one left behind."""


@dataclass(frozen=True)
class Clue:
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


def find_clues(a: RunTraces, b: RunTraces, role: str, before: int | None, before_b: int | None = None) -> list[Clue]:
    """The host events that differ: those of process `role` up to event `before`, then those of the other processes.

    `before_b`: index of the same event in the second run, where the two may be at different positions.

    Events are paired in order within one thread, kind, name and source location. Of each such group only the first
    differing pair is a clue: what follows it is usually a consequence. Generators created without a seed count even
    if their events are equal, because their initial states are not in the trace.
    """
    roles = [role, *sorted(r for r in set(a.traces) & set(b.traces) if r != role)]
    clues: list[Clue] = []
    for each in roles:
        trace_a, trace_b = a.traces.get(each), b.traces.get(each)
        if trace_a is None or trace_b is None:
            continue
        limit = before if each == role else None
        groups_a = group_events(select_events(trace_a, HOST_EVENT_KINDS, limit))
        groups_b = group_events(select_events(trace_b, HOST_EVENT_KINDS))
        clues_of_process: list[Clue] = []
        for key, events in groups_a.items():
            others = groups_b.get(key, [])
            for number, event in enumerate(events):
                pair = others[number] if number < len(others) else None
                if pair is None or event.unseeded or is_evidence(event, pair):
                    clues_of_process.append(Clue(each, event, pair))
                    break
        for key, events in groups_b.items():
            late = each == role and before_b is not None and events[0].index > before_b
            if key not in groups_a and events[0].kind in READ_KINDS and not late:
                clues_of_process.append(Clue(each, events[0], None, only_b=True))
        clues.extend(sorted(clues_of_process, key=lambda clue: clue.a.index))
    return clues


def group_events(events: list[Event]) -> dict[tuple[object, ...], list[Event]]:
    """Events by thread, kind, name and source location; by their text too, unless it is a path that may differ."""
    groups: dict[tuple[object, ...], list[Event]] = defaultdict(list)
    for event in events:
        text = "" if event.kind in (f.LISTING, f.FILE, f.FACT) else event.text
        groups[(event.thread, event.kind, event.name, event.file, event.line, text)].append(event)
    return groups


def is_evidence(a: Event, b: Event) -> bool:
    """Whether two paired events are evidence: a file read under another path is not, nor are uninitialised bytes."""
    if a.kind in READ_KINDS:
        return a.outputs != b.outputs and a.text == b.text
    if a.kind == f.FRESH:
        return False
    return (a.inputs, a.outputs) != (b.inputs, b.outputs)


def select_host_events(run: RunTraces, role: str, before: int | None = None) -> list[Event]:
    """All host events of a process, up to event `before`."""
    trace = run.traces.get(role)
    return select_events(trace, HOST_EVENT_KINDS, before) if trace is not None else []
