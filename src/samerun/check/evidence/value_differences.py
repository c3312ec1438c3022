"""How far apart the values of two runs are: saved tensors element by element, and parameters over the steps."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from samerun.base.records import Divergence, Growth
from samerun.check.execution.runner import Run
from samerun.record.comparison.streams import SOFT_LEAVES
from samerun.record.trace import format as f
from samerun.record.trace.run import read_optimizer_steps, read_sorted_final_digests_by_model_class, select_events
from samerun.record.watching.kept_tensors import step_values_path

# --- saved tensors, element by element
Array = np.ndarray[Any, Any]
_INTEGERS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_FLOATS = {"torch.float16": np.float16, "torch.float32": np.float32, "torch.float64": np.float64}


@dataclass(frozen=True)
class ElementDifference:
    """How two tensors differ. `max_ulp` counts representable numbers in between; None for other dtypes."""

    different: int
    total: int
    max_abs: float | None
    max_ulp: int | None


class SavedTensor(NamedTuple):
    """`data`: the bytes of the elements, in the order of rows."""

    dtype: str
    shape: list[int]
    data: bytes


def read_saved_tensors(path: Path) -> list[SavedTensor]:
    """Every tensor in a file written by `samerun.record.watching.kept_tensors`."""
    with open(path, "rb") as file:
        head = json.loads(file.readline())
        return [SavedTensor(t["dtype"], t["shape"], file.read(t["bytes"])) for t in head["tensors"]]


def read_source_line_of_saved_tensors(path: Path) -> int:
    with open(path, "rb") as file:
        return int(json.loads(file.readline())["line"])


def compare_first_differing_saved_tensors(a: Path, b: Path, operator_line: int) -> ElementDifference | None:
    """The first tensor that differs, or None when they cannot be compared or none differs.

    Both must come from the operator at `operator_line`: a program that differs by itself may keep another one.
    """
    try:
        if any(read_source_line_of_saved_tensors(path) != operator_line for path in (a, b)):
            return None
        pairs = zip(read_saved_tensors(a), read_saved_tensors(b), strict=False)
    except (OSError, ValueError, KeyError):
        return None
    for (dtype, shape, one), (dtype_b, shape_b, other) in pairs:
        if (dtype, shape) != (dtype_b, shape_b) or len(one) != len(other):
            return None
        found = compare_element_bytes(dtype, one, other, int(np.prod(shape)) if shape else 1)
        if found.different:
            return found
    return None


def compare_element_bytes(dtype: str, a_bytes: bytes, b_bytes: bytes, element_count: int) -> ElementDifference:
    """Compare raw elements; a NaN equals a NaN."""
    width = max(1, len(a_bytes) // max(1, element_count))
    if dtype == "torch.bfloat16":
        return _compare_float_bits(
            np.frombuffer(a_bytes, np.int16), np.frombuffer(b_bytes, np.int16), _bfloat16_bits_to_float32
        )
    if dtype in _FLOATS:
        kind: Any = _FLOATS[dtype]
        bits = _INTEGERS[width]
        return _compare_float_bits(
            np.frombuffer(a_bytes, bits), np.frombuffer(b_bytes, bits), lambda raw: raw.view(kind)
        )
    if width in _INTEGERS and dtype.startswith(("torch.int", "torch.uint", "torch.bool")):
        kind = np.dtype(_INTEGERS[width] if dtype.startswith("torch.int") else f"u{width}")
        a, b = (np.frombuffer(raw, kind) for raw in (a_bytes, b_bytes))
        wrong = a != b
        gap = (
            int(np.where(a > b, _subtract_as_uint64(a, b), _subtract_as_uint64(b, a))[wrong].max())
            if wrong.any()
            else 0
        )
        return ElementDifference(int(wrong.sum()), element_count, float(gap), None)
    rows = [np.frombuffer(raw, np.uint8).reshape(element_count, width) for raw in (a_bytes, b_bytes)]
    return ElementDifference(int((rows[0] != rows[1]).any(axis=1).sum()), element_count, None, None)


def decode_floats_as_float64(dtype: str, raw: bytes) -> Array | None:
    """The values as float64; None for dtypes that are no floats."""
    if dtype == "torch.bfloat16":
        return _bfloat16_bits_to_float32(np.frombuffer(raw, np.int16)).astype(np.float64)
    return np.frombuffer(raw, _FLOATS[dtype]).astype(np.float64) if dtype in _FLOATS else None


def _subtract_as_uint64(high: Array, low: Array) -> Array:
    """high - low as unsigned numbers, right where high is the larger one."""
    return high.astype(np.int64).view(np.uint64) - low.astype(np.int64).view(np.uint64)


def _bfloat16_bits_to_float32(bits: Array) -> Array:
    """bfloat16 as float32."""
    return (bits.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _compare_float_bits(a_bits: Array, b_bits: Array, decode: Callable[[Array], Array]) -> ElementDifference:
    """Compare floats given as the signed integers of their bits."""
    x, y = decode(a_bits), decode(b_bits)
    wrong = (a_bits != b_bits) & ~(np.isnan(x) & np.isnan(y))
    finite = wrong & np.isfinite(x) & np.isfinite(y)
    if not finite.any():
        return ElementDifference(int(wrong.sum()), a_bits.size, None, None)
    with np.errstate(over="ignore"):
        gap = float(np.max(np.abs(x[finite].astype(np.float64) - y[finite].astype(np.float64))))
    p, q = _float_bits_to_total_order(a_bits[finite]), _float_bits_to_total_order(b_bits[finite])
    ulp = int(np.where(p > q, _subtract_as_uint64(p, q), _subtract_as_uint64(q, p)).max())
    return ElementDifference(int(wrong.sum()), a_bits.size, gap if np.isfinite(gap) else None, ulp)


def _float_bits_to_total_order(bits: Array) -> Array:
    """Integers in the order of the floats, neighbours one apart; -0.0 and 0.0 are one apart too."""
    top = np.int64(np.iinfo(bits.dtype).min)
    wide = bits.astype(np.int64)
    return np.where(wide >= 0, wide, -(wide - top) - 1)


# --- how a difference grows over the steps
MOST_POINTS = 12
GENERATOR_OF_UNSEEDED_LEAF = {"rng.numpy": "numpy", "rng.python": "python"}
"""Generators that start from the system's entropy; torch's starts from a fixed number."""


def compare_steps_by_digest(a: Run, b: Run, steps_of_a_before_b: int = 0) -> Divergence | None:
    """Compare two runs step by step, by their digests; None if they have no steps in common.

    steps_of_a_before_b: how many steps of `a` come before the first one of `b`. Steps are numbered as in `a`.
    """
    one, other = a.traces.main, b.traces.main
    if one is None or other is None:
        return None
    pairs = list(zip(read_optimizer_steps(one)[steps_of_a_before_b:], read_optimizer_steps(other), strict=False))
    if not pairs:
        return None
    differing: list[int] = []
    leaves: dict[str, int] = {}
    unused = find_leaves_of_unused_generators(a, b)
    for left, right in pairs:
        names = left.names_of_differing_leaves(right)
        if set(names) - SOFT_LEAVES:  # random states alone are not results
            differing.append(left.number)
        for name in set(names) - unused:
            leaves.setdefault(name, left.number)
    ends = read_sorted_final_digests_by_model_class(one), read_sorted_final_digests_by_model_class(other)
    end = "unknown" if not all(ends) else "same" if ends[0] == ends[1] else "different"
    first_in = tuple(sorted(leaves.items(), key=lambda item: (item[1], item[0])))
    return Divergence(
        steps=steps_of_a_before_b + len(pairs), different=to_step_ranges(differing), leaves=first_in, end=end
    )


def find_leaves_of_unused_generators(a: Run, b: Run) -> set[str]:
    """States of generators that neither run seeds or draws from: they differ in any two runs, and say nothing."""
    traces = (trace for run in (a, b) for trace in run.traces.traces.values())
    used = {event.name for trace in traces for event in select_events(trace, (f.DRAW, f.SEED))}
    return {leaf for leaf, generator in GENERATOR_OF_UNSEEDED_LEAF.items() if generator not in used}


def to_step_ranges(ascending_steps: list[int]) -> tuple[tuple[int, int], ...]:
    """The (first, last) of each run of consecutive numbers; the steps must ascend."""
    found: list[tuple[int, int]] = []
    for number in ascending_steps:
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return tuple(found)


def choose_snapshot_steps(differing_steps: Divergence | None) -> tuple[int, ...]:
    """The steps whose parameters are worth comparing.

    The first that differs, then steps at growing distances, the last that differs, and the end.
    """
    if differing_steps is None or not differing_steps.different:
        return ()
    first, last = differing_steps.different[0][0], differing_steps.different[-1][1]
    ratio = max(2.0, (differing_steps.steps - first + 1) ** (1 / (MOST_POINTS - 3)))
    chosen = {first, last, min(last + 1, differing_steps.steps), differing_steps.steps}
    distance = 1.0
    while first + round(distance) < differing_steps.steps and len(chosen) < MOST_POINTS:
        chosen.add(first + round(distance))
        distance *= ratio
    return tuple(sorted(chosen))


def measure_growth_points_if_different(a_folder: Path, b_folder: Path, steps: tuple[int, ...]) -> tuple[Growth, ...]:
    """How far apart the saved parameters of two runs are; steps that cannot be compared are left out."""
    points = (
        _measure_growth_point(Path(step_values_path(str(a_folder), n)), Path(step_values_path(str(b_folder), n)), n)
        for n in steps
    )
    found = tuple(point for point in points if point is not None)
    return found if any(p.elements_different or (p.losses and p.losses[0] != p.losses[1]) for p in found) else ()


def _measure_growth_point(a_file: Path, b_file: Path, step: int) -> Growth | None:
    try:
        heads = [_read_snapshot_header(path) for path in (a_file, b_file)]
        pairs = list(zip(read_saved_tensors(a_file), read_saved_tensors(b_file), strict=True))
    except (OSError, ValueError, KeyError):
        return None
    different = total = 0
    gaps: list[float] = []
    ulps: list[int] = []
    apart = size = 0.0
    for (dtype, shape, a), (dtype_b, shape_b, b) in pairs:
        if (dtype, shape) != (dtype_b, shape_b):
            return None
        found = compare_element_bytes(dtype, a, b, math.prod(shape))
        different, total = different + found.different, total + found.total
        gaps += [found.max_abs] if found.max_abs is not None else []
        ulps += [found.max_ulp] if found.max_ulp is not None else []
        x, y = decode_floats_as_float64(dtype, a), decode_floats_as_float64(dtype, b)
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
