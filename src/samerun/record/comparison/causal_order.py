"""Which of the differences of several processes comes first: what processes exchange gives the order.

What a rank does before a collective comes before what the other ranks of the group do after it, and what it does before
it sends a message before what the receiver does after that. Differences that nothing orders are equally early. The n-th
collective of a group is the same one on all of its ranks; so it is with the messages from one rank to another.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from samerun.record.comparison.streams import Array
from samerun.record.trace import format as f
from samerun.record.trace.reader import EVENT_DTYPE, Trace
from samerun.record.trace.run import select_events

MOST_EVENTS_BEHIND = 1 << 10


@dataclass
class CollectivesAndMessages:
    """The collectives and messages of one process: who meets -> for each meeting the last event that comes before it.

    That is the operator which carries it, right behind its event.
    """

    sent: dict[str, Array] = field(default_factory=dict)
    received: dict[str, Array] = field(default_factory=dict)

    def count_exchanges_before(self, index: int) -> int:
        """How many there were before an event."""
        both = {id(ends): ends for ends in (*self.sent.values(), *self.received.values())}
        return sum(int(np.searchsorted(ends, index)) for ends in both.values())


def read_collectives_and_messages(trace: Trace) -> CollectivesAndMessages:
    """The collectives and messages of a process. Ranks may be many, and each may have a great number of them."""
    at, parts, ends = 0, [np.empty(0, EVENT_DTYPE)], [np.empty(0, np.int64)]
    for chunk in trace.iter_event_chunks():
        where = np.flatnonzero(chunk["kind"] == f.COLLECTIVE)
        parts.append(chunk[where])
        ends.append(where + at + np.minimum(chunk["inputs"][where], MOST_EVENTS_BEHIND).astype(np.int64))
        at += len(chunk)
    events, last = np.concatenate(parts), np.concatenate(ends)
    found = CollectivesAndMessages()
    kinds = np.stack([events["name"], events["aux"]], axis=1)
    for name_id, text_id in np.unique(kinds, axis=0).tolist():
        name, text = trace.string_or_empty(name_id), trace.string_or_empty(text_id)
        own = np.sort(last[(kinds[:, 0] == name_id) & (kinds[:, 1] == text_id)])
        if name != f.RECEIVES:
            found.sent[text] = own
        if name != f.SENDS:  # in a collective everybody sends and receives
            found.received[text] = own
    return found


def select_processes_differing_first(
    difference_index_by_role: Mapping[str, int], exchanges: Mapping[str, CollectivesAndMessages]
) -> list[str]:
    """The processes whose first difference (index of its event) can come from no other's; the order is that given."""
    reached = _find_index_reached_from_other_ranks(difference_index_by_role, exchanges)
    return [role for role, index in difference_index_by_role.items() if index <= reached.get(role, math.inf)]


def _find_index_reached_from_other_ranks(
    difference_index_by_role: Mapping[str, int], exchanges: Mapping[str, CollectivesAndMessages]
) -> dict[str, float]:
    """Of each process the index behind which it may have what another one computed behind its difference."""
    receivers: dict[str, list[str]] = {}
    for role, one in exchanges.items():
        for who in one.received:
            receivers.setdefault(who, []).append(role)
    reached: dict[str, float] = {}
    first_sent: dict[str, int] = {}
    waiting = deque(difference_index_by_role)
    while waiting:
        role = waiting.popleft()
        begin = min(difference_index_by_role.get(role, math.inf), reached.get(role, math.inf) + 1)
        for who, ends in exchanges[role].sent.items() if role in exchanges else ():
            number = int(np.searchsorted(ends, begin))
            if number >= min(len(ends), first_sent.get(who, len(ends))):
                continue
            first_sent[who] = number
            for other in receivers.get(who, ()):
                there = exchanges[other].received[who]
                if other != role and number < len(there) and there[number] < reached.get(other, math.inf):
                    reached[other] = there[number]
                    waiting.append(other)
    return reached


def is_rank_or_communicating_process(role: str, exchanges: CollectivesAndMessages) -> bool:
    """Whether a process is one of several that exchange what they compute."""
    return bool(re.fullmatch(r"rank\d+", role)) or bool(exchanges.sent or exchanges.received)


def starts_process_before(trace: Trace, index: int) -> bool:
    """Whether the program itself had started another process before an event."""
    return any(event.name == f.PROCESS_STARTED for event in select_events(trace, (f.FACT,), index))


def sort_key_of_role(role: str) -> list[str | int]:
    """Sorts rank2 before rank10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d{1,18})", role)]
