"""The events of two traces that are compared, in one numbering, a chunk at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from samerun.record import format as f
from samerun.record.reader import EVENT_DTYPE, Trace
from samerun.record.scope import RANKS, WORKERS

SOFT_LEAVES = frozenset(("batch", "rng", "rng.numpy", "rng.python"))
"""Leaves of a step that are evidence only: a generator's state matters when something is drawn from it."""

Array = np.ndarray[Any, Any]


class Names:
    """Translate the numbers of run B's strings and places into run A's."""

    def __init__(self, a: Trace, b: Trace, scope: tuple[str, ...] = ()) -> None:
        self.scope = scope
        strings = {text: number for number, text in enumerate(a.strings)}
        places = {place: number for number, place in enumerate(a.places)}
        self.strings = np.array(
            [strings.get(text, len(a.strings) + i) for i, text in enumerate(b.strings)], dtype=np.uint32
        )
        self.places = np.array(
            [places.get(place, len(a.places) + i) for i, place in enumerate(b.places)], dtype=np.uint32
        )
        named = [*zip(a.strings, range(len(a.strings)), strict=True), *zip(b.strings, self.strings, strict=True)]
        self.soft = np.array([number for text, number in named if text in SOFT_LEAVES], dtype=np.uint32)
        self.params = np.array([number for text, number in named if text == "params"], dtype=np.uint32)
        self.torch = np.array([number for text, number in named if text.startswith("torch")], dtype=np.uint32)

    def translate(self, chunk: Array) -> Array:
        out = chunk.copy()
        out["name"] = self.strings[np.minimum(chunk["name"], len(self.strings) - 1)]
        out["place"] = self.places[np.minimum(chunk["place"], len(self.places) - 1)]
        return out

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


def value_chunks(
    trace: Trace, names: Names, translate: bool, threads: list[int] | None
) -> Iterator[tuple[Array, Array]]:
    """(events compared, their indices in the file), chunk by chunk."""
    at = 0
    for chunk in trace.chunks():
        if translate:
            chunk = names.translate(chunk)
        mask = names.values(chunk)
        if threads is not None:
            mask &= np.isin(chunk["thread"], threads)
        where = np.flatnonzero(mask)
        yield chunk[where], where + at
        at += len(chunk)


class ValueStream:
    """The events of one thread (or of all) that are compared, with as many at hand as are asked for."""

    def __init__(self, trace: Trace, names: Names, translate: bool, threads: list[int] | None) -> None:
        self._more: Iterator[tuple[Array, Array]] | None = value_chunks(trace, names, translate, threads)
        self.events: Array = np.empty(0, EVENT_DTYPE)
        self.indices: Array = np.empty(0, np.int64)

    def fill(self, wanted: int) -> int:
        """Have at least so many events at hand, fewer only at the end; returns how many there are."""
        while len(self.events) < wanted and self._more is not None:
            item = next(self._more, None)
            if item is None:
                self._more = None
            elif len(self.events):
                self.events = np.concatenate([self.events, item[0]])
                self.indices = np.concatenate([self.indices, item[1]])
            else:
                self.events, self.indices = item
        return len(self.events)

    def drop(self, count: int) -> None:
        self.events, self.indices = self.events[count:], self.indices[count:]
