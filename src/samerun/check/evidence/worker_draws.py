"""What was drawn in DataLoader workers, and from which generators."""

from __future__ import annotations

from samerun.check.evidence.situation import Situation
from samerun.record.trace import format as f
from samerun.record.trace.run import Event, select_events

GLOBAL = ("torch", "numpy", "python")
"""Generators that a DataLoader seeds in each worker, with the worker's number."""


def worker_draws(situation: Situation) -> list[Event]:
    """The first draw of each generator at each of the user's lines, in the workers of the varied run.

    Left out are generators that are made in the worker itself: they depend on what they are seeded with.
    """
    found: dict[tuple[str, str, int], Event] = {}
    for role, trace in sorted(situation.b.traces.traces.items()):
        if "/loader" not in role:
            continue
        events = select_events(trace, (f.DRAW, f.CREATE, f.SEED))
        # torch's worker loop seeds what is global and makes a generator for itself, before any of the user's code
        loop = {(e.file, e.line) for e in events if e.kind == f.SEED and e.name in GLOBAL and not e.direct}
        own = {
            e.name for e in events
            if e.kind in (f.CREATE, f.SEED) and e.name not in GLOBAL
            and e.line and (e.direct or (e.file, e.line) not in loop)
        }  # fmt: skip
        seeded = {e.name for e in events if e.kind == f.SEED and e.direct and e.name in GLOBAL}
        for event in events:
            if event.kind == f.DRAW and event.line and event.name not in own | seeded:
                found.setdefault((event.name, event.file, event.line), event)
    return list(found.values())
