"""Is the difference between two runs rounding? Judged by what is left of it in float64 (decision 0054).

A program that computes in float64 rounds 2**29 times more finely than in float32. Where two programs compute the same
function, their difference shrinks with the unit of rounding; where they do not, it keeps its size and its direction. No
tolerance is needed: what each run lost to rounding is measured, as its distance from its own run in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from samerun.base.records import NeutralPoint
from samerun.check.neutral.run_numbers import NumberRecord, RunNumbers
from samerun.record.comparison.rounding import (
    GUARD,
    UNIT,
    ItemJudgement,
    ItemKey,
    ItemVerdict,
    judge_item,
    norm,
)

INSIDE = 16.0
"""Growth up to so many times that of a disturbance of one ulp is inside of the envelope: a step has that many roundings
behind one another."""
DECISIVE = ("parameter", "buffer", "output")
"""What a switch must not change. A loss or gradients that are scaled may be scaled back before they count."""
MOST_POINTS = 60
RecordKind = Literal["step", "call"]


@dataclass(frozen=True)
class RunJudgement:
    """The first record at which the runs are not two roundings of the same, or the last one that was judged."""

    verdict: ItemVerdict
    kind: RecordKind
    number: int
    items: tuple[ItemJudgement, ...]

    @property
    def worst(self) -> ItemJudgement | None:
        telling = [item for item in self.items if item.key[0] != "loss"]  # another scale of it may mean nothing
        wanted = [item for item in telling if item.verdict == self.verdict] or telling
        return max(wanted, key=lambda item: item.left / item.error if item.error > 0 else 0.0, default=None)


def iterate_records_present_in_all_runs(
    runs: tuple[RunNumbers, ...],
) -> Iterator[tuple[RecordKind, int, tuple[NumberRecord, ...]]]:
    """The steps and calls that all runs have, in the order in which the first run made them."""
    first = runs[0]
    order: list[tuple[int, int, RecordKind, int]] = [(n, 1, "step", n) for n in first.steps]
    order += [(record.head["step"], 2, "call", n) for n, record in first.calls.items()]
    for _, _, kind, number in sorted(order):
        records = tuple((run.steps if kind == "step" else run.calls).get(number) for run in runs)
        found = tuple(record for record in records if record is not None)
        if len(found) == len(runs):
            yield kind, number, found


def common_keys(records: tuple[NumberRecord, ...]) -> list[ItemKey]:
    """What every record has, in the same size."""
    return [key for key, value in records[0].values.items()
            if all(key in other.values and len(other.values[key]) == len(value) for other in records[1:])]  # fmt: skip


def ulp_norm(float64_record: NumberRecord, program_record: NumberRecord, key: ItemKey) -> float:
    """The norm of a value in float64, times an ulp of the dtype that the program has it in."""
    unit = UNIT.get(program_record.dtypes[key], UNIT["float32"])
    return 2 * unit * norm(float64_record.values[key])


def judge_runs_up_to_first_fault(
    a: RunNumbers,
    b: RunNumbers,
    a64: RunNumbers,
    b64: RunNumbers,
    disturbed_a64: RunNumbers | None,
    is_compiled: bool = False,
) -> RunJudgement:
    """The first record that is wrong, or that nothing decides; else the last that was judged.

    disturbed_a64: side A in float64 with parameters disturbed by one ulp, or None. What such a disturbance makes as
    large decides where a rounding error of any size changes the result (the sign of a gradient that is zero).
    is_compiled: there are compiled regions, which keep the casts inside of them.
    """
    narrow = is_compiled or bool(a64.narrow or b64.narrow)
    last = RunJudgement("clean", "step", 0, ())
    for kind, number, records in iterate_records_present_in_all_runs((a, b, a64, b64)):
        disturbed = (
            None
            if disturbed_a64 is None
            else (disturbed_a64.steps if kind == "step" else disturbed_a64.calls).get(number)
        )
        items = []
        for key in common_keys(records):
            values = tuple(record.values[key] for record in records)
            dtype = max((record.dtypes[key] for record in records[:2]), key=lambda each: UNIT.get(each, 0.0))
            item = judge_item(key, dtype, (values[0], values[1], values[2], values[3]), narrow)
            if item.verdict == "unclear" and narrow:
                item = replace(item, verdict="clean")
            elif item.verdict != "clean" and disturbed is not None and key in disturbed.values:
                noise = norm(disturbed.values[key] - values[2])
                item = replace(item, verdict="clean" if item.left <= GUARD * noise else "wrong")
            items.append(item)
        last = RunJudgement("clean", kind, number, tuple(items))
        for verdict in ("wrong", "unclear"):
            if any(item.verdict == verdict for item in items if item.key[0] in DECISIVE):
                return RunJudgement(verdict, kind, number, tuple(items))
    return last


# --- the whole run -----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class DistancePoint:
    """How far apart two runs are after a step or a call, relative to the values of the first."""

    kind: RecordKind
    number: int
    relative: float


def measure_relative_distances(a: RunNumbers, b: RunNumbers) -> list[DistancePoint]:
    """The distance of all parameters (of the results of calls) of two runs, over the norm of the first's."""
    found = []
    for kind, number, (one, other) in iterate_records_present_in_all_runs((a, b)):
        keys = [key for key in common_keys((one, other)) if key[0] in DECISIVE]
        apart = size = 0.0
        for key in keys:
            x, y = one.values[key], other.values[key]
            finite = np.isfinite(x) & np.isfinite(y)
            apart += norm(x[finite] - y[finite]) ** 2
            size += norm(x[finite]) ** 2
        if keys:  # what is written behind the last step may be nothing
            found.append(DistancePoint(kind, number, (apart / size) ** 0.5 if size else 0.0))
    return found


def make_evenly_spaced_points(
    distances: list[DistancePoint], envelope: list[DistancePoint]
) -> tuple[NeutralPoint, ...]:
    """At most MOST_POINTS of the steps, evenly spaced; of calls where there are no steps."""
    kind = "step" if any(point.kind == "step" for point in distances) else "call"
    grown = {(point.kind, point.number): point.relative for point in envelope}
    points = [point for point in distances if point.kind == kind and math.isfinite(point.relative)]
    every = max(1, -(-len(points) // MOST_POINTS))
    return tuple(NeutralPoint(p.number, p.relative, grown.get((p.kind, p.number))) for p in points[::every])


def find_first_point_outside_envelope(
    distances: list[DistancePoint], envelope: list[DistancePoint]
) -> DistancePoint | None:
    """The first point at which two runs are further apart than the envelope allows; None if there is none."""
    grown = {(point.kind, point.number): point.relative for point in envelope}
    widest = 0.0
    for point in distances:
        widest = max(widest, grown.get((point.kind, point.number), 0.0))
        if point.relative > INSIDE * widest and widest > 0:
            return point
    return None
