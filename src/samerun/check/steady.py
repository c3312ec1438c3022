"""Does anything in a run look as if it might differ only now and then?"""

from __future__ import annotations

from samerun.check.line_search import first_use_of_id
from samerun.record import format as f
from samerun.record.operator import UNORDERED
from samerun.record.run import RunTraces, events_of


def uses_addresses(file: str) -> bool:
    """Does the user's source call or pass on `id`? Addresses are seldom in another order."""
    return first_use_of_id(file) > 0


def is_steady(traces: RunTraces) -> bool:
    """True when no sign of a race was seen: what else differs, differs in every second run already.

    Signs are threads of the program, results taken as they come, clocks the program reads, processes
    other than a DataLoader's, operators whose order of summation may follow the threads, and `id`.
    """
    if any(uses_addresses(file) for trace in traces.traces.values() for file in {place[0] for place in trace.places}):
        return False
    for role, trace in traces.traces.items():
        if "/" in role and "/loader" not in role:
            return False
        if any(part in name for name in trace.strings for part in UNORDERED if name.startswith("aten.")):
            return False
        for event in events_of(trace, (f.THREAD, f.COMPLETION, f.CLOCK)):
            if event.kind == f.THREAD or event.direct:
                return False
    return True
