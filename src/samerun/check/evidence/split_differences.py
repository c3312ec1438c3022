"""What goes wrong where the gradients of a step are made in several backward passes."""

from __future__ import annotations

import numpy as np

from samerun.check.evidence.run_numbers import NumberRecord, OperatorSummary, parse_source_line
from samerun.check.evidence.value_correspondence import Culprit
from samerun.record.config import RESCALED
from samerun.record.trace import format as f

VARIES = 1e-9
"""By so much, relative to their size, the factors of the parts of a batch differ if they are not the same number."""


def explain_scaler_update_between_microbatches(b: NumberRecord, a: NumberRecord) -> Culprit | None:
    """A scale that changes between the parts of a batch, or a step that is made before its parts are there."""
    for side, one, other in (("B", b, a), ("A", a, b)):
        if (where := one.find_line_counted_here_only(other, RESCALED)) is not None:
            text = f"on side {side} the scale of losses changes between the parts of a batch"
            return Culprit("GradScaler.update", *where, text)
    return None


def explain_uneven_steps(steps_b: dict[int, NumberRecord], steps_a: dict[int, NumberRecord]) -> Culprit | None:
    """The first step is made after fewer backward passes than the next ones, on one side only."""
    for side, steps, others in (("B", steps_b, steps_a), ("A", steps_a, steps_b)):
        counts, other_counts = (
            [int(each[n].head.get("backwards", 0)) for n in (1, 2, 3) if n in each] for each in (steps, others)
        )
        if len(counts) < 3 or len(other_counts) < 3 or len(set(other_counts)) > 1:
            continue
        if 0 < counts[0] < counts[1] == counts[2]:
            text = (
                f"on side {side} the first step is made after {counts[0]} backward passes, the next after {counts[1]}"
            )
            return Culprit("optimizer.step", *parse_source_line(steps[1].head.get("line", "")), text)
    return None


def find_varying_factor(operators: list[OperatorSummary]) -> OperatorSummary | None:
    """The line that divides or scales the losses of the parts of a batch by numbers that are not the same."""
    factors: dict[tuple[str, int], list[float]] = {}
    known: dict[tuple[str, int], OperatorSummary] = {}
    for o in operators:
        if o.phase != f.FORWARD or not o.name.startswith(("aten.div", "aten.mul")) or not o.location.line:
            continue
        given = [operators[at].results[number][2] for at, number in o.sources if at >= 0 and operators[at].results]
        if len(o.results) != 1 or o.results[0][2][0] != 1 or not any(sums[0] == 1 and sums[2] for sums in given):
            continue
        loss = next(sums for sums in given if sums[0] == 1 and sums[2])
        key = o.location.file, o.location.line
        factors.setdefault(key, []).append(float(o.results[0][2][1] / loss[1]))
        known.setdefault(key, o)
    for key, values in factors.items():
        if len(values) > 1 and np.ptp(values) > VARIES * max(map(abs, values)):
            return known[key]
    return None
