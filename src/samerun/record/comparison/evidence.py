"""Host events that differ between two runs: what may lie behind a difference of values."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from samerun.record.trace import format as f
from samerun.record.trace.run import Event, RunTraces, events_of

KINDS = (
    f.DRAW, f.SEED, f.CREATE, f.ENTROPY, f.CLOCK, f.LISTING, f.FILE, f.ENVIRONMENT, f.LOADER, f.BATCH,
    f.LOAD, f.COMPLETION, f.FRESH, f.FACT,
)  # fmt: skip
READS = (f.FILE, f.LOAD)
"""Kinds that count where only the second run has them: it may have found what the first one left."""


@dataclass(frozen=True)
class Clue:
    """One host event that is not the same in both runs. `b` is None where only one run has it.

    That run is the first, and `a` its event, unless `only_b` says that it is the second.
    """

    role: str
    a: Event
    b: Event | None
    only_b: bool = False

    @property
    def kind(self) -> int:
        return self.a.kind

    @property
    def place(self) -> tuple[str, int]:
        return self.a.file, self.a.line


def clues(a: RunTraces, b: RunTraces, role: str, before: int | None, before_b: int | None = None) -> list[Clue]:
    """Differing host events in the order of the process `role` up to event `before`, then the others'.

    `before_b`: that event in the second run, where the two may be at different positions.

    Events are paired per thread, kind, name and place, in order; the first pair that differs counts.
    Unseeded creations count even where nothing could be compared: their values are not in the trace.
    """
    roles = [role, *sorted(r for r in set(a.traces) & set(b.traces) if r != role)]
    found: list[Clue] = []
    for each in roles:
        one, other = a.traces.get(each), b.traces.get(each)
        if one is None or other is None:
            continue
        limit = before if each == role else None
        left, right = grouped(events_of(one, KINDS, limit)), grouped(events_of(other, KINDS))
        here: list[Clue] = []
        for key, events in left.items():
            others = right.get(key, [])
            for number, event in enumerate(events):
                pair = others[number] if number < len(others) else None
                if pair is None or event.unseeded or different(event, pair):
                    here.append(Clue(each, event, pair))
                    break
        for key, events in right.items():
            late = each == role and before_b is not None and events[0].index > before_b
            if key not in left and events[0].kind in READS and not late:
                here.append(Clue(each, events[0], None, only_b=True))
        found.extend(sorted(here, key=lambda clue: clue.a.index))
    return found


def grouped(events: list[Event]) -> dict[tuple[object, ...], list[Event]]:
    groups: dict[tuple[object, ...], list[Event]] = defaultdict(list)
    for event in events:
        text = "" if event.kind in (f.LISTING, f.FILE, f.FACT) else event.text
        groups[(event.thread, event.kind, event.name, event.file, event.line, text)].append(event)
    return groups


def different(a: Event, b: Event) -> bool:
    if a.kind in READS:
        return a.outputs != b.outputs and a.text == b.text
    if a.kind == f.FRESH:
        return False
    return (a.inputs, a.outputs) != (b.inputs, b.outputs)


def all_host_events(runs: RunTraces, role: str, before: int | None = None) -> list[Event]:
    trace = runs.traces.get(role)
    return events_of(trace, KINDS, before) if trace is not None else []
