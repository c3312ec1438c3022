"""The events of two traces that are compared, in one numbering, a chunk at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from samerun.record.trace import format as f
from samerun.record.trace.reader import EVENT_DTYPE, Trace
from samerun.record.trace.scope import RANKS, WORKERS

SOFT_LEAVES = frozenset(("batch", "rng", "rng.numpy", "rng.python"))
"""Leaves of a step that are evidence only: a generator's state matters when something is drawn from it."""

Array = np.ndarray[Any, Any]


class Names:
    """Translate the numbers of run B's strings and places into run A's.

    A stranger's trace may hold a string twice, or events with numbers that none has. So run A's numbers are translated,
    too, where they have to be: otherwise a run would differ from itself.
    """

    def __init__(self, a: Trace, b: Trace, scope: tuple[str, ...] = ()) -> None:
        self.scope = scope
        self.own_strings, self.strings = _numbers(a.strings, b.strings)
        self.own_places, self.places = _numbers(a.places, b.places)
        named = [*zip(a.strings, self.own_strings, strict=True), *zip(b.strings, self.strings, strict=True)]
        self.soft = np.array([number for text, number in named if text in SOFT_LEAVES], dtype=np.uint32)
        self.params = np.array([number for text, number in named if text == "params"], dtype=np.uint32)
        self.torch = np.array([number for text, number in named if text.startswith("torch")], dtype=np.uint32)

    def translate(self, chunk: Array) -> Array:
        """Events of run B."""
        return _renumbered(chunk, self.strings, self.places)

    def clean(self, chunk: Array) -> Array:
        """Events of run A."""
        for field, numbers in (("name", self.own_strings), ("place", self.own_places)):
            if chunk[field].max(initial=0) >= len(numbers) or numbers[-1] != len(numbers) - 1:
                return _renumbered(chunk, self.own_strings, self.own_places)
        return chunk

    def values(self, chunk: Array) -> Array:
        """Mask of the events that are compared."""
        kind = chunk["kind"]
        mask: Array = (kind == f.OPERATOR) | (kind == f.FINAL) | (kind == f.MARK)
        leaf = kind == f.LEAF
        if leaf.any():
            mask |= leaf & ~np.isin(chunk["name"], self.soft)
        draw = kind == f.DRAW
        if draw.any():
            mask |= draw & np.isin(chunk["name"], self.torch)
        if WORKERS in self.scope:
            mask &= (chunk["flags"] & f.PHASE_MASK) != f.DATA
        if RANKS in self.scope:
            mask &= (kind == f.FINAL) | (leaf & np.isin(chunk["name"], self.params))
        return mask


def _numbers(a: Sequence[Any], b: Sequence[Any]) -> tuple[Array, Array]:
    """For every entry of either its number: equal ones share it, and A's keep theirs if all differ."""
    known: dict[Any, int] = {}
    for entry in a:
        known.setdefault(entry, len(known))
    own = np.array([known[entry] for entry in a], dtype=np.uint32)
    for entry in b:
        known.setdefault(entry, len(known))
    return own, np.array([known[entry] for entry in b], dtype=np.uint32)


def _renumbered(chunk: Array, strings: Array, places: Array) -> Array:
    out = chunk.copy()
    for field, numbers in (("name", strings), ("place", places)):
        out[field] = numbers[np.where(chunk[field] < len(numbers), chunk[field], 0)]  # none has it: as `Trace.string`
    return out


def value_chunks(
    trace: Trace, names: Names, translate: bool, threads: list[int] | None
) -> Iterator[tuple[Array, Array]]:
    """(events compared, their indices in the file), chunk by chunk."""
    at = 0
    for chunk in trace.chunks():
        chunk = names.translate(chunk) if translate else names.clean(chunk)
        mask = names.values(chunk)
        if threads is not None:
            mask &= np.isin(chunk["thread"], threads)
        where = np.flatnonzero(mask)
        yield chunk[where], where + at
        at += len(chunk)


def raw_of(events: Array) -> bytes:
    """The events without what does not count, so that equal bytes are equal events."""
    counted = events.copy()
    counted["flags"] = 0
    counted["thread"] = 0
    counted["aux"][counted["kind"] != f.OPERATOR] = 0
    return counted.tobytes()


class ValueStream:
    """The events of one thread (or of all) that are compared, with as many at hand as are asked for.

    `raw`: see `raw_of`; `start`: number of the event in it that is the first at hand.
    """

    def __init__(self, chunks: Iterator[tuple[Array, Array]]) -> None:
        self._more: Iterator[tuple[Array, Array]] | None = chunks
        self.events: Array = np.empty(0, EVENT_DTYPE)
        self.indices: Array = np.empty(0, np.int64)
        self.raw, self.start = b"", 0

    def fill(self, wanted: int) -> int:
        """Have at least so many events at hand, fewer only at the end; returns how many there are."""
        parts: list[tuple[Array, Array]] = []
        there = len(self.events)
        while there < wanted and self._more is not None:
            item = next(self._more, None)
            if item is None:
                self._more = None
            elif len(item[0]):
                parts.append(item)
                there += len(item[0])
        if parts and not len(self.events) and len(parts) == 1:
            self.events, self.indices = parts[0]
            self.raw, self.start = raw_of(self.events), 0
        elif parts:
            self.raw = b"".join([self.raw[self.start * f.EVENT_BYTES :], *(raw_of(events) for events, _ in parts)])
            self.start = 0
            self.events = np.concatenate([self.events, *(events for events, _ in parts)])
            self.indices = np.concatenate([self.indices, *(indices for _, indices in parts)])
        return there

    def drop(self, count: int) -> None:
        self.events, self.indices = self.events[count:], self.indices[count:]
        self.start += count

    def slice(self, at: int, count: int) -> bytes:
        """So many events at hand, from one on."""
        begin = (self.start + at) * f.EVENT_BYTES
        return self.raw[begin : begin + count * f.EVENT_BYTES]

    def head(self, count: int) -> bytes:
        return self.slice(0, count)

    def kinds(self, count: int) -> bytes:
        """A byte for each of the first events at hand."""
        return self.head(count)[:: f.EVENT_BYTES]


class ThreadStreams:
    """The streams of the threads of one process. `threads`: how many there are; None: all are one stream.

    A trace is gone through once for each of a few threads. Of many, all events are held in memory, by thread.
    """

    FEW = 8

    def __init__(self, trace: Trace, names: Names, translate: bool, threads: int | None) -> None:
        self._trace, self._names, self._translate, self._threads = trace, names, translate, threads
        self._by_thread: tuple[Array, Array, list[int]] | None = None

    def stream(self, numbers: list[int]) -> ValueStream:
        return ValueStream(self._chunks(numbers))

    def gather(self, numbers: list[int]) -> tuple[Array, Array]:
        """All events of some threads, and their indices in the file, in order."""
        parts = [(np.empty(0, EVENT_DTYPE), np.empty(0, np.int64)), *self._chunks(numbers)]
        return np.concatenate([events for events, _ in parts]), np.concatenate([indices for _, indices in parts])

    def _chunks(self, numbers: list[int]) -> Iterator[tuple[Array, Array]]:
        if self._threads is None or self._threads <= self.FEW:
            threads = None if self._threads is None else numbers
            return value_chunks(self._trace, self._names, self._translate, threads)
        return iter([self._held(numbers)])

    def _held(self, numbers: list[int]) -> tuple[Array, Array]:
        if self._by_thread is None:
            parts = list(value_chunks(self._trace, self._names, self._translate, None))
            events = np.concatenate([np.empty(0, EVENT_DTYPE), *(each for each, _ in parts)])
            indices = np.concatenate([np.empty(0, np.int64), *(each for _, each in parts)])
            order = np.argsort(events["thread"], kind="stable")
            bounds = np.searchsorted(events["thread"][order].astype(np.int64), np.arange(0x10001)).tolist()
            self._by_thread = events[order], indices[order], bounds
        events, indices, bounds = self._by_thread
        if len(numbers) == 1:
            begin, end = bounds[numbers[0]], bounds[numbers[0] + 1]
            return events[begin:end], indices[begin:end]
        where = [np.arange(bounds[n], bounds[n + 1]) for n in numbers]
        chosen = np.concatenate([np.empty(0, np.int64), *where])
        chosen = chosen[np.argsort(indices[chosen], kind="stable")]
        return events[chosen], indices[chosen]
