"""Two streams of events, position by position, with what only one of them has passed over.

Events are compared as bytes: `ValueStream.raw` holds each without what does not count, so that equal bytes are equal
events. A stretch that is the same is found by comparing longer and longer pieces, and where the runs go on alike by
searching for the next events of the one in the other, further and further ahead. So the time grows with the length of
the traces, however many operators only one of them has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from samerun.record.comparison.difference import Difference, kind_of_difference
from samerun.record.comparison.streams import Array, ValueStream
from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace
from samerun.record.trace.run import Event, resolve

RESYNC = 1 << 16
"""So far ahead it is looked whether two runs go on alike."""
RESYNC_RUN = 6
"""So many events in a row must be the same for that."""
SHOWN = 64
FIRST_WINDOW = 16
SIZE = f.EVENT_BYTES
_OPERATOR = bytes([f.OPERATOR])
_RESULTS = frozenset((f.LEAF, f.FINAL, f.MARK))
"""Optimizer steps and ended models are results: what only one run has of them is a difference."""


@dataclass(frozen=True)
class Position:
    """Where two streams stood: the indices of the events at hand, None where a run has ended.

    `extra`: the indices of the first events that only one run has, `extra_in` that run. `ordinal`: number of the
    operator in run A.
    """

    a: int | None
    b: int | None
    ordinal: int
    extra_in: str
    extra: tuple[int, ...]


class StreamComparison:
    """Two streams of the events of one thread (or of all)."""

    def __init__(self, traces: tuple[Trace, Trace], streams: tuple[ValueStream, ValueStream], role: str) -> None:
        self.traces = traces
        self.role = role
        self.left, self.right = streams
        self.operators = [0, 0]
        self.inserted: Position | None = None
        """The last place where one run alone draws from a torch generator."""

    def first(self) -> Difference | None:
        left, right = self.left, self.right
        while left.fill(1) | right.fill(1):
            size = min(len(left.events), len(right.events))
            same = count_equal(left, right, size)
            self._drop(same, same)
            if same == size and size:
                continue
            left.fill(RESYNC), right.fill(RESYNC)
            if size and same_place(left.head(1), right.head(1)):
                return self._blame(self._value_difference())
            extra_in, count = find_resync(left, right)
            if not count or not _RESULTS.isdisjoint((left if extra_in == "a" else right).kinds(count)):
                return self._other_operator(self._position(*self._extra()))
            self._pass_over(extra_in, count)
        return None

    def _drop(self, left: int, right: int) -> None:
        for at, stream, count in ((0, self.left, left), (1, self.right, right)):
            self.operators[at] += stream.kinds(count).count(_OPERATOR)
            stream.drop(count)

    def _pass_over(self, extra_in: str, count: int) -> None:
        if f.DRAW in (self.left if extra_in == "a" else self.right).kinds(count):
            self.inserted = self._position(extra_in, count)
        self._drop(count if extra_in == "a" else 0, count if extra_in == "b" else 0)

    def _blame(self, difference: Difference) -> Difference:
        """A generator in another state after draws that only one run made: they are the difference."""
        a, b = difference.a, difference.b
        if difference.what == "draw" and self.inserted is not None and a and b and a.inputs == b.inputs:
            return self._other_operator(self.inserted)
        return difference

    def _extra(self) -> tuple[str, int]:
        """What one run has more where the two go on with other operators."""
        return find_other_operators(self.left.events, self.right.events)

    def _position(self, extra_in: str, count: int) -> Position:
        left, right = self.left, self.right
        heads = [int(stream.indices[0]) if len(stream.events) else None for stream in (left, right)]
        extra = (left if extra_in == "a" else right).indices[: min(count, SHOWN)].tolist()
        ordinal = self.operators[0] + 1 if left.kinds(1) == _OPERATOR else 0
        return Position(heads[0], heads[1], ordinal, extra_in, tuple(extra))

    def _value_difference(self) -> Difference:
        one, other = (
            event_at(trace, int(stream.indices[0]))
            for trace, stream in zip(self.traces, (self.left, self.right), strict=True)
        )
        ordinals = [n + 1 if one.kind in (f.OPERATOR, f.DRAW) else 0 for n in self.operators]
        step = self.traces[0].steps_before(one.index) + 1
        return Difference(
            kind_of_difference(one, other), self.traces[0].role, self.role, one, other, step, ordinals[0],
            ordinal_b=ordinals[1],
        )  # fmt: skip

    def _other_operator(self, at: Position) -> Difference:
        """One run goes on with something else."""
        one = event_at(self.traces[0], at.a) if at.a is not None else None
        other = event_at(self.traces[1], at.b) if at.b is not None else None
        first = one or other
        assert first is not None
        step = self.traces[0 if one else 1].steps_before(first.index) + 1
        trace = self.traces[0 if at.extra_in == "a" else 1]
        extra = tuple(event_at(trace, index) for index in at.extra)
        role = self.traces[0].role
        return Difference("operator", role, self.role, one, other, step, at.ordinal, at.extra_in, extra)


def event_at(trace: Trace, index: int) -> Event:
    """One event with its numbers resolved as the file has them."""
    return resolve(trace, index, trace.event(index))


def count_equal(a: ValueStream, b: ValueStream, most: int) -> int:
    """How many events at hand are the same, of at most so many."""
    at, step = 0, FIRST_WINDOW
    while at < most:
        size = min(step, most - at)
        if a.slice(at, size) != b.slice(at, size):
            while size > 1:  # halve it until one event is left
                half = size // 2
                if a.slice(at, half) == b.slice(at, half):
                    at, size = at + half, size - half
                else:
                    size = half
            return at
        at, step = at + size, step * 2
    return most


def same_place(a: bytes, b: bytes) -> bool:
    """Whether two events are of the same kind, name and place."""
    return a[:1] == b[:1] and a[4:12] == b[4:12]


def find_resync(a: ValueStream, b: ValueStream) -> tuple[str, int]:
    """Which run has extra events before the two go on alike, and how many; ("", 0) when they do not.

    A run that has ended goes on alike with what is not there: all that the other still has is extra.
    """
    if not len(a.events) or not len(b.events):
        return ("b", len(b.events)) if not len(a.events) else ("a", len(a.events))
    window = FIRST_WINDOW
    while window <= RESYNC:
        in_b, in_a = _find(a, b, window), _find(b, a, window)
        if in_b and (not in_a or in_b <= in_a):
            return "b", in_b
        if in_a:
            return "a", in_a
        window *= 16
    return "", 0


def _find(short: ValueStream, long: ValueStream, window: int) -> int:
    """How far ahead in `long` the next events of `short` stand; 0 where they do not."""
    run = min(RESYNC_RUN, len(short.events))
    wanted, begin = short.head(run), long.start * SIZE
    end = min(begin + (window + run) * SIZE, len(long.raw))
    at = long.raw.find(wanted, begin + SIZE, end)
    while at >= 0 and (at - begin) % SIZE:
        at = long.raw.find(wanted, at + 1, end)
    return (at - begin) // SIZE if at >= 0 else 0


def find_other_operators(a: Array, b: Array) -> tuple[str, int]:
    """As `find_resync`, by names and lines alone: values may differ."""
    if not len(a) or not len(b):
        return ("b", len(b)) if not len(a) else ("a", len(a))

    def find(short: Array, long: Array) -> int:
        head = min(RESYNC_RUN, len(short))
        places = len(long) - head + 1
        if places <= 1:
            return 0
        same = np.ones(places, dtype=bool)
        for i in range(head):
            same &= ~_elsewhere(long[i : i + places], short[i])
        hits = np.flatnonzero(same)
        return int(hits[0]) if len(hits) else 0

    in_b, in_a = find(a, b), find(b, a)
    if in_b and (not in_a or in_b <= in_a):
        return "b", in_b
    return ("a", in_a) if in_a else ("", 0)


def _elsewhere(events: Array, one: Any) -> Array:
    """Mask of the events that are another operator, or another line, than `one`."""
    wrong: Array = (events["name"] != one["name"]) | (events["place"] != one["place"])
    return wrong
