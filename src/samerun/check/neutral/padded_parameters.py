"""Parameters that one side pads with zeros, as those of a vocabulary that is rounded up: compared by their sums."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from samerun.check.neutral.run_numbers import Array, RunNumbers
from samerun.check.variations.neutral_switches import NeutralSwitch
from samerun.record.config import PIECES

BEGINS_ALIKE = 0.1
"""By how much of their magnitudes the sums may differ after the first step, which moves the weights of a bug apart."""


def find_padded_parameters(a: RunNumbers, b: RunNumbers) -> frozenset[str]:
    """The names of parameters of other sizes that have about the same sums after the first step.

    None at all if one of them differs in several dimensions or in its sum, or if half of all parameters have other
    sizes: then the sides have other models.
    """
    shapes_a, shapes_b = _read_shapes_at_first_step(a), _read_shapes_at_first_step(b)
    found = {name for name, shape in shapes_a.items() if name in shapes_b and shapes_b[name] != shape}
    if 2 * len(found) >= len(shapes_a.keys() & shapes_b.keys()):
        return frozenset()
    for name in found:
        one, other = shapes_a[name], shapes_b[name]
        if len(one) != len(other) or sum(x != y for x, y in zip(one, other, strict=True)) != 1:
            return frozenset()
        values, others = (run.steps[1].values["parameter", name] for run in (a, b))
        apart = abs(_add_up(values, math.prod(one)) - _add_up(others, math.prod(other)))
        if not apart <= BEGINS_ALIKE * float(np.abs(values).sum()):
            return frozenset()
    return frozenset(found)


def replace_padded_parameters_by_sums(run: RunNumbers, names: frozenset[str]) -> RunNumbers:
    """The run with one number for each of these parameters and for its gradient: the sum over all elements."""
    shapes = _read_shapes_at_first_step(run) if names else {}
    steps = dict(run.steps)
    for number, record in run.steps.items() if names else ():
        sums = {
            (kind, name): np.array([_add_up(value, math.prod(shapes[name]))])
            for (kind, name), value in record.values.items()
            if kind in ("parameter", "gradient") and name in names and name in shapes
        }
        steps[number] = replace(record, values={**record.values, **sums})
    return replace(run, steps=steps)


def with_padded_parameters_told(switch: NeutralSwitch, names: frozenset[str]) -> NeutralSwitch:
    if not names:
        return switch
    are = "are" if len(names) > 1 else "is"
    told = f"{', '.join(sorted(names))} {are} larger on one side, and compared by the sum of all elements"
    return replace(switch, detail=f"{switch.detail}; {told}")


def _read_shapes_at_first_step(run: RunNumbers) -> dict[str, list[int]]:
    """Of each parameter, under all names by which it is compared."""
    record = run.steps.get(1)
    if record is None:
        return {}
    shapes, tied = record.head.get("shapes", {}), record.head.get("tied", {})
    known = {name: shapes.get(tied.get(name, name)) for kind, name in record.values if kind == "parameter"}
    return {name: shape for name, shape in known.items() if shape is not None}


def _add_up(values: Array, count: int) -> float:
    """The sum of all elements of a value that has so many, of which these are all, or a sample and sums of pieces."""
    return float((values if len(values) == count else values[-PIECES - 1 :]).sum())
