"""Signs in the traces of a run that the program may be flaky: that it differs in some runs only."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from samerun.check.evidence.clock_uses import clock_may_decide
from samerun.check.evidence.line_search import find_first_line_using_id
from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace
from samerun.record.trace.run import Event, RunTraces, select_events
from samerun.record.watching.watched_operator import UNORDERED

QUEUES = ("queue.get", "multiprocessing.Queue.get")


def any_file_uses_id(traces: RunTraces) -> bool:
    """Whether the user's source calls `id` or passes it on: the order of addresses seldom changes."""
    return any(find_first_line_using_id(file) > 0 for file in list_user_files(traces))


def list_user_files(traces: RunTraces) -> set[str]:
    """The user's files that ran."""
    return {place[0] for trace in traces.traces.values() for place in trace.locations if place[0]}


def has_no_sign_of_race(traces: RunTraces, count_id_calls: bool = True) -> bool:
    """Whether there is no sign of a race: anything else that differs by itself differs in the second run already.

    Signs are threads that draw from one generator or write to one tensor, results taken as they come, clocks that
    may decide something, processes other than a DataLoader's, operators whose order of summation may follow the
    threads, and (`by_address`) `id`. A thread that prepares batches or writes a log is not a sign, nor is the duration
    of a step that is only printed.
    """
    if count_id_calls and any_file_uses_id(traces):
        return False
    clocks: dict[str, set[int]] = {file: set() for file in list_user_files(traces)}
    for role, trace in traces.traces.items():
        if "/" in role and "/loader" not in role:
            return False
        if any(part in name for name in trace.strings for part in UNORDERED if name.startswith("aten.")):
            return False
        if threads_share_generator_or_tensor(trace):
            return False
        for event in select_events(trace, (f.COMPLETION, f.CLOCK)):
            if event.direct and event.kind == f.CLOCK:
                clocks[event.file].add(event.line)
            elif event.direct and not comes_from_single_producer_queue(trace, event):
                return False
    return not any(clocks.values()) or not clock_may_decide(clocks)


def comes_from_single_producer_queue(trace: Trace, event: Event) -> bool:
    """Whether an item comes from a queue that a single thread fills, and so in a fixed order."""
    return event.name in QUEUES and len(select_events(trace, (f.THREAD,))) == 1


def threads_share_generator_or_tensor(trace: Trace) -> bool:
    """Whether several threads draw from one generator, or one writes into what another has written."""
    writes = np.array([n for n, text in enumerate(trace.strings) if is_inplace_operator(text)], dtype=np.uint32)
    drawing: dict[int, set[int]] = defaultdict(set)
    for chunk in trace.chunks():
        foreign = (chunk["kind"] == f.OPERATOR) & ((chunk["flags"] & f.FOREIGN_WRITE) != 0)
        if foreign.any() and bool(np.isin(chunk["name"][foreign], writes).any()):
            return True
        draws = chunk[chunk["kind"] == f.DRAW]
        for name, thread in {(int(n), int(t)) for n, t in zip(draws["name"], draws["thread"], strict=True)}:
            drawing[name].add(thread)
    return any(len(threads) > 1 for threads in drawing.values())


def is_inplace_operator(operator: str) -> bool:
    """Whether an operator writes in place, by its name."""
    return operator.split(".")[1:2] != [] and operator.split(".")[1].endswith("_")
