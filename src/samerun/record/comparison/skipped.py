"""Operators that a recorder left out because there was nothing to digest: counted, and told to people."""

from __future__ import annotations

from collections import Counter

from samerun.record.trace import format as f
from samerun.record.trace.run import RunTraces, events_of

NO_VALUES = "no values"
MOST_NAMES = 5


def skipped_notes(traces: RunTraces) -> list[str]:
    """One sentence for operators on tensors without values, one for each operator that could not be read."""
    without_values = 0
    unread: Counter[tuple[str, str]] = Counter()
    for trace in traces.traces.values():
        for event in events_of(trace, (f.SKIPPED,)):
            if event.text == NO_VALUES:
                without_values += event.inputs
            else:
                unread[(event.name, event.text)] += event.inputs
    notes = []
    if without_values:
        notes.append(f"Not compared: {without_values} operators on tensors without values (fake or meta tensors).")
    for (name, reason), count in unread.most_common(MOST_NAMES):
        notes.append(f"Not compared: {count} times {name}, whose tensors could not be read ({reason}).")
    if len(unread) > MOST_NAMES:
        notes.append(f"Not compared: {len(unread) - MOST_NAMES} more operators whose tensors could not be read.")
    return notes
