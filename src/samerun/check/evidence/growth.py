"""How a difference grows: the parameters of two runs, number by number, after some of their steps."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from samerun.base.records import Growth, Spread
from samerun.check.evidence.values import compare_bytes, numbers, read_kept
from samerun.record.watching.kept_tensors import step_file

MOST_POINTS = 12


def steps_to_keep(spread: Spread | None) -> tuple[int, ...]:
    """Steps worth comparing: the first that differs, then at growing distances, the last that differs, and the end."""
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


def growth(one: Path, other: Path, steps: tuple[int, ...]) -> tuple[Growth, ...]:
    """The points of two runs' folders; steps that one of them did not reach, or cannot be compared, are left out."""
    points = (_point(Path(step_file(str(one), n)), Path(step_file(str(other), n)), n) for n in steps)
    found = tuple(point for point in points if point is not None)
    return found if any(p.elements_different or (p.losses and p.losses[0] != p.losses[1]) for p in found) else ()


def _point(one: Path, other: Path, step: int) -> Growth | None:
    try:
        heads = [_head(path) for path in (one, other)]
        pairs = list(zip(read_kept(one), read_kept(other), strict=True))
    except (OSError, ValueError, KeyError):
        return None
    different = total = 0
    gaps: list[float] = []
    ulps: list[int] = []
    apart = size = 0.0
    for (dtype, shape, a), (dtype_b, shape_b, b) in pairs:
        if (dtype, shape) != (dtype_b, shape_b):
            return None
        found = compare_bytes(dtype, a, b, math.prod(shape))
        different, total = different + found.different, total + found.total
        gaps += [found.max_abs] if found.max_abs is not None else []
        ulps += [found.max_ulp] if found.max_ulp is not None else []
        x, y = numbers(dtype, a), numbers(dtype, b)
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


def _head(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        head: dict[str, Any] = json.loads(file.readline())
        return head
