"""Align two streams of events, skipping events that only one of them has, up to the first difference.

Events are compared as bytes (`comparable_bytes`). An equal stretch is found by comparing longer and longer pieces;
the point at which two runs resynchronise by searching for the next events of one run in the other, further and
further ahead. So the time is linear in the length of the traces, however many operators only one run has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from samerun.record.comparison.streams import Array, ValueStream
from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace
from samerun.record.trace.run import Event, resolve_raw_event

DifferenceKind = Literal[
    "outputs",  # same operator, same inputs
    "inputs",
    "scalars",
    "operator",  # another operator, or operators that only one run has
    "draw",  # a torch generator in another state
    "leaf",  # parameters, gradients, ... after an optimizer step
    "final",  # a model at the end of the program
    "mark",  # a point that the program named with samerun.mark
    "rows",  # what is computed for single samples
    "process",  # only one run has this process
    "printed",  # all values are the same, and what is printed is not
]


RunLabel = Literal["a", "b", ""]
"""Which of the two runs has something; "" for neither."""


@dataclass(frozen=True)
class Difference:
    """The first event at which two runs diverge, in one thread of one process.

    `a`, `b`: the event in each run, None where that run has none. `step`: number of the optimizer step, from 1.
    """

    what: DifferenceKind
    role: str
    thread: str
    a: Event | None
    b: Event | None
    step: int
    ordinal: int
    """Number of the operator among those of its thread in run A, from 1; 0 if the event is not an operator."""
    extra_in: RunLabel = ""
    """With "operator": the run ("a" or "b") that has the extra events, else ""."""
    extra: tuple[Event, ...] = ()
    ordinal_b: int = 0
    also_in: tuple[str, ...] = ()
    """Other processes whose first difference is as early: nothing that the processes exchange tells which was first."""

    @property
    def event(self) -> Event | None:
        """The event of run A, or that of run B where only it has one."""
        return self.a or self.b


def classify_difference_by_event_kind_then_operands(a: Event, b: Event) -> DifferenceKind:
    """What differs between two events of the same kind, name and source location."""
    if a.kind == f.DRAW:
        return "draw"
    if a.kind == f.LEAF:
        return "leaf"
    if a.kind == f.FINAL:
        return "final"
    if a.kind == f.MARK:
        return "mark"
    if a.aux != b.aux:
        return "scalars"
    return "inputs" if a.inputs != b.inputs else "outputs"


RESYNC_WINDOW = 1 << 16
"""How many events ahead two runs may resynchronise."""
RESYNC_LENGTH = 6
"""How many events in a row must be equal for that."""
MAX_EXTRA_REPORTED = 64
FIRST_WINDOW = 16
SIZE = f.EVENT_BYTES
_OPERATOR = bytes([f.OPERATOR])
_RESULTS = frozenset((f.LEAF, f.FINAL, f.MARK))
"""Results of the run. Unlike operators they are never skipped: if only one run has one, that is a difference."""


@dataclass(frozen=True)
class StreamPosition:
    """A position in both streams: the indices of the next events, None at the end of a run.

    `extra`: the indices of the first events that only run `extra_in` has. `ordinal`: number of the operator in run A.
    """

    a: int | None
    b: int | None
    ordinal: int
    extra_in: RunLabel
    extra: tuple[int, ...]


class StreamComparison:
    """Compares the event streams of one thread (or of all threads) of two processes."""

    def __init__(
        self,
        traces: tuple[Trace, Trace],
        streams: tuple[ValueStream, ValueStream],
        role: str,
        ignores_unused_memory: bool = False,
    ) -> None:
        self.ignores_unused_memory = ignores_unused_memory
        self.from_unwritten_memory: Difference | None = None
        """The first operator that gave other values because it read memory that nothing had written."""
        self.has_results = self.trains_after_unwritten_memory = False
        self.traces = traces
        self.role = role
        self.left, self.right = streams
        self.operators = [0, 0]
        self.extra_draw: StreamPosition | None = None
        """The last position at which only one run draws from a torch generator."""

    def find_first_difference(self) -> Difference | None:
        """The first difference of the two streams.

        Values computed from memory that nothing had written do not count if they are not used: a library that wants
        the shapes of results, or a program that warms up, calls operators on `torch.empty`. They are not used if all
        that follows from them is operators of the same names, and a result after the last of them is equal. Where a
        program has no results, as it updates its weights without an optimizer, equal gradients are enough.
        """
        found = self._find_difference()
        return self.from_unwritten_memory if found is not None and self.from_unwritten_memory else found

    def _find_difference(self) -> Difference | None:
        left, right = self.left, self.right
        while left.buffer_at_least(1) | right.buffer_at_least(1):
            size = min(len(left.events), len(right.events))
            equal = count_equal_head_events(left, right, size)
            if self.ignores_unused_memory:
                self._note_results_among_equal_events(equal)
            self._drop_events_and_count_operators(equal, equal)
            if equal == size and size:
                continue
            left.buffer_at_least(RESYNC_WINDOW), right.buffer_at_least(RESYNC_WINDOW)
            if size and has_same_kind_name_and_location(left.head_bytes(1), right.head_bytes(1)):
                if self.ignores_unused_memory and self._note_if_from_unwritten_memory():
                    self._drop_events_and_count_operators(1, 1)
                    continue
                return self._blame_earlier_extra_draw_if_cause(self._make_value_difference_at_heads())
            extra_in, count = find_extra_before_resync(left, right)
            if not count or not _RESULTS.isdisjoint((left if extra_in == "a" else right).kinds_of_first(count)):
                extra_in, count = find_extra_before_resync_ignoring_values(left.events, right.events)
                return self._make_operator_difference(self._make_position_at_heads(extra_in, count))
            self._skip_unmatched_events(extra_in, count)
        is_unused = self.trains_after_unwritten_memory and not self.has_results
        return None if is_unused else self.from_unwritten_memory

    def _note_results_among_equal_events(self, count: int) -> None:
        """Results or gradients that are equal though values before them came from memory that nothing had written."""
        if not _RESULTS.isdisjoint(self.left.kinds_of_first(count)):
            self.has_results, self.from_unwritten_memory = True, None
        if self.from_unwritten_memory is not None:
            events = self.left.events[:count]
            is_backward = (events["kind"] == f.OPERATOR) & ((events["flags"] & f.PHASE_MASK) == f.BACKWARD)
            self.trains_after_unwritten_memory |= bool(is_backward.any())

    def _note_if_from_unwritten_memory(self) -> bool:
        """Whether the operators at the heads differ because one before them, or they, read what nothing had written."""
        if self.left.kinds_of_first(1) != _OPERATOR:
            return False
        self.trains_after_unwritten_memory = False
        if self.from_unwritten_memory is not None:
            return True
        difference = self._make_value_difference_at_heads()
        if is_from_unwritten_memory(difference):
            self.from_unwritten_memory = difference
        return self.from_unwritten_memory is not None

    def _drop_events_and_count_operators(self, left_count: int, right_count: int) -> None:
        for at, stream, count in ((0, self.left, left_count), (1, self.right, right_count)):
            self.operators[at] += stream.kinds_of_first(count).count(_OPERATOR)
            stream.drop_first(count)

    def _skip_unmatched_events(self, only_in_run: RunLabel, event_count: int) -> None:
        if f.DRAW in (self.left if only_in_run == "a" else self.right).kinds_of_first(event_count):
            self.extra_draw = self._make_position_at_heads(only_in_run, event_count)
        self._drop_events_and_count_operators(
            event_count if only_in_run == "a" else 0, event_count if only_in_run == "b" else 0
        )

    def _blame_earlier_extra_draw_if_cause(self, difference: Difference) -> Difference:
        """Report skipped draws as the difference if a later draw finds its generator in another state.

        The extra draws were skipped as harmless. A generator with the same seed in another state shows they were not.
        """
        a, b = difference.a, difference.b
        if difference.what == "draw" and self.extra_draw is not None and a and b and a.inputs == b.inputs:
            return self._make_operator_difference(self.extra_draw)
        return difference

    def _make_position_at_heads(self, extra_in: RunLabel, extra_event_count: int) -> StreamPosition:
        left, right = self.left, self.right
        heads = [int(stream.indices[0]) if len(stream.events) else None for stream in (left, right)]
        extra = (left if extra_in == "a" else right).indices[: min(extra_event_count, MAX_EXTRA_REPORTED)].tolist()
        ordinal = self.operators[0] + 1 if left.kinds_of_first(1) == _OPERATOR else 0
        return StreamPosition(heads[0], heads[1], ordinal, extra_in, tuple(extra))

    def _make_value_difference_at_heads(self) -> Difference:
        a, b = (
            read_event(trace, int(stream.indices[0]))
            for trace, stream in zip(self.traces, (self.left, self.right), strict=True)
        )
        ordinals = [n + 1 if a.kind in (f.OPERATOR, f.DRAW) else 0 for n in self.operators]
        step = self.traces[0].count_steps_before(a.index) + 1
        return Difference(
            classify_difference_by_event_kind_then_operands(a, b), self.traces[0].role, self.role, a, b, step,
            ordinals[0], ordinal_b=ordinals[1],
        )  # fmt: skip

    def _make_operator_difference(self, position: StreamPosition) -> Difference:
        """The two runs continue with different operators."""
        a = read_event(self.traces[0], position.a) if position.a is not None else None
        b = read_event(self.traces[1], position.b) if position.b is not None else None
        first = a or b
        assert first is not None
        step = self.traces[0 if a else 1].count_steps_before(first.index) + 1
        trace = self.traces[0 if position.extra_in == "a" else 1]
        extra = tuple(read_event(trace, index) for index in position.extra)
        role = self.traces[0].role
        return Difference("operator", role, self.role, a, b, step, position.ordinal, position.extra_in, extra)


def is_from_unwritten_memory(difference: Difference) -> bool:
    """Whether a difference is at an operator that read memory that nothing had written."""
    events = (difference.a, difference.b)
    return all(event is not None and event.kind == f.OPERATOR and event.flags & f.UNINITIALISED for event in events)


def read_event(trace: Trace, index: int) -> Event:
    """The event at an index of a trace."""
    return resolve_raw_event(trace, index, trace.raw_event(index))


def count_equal_head_events(a: ValueStream, b: ValueStream, limit: int) -> int:
    """Number of equal events at the start of both buffers, at most `limit`."""
    at, step = 0, FIRST_WINDOW
    while at < limit:
        size = min(step, limit - at)
        if a.bytes_of_events(at, size) != b.bytes_of_events(at, size):
            while size > 1:  # bisect down to one event
                half = size // 2
                if a.bytes_of_events(at, half) == b.bytes_of_events(at, half):
                    at, size = at + half, size - half
                else:
                    size = half
            return at
        at, step = at + size, step * 2
    return limit


def has_same_kind_name_and_location(packed_a: bytes, packed_b: bytes) -> bool:
    """Whether two events have the same kind, name and source location."""
    return packed_a[:1] == packed_b[:1] and packed_a[4:12] == packed_b[4:12]


class ExtraEvents(NamedTuple):
    """The run ("a" or "b") that has extra events before the two resynchronise, and how many; ("", 0) for none."""

    run: RunLabel
    event_count: int


def find_extra_before_resync(a: ValueStream, b: ValueStream) -> ExtraEvents:
    """Which run has extra events before the two resynchronise, and how many; ("", 0) if they never do.

    If one run has ended, all remaining events of the other are extra.
    """
    if not len(a.events) or not len(b.events):
        return ExtraEvents("b", len(b.events)) if not len(a.events) else ExtraEvents("a", len(a.events))
    window = FIRST_WINDOW
    while window <= RESYNC_WINDOW:
        in_b, in_a = _count_events_until_head_recurs(a, b, window), _count_events_until_head_recurs(b, a, window)
        if in_b and (not in_a or in_b <= in_a):
            return ExtraEvents("b", in_b)
        if in_a:
            return ExtraEvents("a", in_a)
        window *= 16
    return ExtraEvents("", 0)


def _count_events_until_head_recurs(head_stream: ValueStream, searched_stream: ValueStream, most_searched: int) -> int:
    """How many events ahead the next events of `head_stream` occur in `searched_stream`; 0 if they do not."""
    length = min(RESYNC_LENGTH, len(head_stream.events))
    wanted, begin = head_stream.head_bytes(length), searched_stream.start * SIZE
    end = min(begin + (most_searched + length) * SIZE, len(searched_stream.raw))
    at = searched_stream.raw.find(wanted, begin + SIZE, end)
    while at >= 0 and (at - begin) % SIZE:  # a match that does not start at an event
        at = searched_stream.raw.find(wanted, at + 1, end)
    return (at - begin) // SIZE if at >= 0 else 0


def find_extra_before_resync_ignoring_values(a: Array, b: Array) -> ExtraEvents:
    """Like `find_extra_before_resync`, but comparing only names and source locations: values may differ."""
    if not len(a) or not len(b):
        return ExtraEvents("b", len(b)) if not len(a) else ExtraEvents("a", len(a))

    def search_ahead(short: Array, long: Array) -> int:
        head = min(RESYNC_LENGTH, len(short))
        candidates = len(long) - head + 1
        if candidates <= 1:
            return 0
        same = np.ones(candidates, dtype=bool)
        for i in range(head):
            same &= _same_name_and_location_mask(long[i : i + candidates], short[i])
        hits = np.flatnonzero(same)
        return int(hits[0]) if len(hits) else 0

    in_b, in_a = search_ahead(a, b), search_ahead(b, a)
    if in_b and (not in_a or in_b <= in_a):
        return ExtraEvents("b", in_b)
    return ExtraEvents("a", in_a) if in_a else ExtraEvents("", 0)


def _same_name_and_location_mask(events: Array, event: Any) -> Array:
    """Mask of the events with the same name and source location as `event`."""
    mask: Array = (events["name"] == event["name"]) & (events["location"] == event["location"])
    return mask
