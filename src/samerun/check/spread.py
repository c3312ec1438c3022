"""How far a difference spreads: which optimizer steps differ, in what, and whether the end does."""

from __future__ import annotations

import numpy as np

from samerun.base.records import Spread
from samerun.check.runner import Run
from samerun.record import format as f
from samerun.record.reader import Trace
from samerun.record.run import events_of
from samerun.record.streams import SOFT_LEAVES


def spread(a: Run, b: Run) -> Spread | None:
    """Compare two runs step by step, by their digests; None where they made no steps."""
    one, other = a.traces.main, b.traces.main
    if one is None or other is None:
        return None
    steps = min(a.traces.steps(), b.traces.steps())
    if not steps:
        return None
    left, right = leaves(one), leaves(other)
    count = min(len(left), len(right))
    left, right = left[:count], right[:count]
    differs = np.zeros(steps, bool)
    at = left[np.any(left != right, axis=1), 0].astype(np.int64)
    differs[at[at < steps]] = True
    return Spread(steps=steps, different=ranges(differs), leaves=first_in(one, other), end=end(one, other))


def leaves(trace: Trace) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
    """Step (from 0) and digest (two words) of every leaf but the random states, which by themselves are no result."""
    parts, before = [], 0
    soft = {number for number, text in enumerate(trace.strings) if text in SOFT_LEAVES}
    for chunk in trace.chunks():
        step = before + np.cumsum(chunk["kind"] == f.STEP)
        held = (chunk["kind"] == f.LEAF) & ~np.isin(chunk["name"], list(soft))
        parts.append(np.stack([step[held].astype(np.uint64), chunk["out0"][held], chunk["out1"][held]], axis=1))
        before = int(step[-1]) if len(step) else before
    return np.concatenate(parts) if parts else np.empty((0, 3), np.uint64)


def ranges(differs: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> tuple[tuple[int, int], ...]:
    """First and last step of each stretch that differs; steps are numbered from 1."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], differs, [False]]).astype(np.int8)))
    return tuple((int(first) + 1, int(last)) for first, last in edges.reshape(-1, 2))


def first_in(one: Trace, other: Trace) -> tuple[tuple[str, int], ...]:
    """Parameters, gradients, loss, ...: in which step each differs first; those that never do are left out."""
    found: dict[str, int] = {}
    step = 1
    kinds = (f.LEAF, f.STEP)
    for left, right in zip(events_of(one, kinds), events_of(other, kinds), strict=False):
        if left.kind != right.kind or left.name != right.name:
            break
        if left.kind == f.STEP:
            step += 1
        elif left.outputs != right.outputs:
            found.setdefault(left.name, step)
    return tuple(sorted(found.items(), key=lambda item: (item[1], item[0])))


def end(one: Trace, other: Trace) -> str:
    """Whether the models hold the same when the program ends: "same", "different" or "unknown"."""
    left, right = ([(e.name, e.outputs) for e in events_of(trace, (f.FINAL,))] for trace in (one, other))
    if not left or not right:
        return "unknown"
    return "same" if left == right else "different"
