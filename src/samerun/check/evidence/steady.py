"""Does anything in a run look as if it might differ only now and then?"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from samerun.check.evidence.clock_uses import may_decide
from samerun.check.evidence.line_search import first_use_of_id
from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace
from samerun.record.trace.run import Event, RunTraces, select_events
from samerun.record.watching.watched_operator import UNORDERED

QUEUES = ("queue.get", "multiprocessing.Queue.get")


def any_uses_addresses(traces: RunTraces) -> bool:
    """Does the user's source call or pass on `id`? Addresses are seldom in another order."""
    return any(first_use_of_id(file) > 0 for file in files_of(traces))


def files_of(traces: RunTraces) -> set[str]:
    """The user's files that ran."""
    return {place[0] for trace in traces.traces.values() for place in trace.locations if place[0]}


def is_steady(traces: RunTraces, by_address: bool = True) -> bool:
    """True when no sign of a race was seen: what else differs, differs in every second run already.

    Signs are threads that draw from one generator or write to one tensor, results taken as they come, clocks that
    may decide something, processes other than a DataLoader's, operators whose order of summation may follow the
    threads, and (`by_address`) `id`. A thread that prepares batches or writes a log is none, nor is how
    long a step took where that is only printed.
    """
    if by_address and any_uses_addresses(traces):
        return False
    clocks: dict[str, set[int]] = {file: set() for file in files_of(traces)}
    for role, trace in traces.traces.items():
        if "/" in role and "/loader" not in role:
            return False
        if any(part in name for name in trace.strings for part in UNORDERED if name.startswith("aten.")):
            return False
        if shares_between_threads(trace):
            return False
        for event in select_events(trace, (f.COMPLETION, f.CLOCK)):
            if event.direct and event.kind == f.CLOCK:
                clocks[event.file].add(event.line)
            elif event.direct and not handed_over(trace, event):
                return False
    return not any(clocks.values()) or not may_decide(clocks)


def handed_over(trace: Trace, event: Event) -> bool:
    """Whether something was taken from a queue that a single thread fills: it comes in the order of that thread."""
    return event.name in QUEUES and len(select_events(trace, (f.THREAD,))) == 1


def shares_between_threads(trace: Trace) -> bool:
    """Whether several threads draw from one generator, or one writes into what another has written."""
    writes = np.array([n for n, text in enumerate(trace.strings) if is_write(text)], dtype=np.uint32)
    drawing: dict[int, set[int]] = defaultdict(set)
    for chunk in trace.chunks():
        foreign = (chunk["kind"] == f.OPERATOR) & ((chunk["flags"] & f.FOREIGN_WRITE) != 0)
        if foreign.any() and bool(np.isin(chunk["name"][foreign], writes).any()):
            return True
        draws = chunk[chunk["kind"] == f.DRAW]
        for name, thread in {(int(n), int(t)) for n, t in zip(draws["name"], draws["thread"], strict=True)}:
            drawing[name].add(thread)
    return any(len(threads) > 1 for threads in drawing.values())


def is_write(operator: str) -> bool:
    """Whether an operator's name is that of one that writes in place."""
    return operator.split(".")[1:2] != [] and operator.split(".")[1].endswith("_")
