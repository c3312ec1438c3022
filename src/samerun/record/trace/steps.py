"""A trace cut at its optimizer steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace
from samerun.record.trace.run import Event, events_of


@dataclass(frozen=True)
class Step:
    """What happened from the end of the step before to the end of this one.

    number: from 1. begin, end: indices of the first event and of the one that ends the step. leaves: name and
    digest of what was held after it, in the order of the trace. The events themselves are read when asked for.
    """

    trace: Trace
    number: int
    begin: int
    end: int
    leaves: dict[str, bytes]

    def events(self, *kinds: int) -> list[Event]:
        return events_of(self.trace, kinds, self.end + 1, self.begin)

    def leaf(self, name: str) -> Event | None:
        return next((event for event in self.events(f.LEAF) if event.name == name), None)

    def differing(self, other: Step) -> list[str]:
        """Names of the leaves that are not the same in both."""
        names = dict.fromkeys((*self.leaves, *other.leaves))
        return [name for name in names if self.leaves.get(name) != other.leaves.get(name)]


def steps_of(trace: Trace) -> list[Step]:
    """The steps of a process, in order."""
    found: list[Step] = []
    leaves: dict[str, bytes] = {}
    begin = at = 0
    for chunk in trace.chunks():
        rows = np.flatnonzero(np.isin(chunk["kind"], (f.LEAF, f.STEP)))
        held = chunk[rows]
        digests = np.stack([held["out0"], held["out1"]], axis=1).astype("<u8").tobytes()
        fields = zip(rows.tolist(), held["kind"].tolist(), held["name"].tolist(), strict=True)
        for i, (row, kind, name) in enumerate(fields):
            if kind == f.LEAF:
                leaves[trace.string(name)] = digests[16 * i : 16 * i + 16]
            else:
                found.append(Step(trace, len(found) + 1, begin, at + row, leaves))
                leaves, begin = {}, at + row + 1
        at += len(chunk)
    return found


def final_digests(trace: Trace) -> dict[str, list[bytes]]:
    """Class of model -> what the models of this class held when the program ended, in the order of the digests."""
    found: dict[str, list[bytes]] = {}
    for event in events_of(trace, (f.FINAL,)):
        found.setdefault(event.name, []).append(event.outputs)
    return {name: sorted(digests) for name, digests in found.items()}
