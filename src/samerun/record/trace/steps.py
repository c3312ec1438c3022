"""A trace split into its optimizer steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace
from samerun.record.trace.run import Event, select_events


@dataclass(frozen=True)
class Step:
    """The events from the end of the previous optimizer step to the end of this one.

    number: from 1. begin, end: indices of the first event and of the STEP event. leaves: digest of each state
    (parameters, gradients, ...) after the step, in the order of the trace. The events themselves are read on demand.
    """

    trace: Trace
    number: int
    begin: int
    end: int
    leaves: dict[str, bytes]

    def select_events(self, *kinds: int) -> list[Event]:
        return select_events(self.trace, kinds, self.end + 1, self.begin)

    def leaf_event(self, name: str) -> Event | None:
        return next((event for event in self.select_events(f.LEAF) if event.name == name), None)

    def differing_leaves(self, other: Step) -> list[str]:
        """Names of the leaves whose digests differ between the two steps."""
        names = dict.fromkeys((*self.leaves, *other.leaves))
        return [name for name in names if self.leaves.get(name) != other.leaves.get(name)]


def read_steps(trace: Trace) -> list[Step]:
    """The optimizer steps of a process, in order."""
    steps: list[Step] = []
    leaves: dict[str, bytes] = {}
    begin = at = 0
    for chunk in trace.chunks():
        rows = np.flatnonzero(np.isin(chunk["kind"], (f.LEAF, f.STEP)))
        records = chunk[rows]
        digests = np.stack([records["out0"], records["out1"]], axis=1).astype("<u8").tobytes()
        fields = zip(rows.tolist(), records["kind"].tolist(), records["name"].tolist(), strict=True)
        for i, (row, kind, name) in enumerate(fields):
            if kind == f.LEAF:
                leaves[trace.string(name)] = digests[16 * i : 16 * i + 16]
            else:
                steps.append(Step(trace, len(steps) + 1, begin, at + row, leaves))
                leaves, begin = {}, at + row + 1
        at += len(chunk)
    return steps


def final_model_digests(trace: Trace) -> dict[str, list[bytes]]:
    """Model class -> sorted digests of the models of that class at the end of the program."""
    digests_by_class: dict[str, list[bytes]] = {}
    for event in select_events(trace, (f.FINAL,)):
        digests_by_class.setdefault(event.name, []).append(event.outputs)
    return {name: sorted(digests) for name, digests in digests_by_class.items()}
