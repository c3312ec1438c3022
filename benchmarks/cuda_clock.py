"""Time on a CUDA device, by its own clock: ways of doing the same work, in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

TURNS, CALLS = 7, 10
Work = Callable[[], object]


def milliseconds(work: Work) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(CALLS):
        work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / CALLS


def least(work: Work, ways: Sequence[Callable[[Work], float | None]]) -> list[float | None]:
    """The least of each way, taken in turns; the first turn warms up. None: this way cannot do it."""
    for way in ways:
        way(work)
    turns = [[way(work) for way in ways] for _ in range(TURNS)]
    return [min((time for time in times if time is not None), default=None) for times in zip(*turns, strict=True)]
