"""How a difference spreads and grows: which steps of two runs differ, and by how much their parameters do."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from samerun.base.records import Growth, Spread
from samerun.check.evidence.values import compare_raw_elements, read_saved_tensors, to_float64
from samerun.check.execution.runner import Run
from samerun.record.comparison.streams import SOFT_LEAVES
from samerun.record.trace.run import final_model_digests, read_steps
from samerun.record.watching.kept_tensors import step_values_path

MOST_POINTS = 12


def measure_spread(a: Run, b: Run, shift: int = 0) -> Spread | None:
    """Compare two runs step by step, by their digests; None if they have no steps in common.

    shift: how many steps of `a` come before the first one of `b`. Steps are numbered as in `a`.
    """
    one, other = a.traces.main, b.traces.main
    if one is None or other is None:
        return None
    pairs = list(zip(read_steps(one)[shift:], read_steps(other), strict=False))
    if not pairs:
        return None
    differing: list[int] = []
    leaves: dict[str, int] = {}
    for left, right in pairs:
        names = left.differing_leaves(right)
        if set(names) - SOFT_LEAVES:  # random states alone are not results
            differing.append(left.number)
        for name in names:
            leaves.setdefault(name, left.number)
    ends = final_model_digests(one), final_model_digests(other)
    end = "unknown" if not all(ends) else "same" if ends[0] == ends[1] else "different"
    first_in = tuple(sorted(leaves.items(), key=lambda item: (item[1], item[0])))
    return Spread(steps=shift + len(pairs), different=to_step_ranges(differing), leaves=first_in, end=end)


def to_step_ranges(steps: list[int]) -> tuple[tuple[int, int], ...]:
    """The (first, last) of each run of consecutive numbers; the steps must ascend."""
    found: list[tuple[int, int]] = []
    for number in steps:
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return tuple(found)


def choose_snapshot_steps(spread: Spread | None) -> tuple[int, ...]:
    """The steps whose parameters are worth comparing.

    The first that differs, then steps at growing distances, the last that differs, and the end.
    """
    if spread is None or not spread.different:
        return ()
    first, last = spread.different[0][0], spread.different[-1][1]
    ratio = max(2.0, (spread.steps - first + 1) ** (1 / (MOST_POINTS - 3)))
    chosen = {first, last, min(last + 1, spread.steps), spread.steps}
    distance = 1.0
    while first + round(distance) < spread.steps and len(chosen) < MOST_POINTS:
        chosen.add(first + round(distance))
        distance *= ratio
    return tuple(sorted(chosen))


def measure_growth_points(one: Path, other: Path, steps: tuple[int, ...]) -> tuple[Growth, ...]:
    """How far apart the saved parameters of two runs are; steps that cannot be compared are left out."""
    points = (
        _measure_growth_point(Path(step_values_path(str(one), n)), Path(step_values_path(str(other), n)), n)
        for n in steps
    )
    found = tuple(point for point in points if point is not None)
    return found if any(p.elements_different or (p.losses and p.losses[0] != p.losses[1]) for p in found) else ()


def _measure_growth_point(one: Path, other: Path, step: int) -> Growth | None:
    try:
        heads = [_read_snapshot_header(path) for path in (one, other)]
        pairs = list(zip(read_saved_tensors(one), read_saved_tensors(other), strict=True))
    except (OSError, ValueError, KeyError):
        return None
    different = total = 0
    gaps: list[float] = []
    ulps: list[int] = []
    apart = size = 0.0
    for (dtype, shape, a), (dtype_b, shape_b, b) in pairs:
        if (dtype, shape) != (dtype_b, shape_b):
            return None
        found = compare_raw_elements(dtype, a, b, math.prod(shape))
        different, total = different + found.different, total + found.total
        gaps += [found.max_abs] if found.max_abs is not None else []
        ulps += [found.max_ulp] if found.max_ulp is not None else []
        x, y = to_float64(dtype, a), to_float64(dtype, b)
        if x is None or y is None:
            apart = math.nan
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            apart, size = apart + float(np.sum(np.square(x - y))), size + float(np.sum(np.square(x)))
    relative = math.sqrt(apart / size) if size > 0 and math.isfinite(apart) and math.isfinite(size) else None
    losses = [float.fromhex(head["loss"]) if head["loss"] is not None else math.nan for head in heads]
    return Growth(
        step, different, total, int(heads[0]["parameters"]), max(gaps, default=None), max(ulps, default=None), relative,
        (losses[0], losses[1]) if all(map(math.isfinite, losses)) else None,
    )  # fmt: skip


def _read_snapshot_header(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        head: dict[str, Any] = json.loads(file.readline())
        return head
