"""The events of two traces that are compared, under one numbering of strings and source locations, in chunks.

A scope is a tuple of the names below. It says what is not compared, for runs that are not meant to be equal
everywhere: with another number of DataLoader workers, say, the same batches are made in other processes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from samerun.record.trace import format as f
from samerun.record.trace.reader import EVENT_DTYPE, Trace

IGNORE_DATA_LOADING: Final = "workers"
"""Skip what DataLoaders do, in worker processes and in the main one."""
IGNORE_CHILDREN: Final = "children"
"""Skip child processes: under another start method they may, or may not, run through the program's file again."""
ONLY_RANK_0: Final = "ranks"
"""Compare only what the model of rank 0 holds after each step and at the end."""
ONLY_SAMPLE_ROWS: Final = "rows"
"""Compare only what is computed for each sample, whatever batch it comes in."""
IGNORE_UNUSED_MEMORY: Final = "unused"
"""Skip what is computed from memory that nothing wrote, if every result after it is equal: then nobody uses it."""
ONLY_MAIN_THREAD: Final = "main-thread"
"""Compare only what the main thread of each process does."""
ScopeRestriction = Literal["workers", "children", "ranks", "rows", "unused", "main-thread"]
ComparisonScope = tuple[ScopeRestriction, ...]

SOFT_LEAVES = frozenset(("batch", "rng", "rng.numpy", "rng.python"))
"""States of a step that are evidence only: a generator's state matters once something is drawn from it."""

Array = np.ndarray[Any, Any]


class IndexedEvents(NamedTuple):
    """Events, and their indices in the trace."""

    events: Array
    indices: Array


def is_process_compared(role: str, scope: ComparisonScope) -> bool:
    if IGNORE_DATA_LOADING in scope and re.search(r"/loader\d+\.worker\d+", role):
        return False
    if IGNORE_CHILDREN in scope and "/" in role:
        return False
    return ONLY_RANK_0 not in scope or role in ("main", "rank0")


class SharedNumbering:
    """Translates the string and location ids of two traces into one numbering, that of run A.

    A hostile trace may define a string twice, or use ids that it never defines. So run A's own ids are translated too
    where necessary: otherwise a run could differ from itself.
    """

    def __init__(self, a: Trace, b: Trace, scope: ComparisonScope = ()) -> None:
        self.scope = scope
        self.strings_a, self.strings_b = _assign_shared_ids(a.strings, b.strings)
        self.locations_a, self.locations_b = _assign_shared_ids(a.locations, b.locations)
        named = [*zip(a.strings, self.strings_a, strict=True), *zip(b.strings, self.strings_b, strict=True)]
        self.soft = np.array([number for text, number in named if text in SOFT_LEAVES], dtype=np.uint32)
        self.params = np.array([number for text, number in named if text == "params"], dtype=np.uint32)
        self.torch = np.array([number for text, number in named if text.startswith("torch")], dtype=np.uint32)

    def translate_b(self, events: Array) -> Array:
        """Events of run B with shared ids."""
        return _translate_ids(events, self.strings_b, self.locations_b)

    def translate_a(self, events: Array) -> Array:
        """Events of run A with shared ids; usually the chunk itself."""
        for field, numbers in (("name", self.strings_a), ("location", self.locations_a)):
            if events[field].max(initial=0) >= len(numbers) or numbers[-1] != len(numbers) - 1:
                return _translate_ids(events, self.strings_a, self.locations_a)
        return events

    def mask_compared_kinds_in_scope(self, events: Array) -> Array:
        """Mask of the events that are compared: those that hold computed values, within the scope."""
        kind = events["kind"]
        mask: Array = (kind == f.OPERATOR) | (kind == f.FINAL) | (kind == f.MARK)
        leaf = kind == f.LEAF
        if leaf.any():
            mask |= leaf & ~np.isin(events["name"], self.soft)
        draw = kind == f.DRAW
        if draw.any():
            mask |= draw & np.isin(events["name"], self.torch)
        if IGNORE_DATA_LOADING in self.scope:
            mask &= (events["flags"] & f.PHASE_MASK) != f.DATA
        if ONLY_RANK_0 in self.scope:
            mask &= (kind == f.FINAL) | (leaf & np.isin(events["name"], self.params))
        return mask


def _assign_shared_ids(a: Sequence[Any], b: Sequence[Any]) -> tuple[Array, Array]:
    """The shared id of every entry of both tables. Equal entries share one; A's ids stay as they are if all differ."""
    known: dict[Any, int] = {}
    for entry in a:
        known.setdefault(entry, len(known))
    ids_a = np.array([known[entry] for entry in a], dtype=np.uint32)
    for entry in b:
        known.setdefault(entry, len(known))
    return ids_a, np.array([known[entry] for entry in b], dtype=np.uint32)


def _translate_ids(events: Array, shared_string_ids: Array, shared_location_ids: Array) -> Array:
    out: Array = events.copy()
    for field, numbers in (("name", shared_string_ids), ("location", shared_location_ids)):
        # Undefined ids read as 0, as in `Trace.string_or_empty`.
        out[field] = numbers[np.where(events[field] < len(numbers), events[field], 0)]
    return out


def iter_compared_chunks(
    trace: Trace, numbering: SharedNumbering, is_run_b: bool, thread_numbers: list[int] | None
) -> Iterator[IndexedEvents]:
    """Yield (compared events, their indices in the trace), chunk by chunk. `thread_numbers`: None for all."""
    at = 0
    for chunk in trace.iter_event_chunks():
        chunk = numbering.translate_b(chunk) if is_run_b else numbering.translate_a(chunk)
        mask = numbering.mask_compared_kinds_in_scope(chunk)
        if thread_numbers is not None:
            mask &= np.isin(chunk["thread"], thread_numbers)
        where = np.flatnonzero(mask)
        yield IndexedEvents(chunk[where], where + at)
        at += len(chunk)


def comparable_bytes(events: Array) -> bytes:
    """The events with fields zeroed that may differ, so that equal bytes mean equal events."""
    masked = events.copy()
    masked["flags"] = 0
    masked["thread"] = 0
    masked["aux"][masked["kind"] != f.OPERATOR] = 0
    content: bytes = masked.tobytes()
    return content


class ValueStream:
    """The compared events of one thread (or of all), buffered as far as they are needed.

    `events`, `indices`: the buffered events and their indices in the trace. `raw`: their `comparable_bytes`, in which
    `start` is the number of the first buffered event.
    """

    def __init__(self, chunks: Iterator[IndexedEvents]) -> None:
        self._more: Iterator[IndexedEvents] | None = chunks
        self.events: Array = np.empty(0, EVENT_DTYPE)
        self.indices: Array = np.empty(0, np.int64)
        self.raw, self.start = b"", 0

    def buffer_at_least(self, event_count: int) -> int:
        """Buffer at least `event_count` events, fewer only at the end of the trace; returns how many are buffered."""
        parts: list[IndexedEvents] = []
        count = len(self.events)
        while count < event_count and self._more is not None:
            item = next(self._more, None)
            if item is None:
                self._more = None
            elif len(item[0]):
                parts.append(item)
                count += len(item[0])
        if parts and not len(self.events) and len(parts) == 1:
            self.events, self.indices = parts[0]
            self.raw, self.start = comparable_bytes(self.events), 0
        elif parts:
            added = [comparable_bytes(events) for events, _ in parts]
            self.raw = b"".join([self.raw[self.start * f.EVENT_BYTES :], *added])
            self.start = 0
            self.events = np.concatenate([self.events, *(events for events, _ in parts)])
            self.indices = np.concatenate([self.indices, *(indices for _, indices in parts)])
        return count

    def drop_first(self, event_count: int) -> None:
        """Remove the first events from the buffer."""
        self.events, self.indices = self.events[event_count:], self.indices[event_count:]
        self.start += event_count

    def bytes_of_events(self, first_event: int, event_count: int) -> bytes:
        """The comparable bytes of `event_count` buffered events from number `first_event` on."""
        begin = (self.start + first_event) * f.EVENT_BYTES
        return self.raw[begin : begin + event_count * f.EVENT_BYTES]

    def head_bytes(self, event_count: int) -> bytes:
        """The comparable bytes of the first buffered events."""
        return self.bytes_of_events(0, event_count)

    def kinds_of_first(self, event_count: int) -> bytes:
        """The kinds of the first buffered events, one byte each."""
        return self.head_bytes(event_count)[:: f.EVENT_BYTES]


class ThreadStreams:
    """The event streams of the threads of one process. `threads`: how many there are; None: treat all as one stream.

    With few threads the trace is read once for each of them, which needs no memory. With many, that would be
    quadratic: all events are held in memory, sorted by thread.
    """

    MAX_THREADS_READ_SEPARATELY = 8

    def __init__(self, trace: Trace, numbering: SharedNumbering, is_run_b: bool, thread_count: int | None) -> None:
        self._trace, self._numbering, self._is_run_b, self._threads = trace, numbering, is_run_b, thread_count
        self._by_thread: tuple[Array, Array, list[int]] | None = None

    def open_stream(self, thread_numbers: list[int]) -> ValueStream:
        """The events of the threads with these numbers, as a stream."""
        return ValueStream(self._iter_event_chunks(thread_numbers))

    def gather_events(self, thread_numbers: list[int]) -> IndexedEvents:
        """All events of the threads with these numbers, and their indices in the trace, in order."""
        parts = [(np.empty(0, EVENT_DTYPE), np.empty(0, np.int64)), *self._iter_event_chunks(thread_numbers)]
        return IndexedEvents(
            np.concatenate([events for events, _ in parts]), np.concatenate([indices for _, indices in parts])
        )

    def _iter_event_chunks(self, thread_numbers: list[int]) -> Iterator[IndexedEvents]:
        if self._threads is None or self._threads <= self.MAX_THREADS_READ_SEPARATELY:
            selected = None if self._threads is None else thread_numbers
            return iter_compared_chunks(self._trace, self._numbering, self._is_run_b, selected)
        return iter([self._select_threads_from_memory(thread_numbers)])

    def _select_threads_from_memory(self, thread_numbers: list[int]) -> IndexedEvents:
        if self._by_thread is None:
            parts = list(iter_compared_chunks(self._trace, self._numbering, self._is_run_b, None))
            events = np.concatenate([np.empty(0, EVENT_DTYPE), *(each for each, _ in parts)])
            indices = np.concatenate([np.empty(0, np.int64), *(each for _, each in parts)])
            order = np.argsort(events["thread"], kind="stable")
            bounds = np.searchsorted(events["thread"][order].astype(np.int64), np.arange(0x10001)).tolist()
            self._by_thread = events[order], indices[order], bounds
        events, indices, bounds = self._by_thread
        if len(thread_numbers) == 1:
            begin, end = bounds[thread_numbers[0]], bounds[thread_numbers[0] + 1]
            return IndexedEvents(events[begin:end], indices[begin:end])
        where = [np.arange(bounds[n], bounds[n + 1]) for n in thread_numbers]
        chosen = np.concatenate([np.empty(0, np.int64), *where])
        chosen = chosen[np.argsort(indices[chosen], kind="stable")]
        return IndexedEvents(events[chosen], indices[chosen])
