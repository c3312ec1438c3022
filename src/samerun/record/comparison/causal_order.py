"""Which of the differences of several processes comes first: what processes exchange gives the order.

What a rank does before a collective comes before what the other ranks of the group do after it, and what it does before
it sends a message before what the receiver does after that. Differences that nothing orders are equally early. The n-th
collective of a group is the same one on all of its ranks; so it is with the messages from one rank to another.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace
from samerun.record.trace.run import select_events

PROCESS_STARTED = "Process.start"
MOST_EVENTS_BEHIND = 1 << 10


@dataclass
class Exchanges:
    """The collectives and messages of one process: who meets -> for each meeting the last event that comes before it.

    That is the operator which carries it, right behind its event.
    """

    sent: dict[str, list[int]] = field(default_factory=dict)
    received: dict[str, list[int]] = field(default_factory=dict)

    def count_before(self, index: int) -> int:
        """How many there were before an event."""
        both = {id(ends): ends for ends in (*self.sent.values(), *self.received.values())}
        return sum(bisect_left(ends, index) for ends in both.values())


def read_exchanges(trace: Trace) -> Exchanges:
    found = Exchanges()
    for event in select_events(trace, (f.COLLECTIVE,)):
        end = event.index + min(event.inputs, MOST_EVENTS_BEHIND)
        if event.name != f.RECEIVES:
            found.sent.setdefault(event.text, []).append(end)
        if event.name == f.RECEIVES:
            found.received.setdefault(event.text, []).append(end)
        elif event.name != f.SENDS:  # in a collective everybody sends and receives
            found.received[event.text] = found.sent[event.text]
    return found


def select_earliest(differences: Mapping[str, int], exchanges: Mapping[str, Exchanges]) -> list[str]:
    """The processes whose first difference (index of its event) can come from no other's; the order is that given."""
    reached = _spread(differences, exchanges)
    return [role for role, index in differences.items() if index <= reached.get(role, math.inf)]


def _spread(differences: Mapping[str, int], exchanges: Mapping[str, Exchanges]) -> dict[str, float]:
    """Of each process the index behind which it may have what another one computed behind its difference."""
    receivers: dict[str, list[str]] = {}
    for role, one in exchanges.items():
        for who in one.received:
            receivers.setdefault(who, []).append(role)
    reached: dict[str, float] = {}
    first_sent: dict[str, int] = {}
    waiting = deque(differences)
    while waiting:
        role = waiting.popleft()
        begin = min(differences.get(role, math.inf), reached.get(role, math.inf) + 1)
        for who, ends in exchanges[role].sent.items() if role in exchanges else ():
            number = bisect_left(ends, begin)
            if number >= min(len(ends), first_sent.get(who, len(ends))):
                continue
            first_sent[who] = number
            for other in receivers.get(who, ()):
                there = exchanges[other].received[who]
                if other != role and number < len(there) and there[number] < reached.get(other, math.inf):
                    reached[other] = there[number]
                    waiting.append(other)
    return reached


def is_rank(role: str, exchanges: Exchanges) -> bool:
    """Whether a process is one of several that exchange what they compute."""
    return bool(re.fullmatch(r"rank\d+", role)) or bool(exchanges.sent or exchanges.received)


def starts_process_before(trace: Trace, index: int) -> bool:
    """Whether the program itself had started another process before an event."""
    return any(event.name == PROCESS_STARTED for event in select_events(trace, (f.FACT,), index))


def sort_key_of_role(role: str) -> list[str | int]:
    """Sorts rank2 before rank10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d{1,18})", role)]
