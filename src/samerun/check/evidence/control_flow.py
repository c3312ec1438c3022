"""What becomes of a difference later: does it decide which way the program goes?"""

from __future__ import annotations

from itertools import zip_longest

from samerun.check.evidence.situation import Situation, Suspect
from samerun.record.trace import format as f
from samerun.record.trace.run import Event, select_events


def branch_on_last_bits(situation: Situation) -> Suspect | None:
    """The line where values that differ in their last bits decide that the runs go separate ways.

    None where both runs compute the same operators to the end.
    """
    first = situation.difference.a
    one, other = (run.traces.traces.get(situation.difference.role) for run in (situation.a, situation.b))
    if first is None or one is None or other is None or situation.difference.what not in ("outputs", "inputs"):
        return None
    last = first
    pair = (operators(select_events(trace, (f.OPERATOR,))) for trace in (one, other))
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


def operators(events: list[Event]) -> list[Event]:
    """Those of the main thread: others come as they come."""
    return [e for e in events if e.thread == 0]
