"""Is what a backend computes another function than its graph? Judged as decision 0054 says. Imports torch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch.fx import GraphModule

from samerun.record.comparison.rounding import (
    GUARD,
    LOSES_HALF,
    UNIT,
    ItemKey,
    judge_item,
    nonfinite_elements_differ,
    norm,
)
from samerun.record.watching.compiled_graphs.graph_runs import (
    NotInspectable,
    Run,
    TensorCopy,
    Values,
    compile_graph,
    copy_graph_in_float64,
    copy_inputs,
    run_on_copies,
)

Evidence = Literal["float64", "program"]
"""In what a difference shows: in float64, where it keeps its size; or only as the program computes, where the compiled
graph loses more than half of the bits that the graph itself keeps."""


class OutOfTime(Exception):
    """The time to look into compiled regions is up."""


@dataclass(frozen=True)
class WrongValue:
    """A value that is wrong, and by which share of its size (infinite where other elements are finite)."""

    key: ItemKey
    evidence: Evidence
    share: float


@dataclass(frozen=True)
class GraphOnInputs:
    """A graph, with inputs as the program has them and in float64 (None where that is not possible)."""

    graph: GraphModule
    inputs: Sequence[Any]
    wide_inputs: Sequence[Any] | None
    random_states: Any


class RegionJudge:
    """Compares a backend with the graph itself.

    looks_closer: also at how outputs share memory and whether they need gradients, and without asking whether a
    disturbance of one ulp makes as large a difference: for what is known to be wrong, and shows in no other way.
    """

    def __init__(self, deadline: float, looks_closer: bool) -> None:
        self.deadline, self.looks_closer = deadline, looks_closer
        self._compiled_wide: dict[Any, Run] = {}
        """What the backend made of a region in float64, by the region and the inputs that it is for."""

    def run_all(self, subject: GraphOnInputs, run: Run, in_float64: bool) -> Values:
        if time.monotonic() > self.deadline:
            raise OutOfTime
        inputs = subject.wide_inputs if in_float64 else subject.inputs
        if inputs is None:
            raise NotInspectable("no float64")
        return run_on_copies(run, inputs, subject.random_states, in_float64, self.looks_closer)

    def judge_program(self, subject: GraphOnInputs, backend: Run, compiled: Run) -> list[WrongValue]:
        """Whether what the program itself runs (`compiled`) is wrong; the backend is asked again only for float64."""
        a = self.run_all(subject, subject.graph, False)
        b = self.run_all(subject, compiled, False)
        if are_equal_counting_nan_as_equal(a, b):
            return []
        key = id(subject.graph), torch.is_grad_enabled(), describe_inputs(subject.inputs)

        def compile_once(graph: GraphModule, inputs: Sequence[Any], wide: bool) -> Run:
            if key not in self._compiled_wide:
                self._compiled_wide[key] = compile_graph(backend, graph, inputs, wide)
            return self._compiled_wide[key]

        return self._judge(subject, compile_once, a, b)

    def judge_backend(self, subject: GraphOnInputs, backend: Run, evidence: Evidence | None = None) -> list[WrongValue]:
        """Whether what a backend makes of the graph is wrong; `evidence`: only in that way.

        A graph that cannot be compiled or run shows nothing.
        """
        try:
            a = self.run_all(subject, subject.graph, False)
            b = None
            if evidence != "float64":
                compiled = compile_graph(backend, subject.graph, subject.inputs, False)
                b = self.run_all(subject, compiled, False)
                if evidence is None and are_equal_counting_nan_as_equal(a, b):
                    return []
            found = self._judge(subject, partial(compile_graph, backend), a, b)
        except OutOfTime:
            raise
        except Exception:
            return []
        return [each for each in found if evidence in (None, each.evidence)]

    @np.errstate(all="ignore")
    def _judge(self, subject: GraphOnInputs, compile_wide: Run, a: Values, b: Values | None) -> list[WrongValue]:
        wide = copy_graph_in_float64(subject.graph)
        try:
            a64 = self.run_all(subject, wide, True)
        except OutOfTime:
            raise
        except Exception:
            return [] if b is None else list(self._find_changed_sharing_or_grad_flags(a, b))
        try:
            b64 = self.run_all(subject, compile_wide(wide, subject.wide_inputs or (), True), True)
        except OutOfTime:
            raise
        except Exception:
            b64 = None
        found = [] if b64 is None else list(self._find_differences_in_float64(subject, wide, a, b, a64, b64))
        if not found and b is not None:
            found = list(self._iterate_values_with_lost_bits(subject, a, b, a64))
        return found or (list(self._find_changed_sharing_or_grad_flags(a, b)) if b is not None else [])

    def _find_differences_in_float64(
        self, subject: GraphOnInputs, wide: GraphModule, a: Values, b: Values | None, a64: Values, b64: Values
    ) -> Any:
        """Values that differ in float64 by more than rounding does, and than a disturbance of one ulp does."""
        noise: list[Values] | None = None
        for key, exact in a64.items():
            one, other = a.get(key), b64.get(key)
            if one is None or other is None or not len(exact.numbers):
                continue
            if other.shape != exact.shape or other.numbers.dtype != exact.numbers.dtype:
                yield WrongValue(key, "float64", np.inf)
                continue
            if one.shape != exact.shape:
                continue
            if np.issubdtype(exact.numbers.dtype, np.integer):
                left = float(np.count_nonzero(exact.numbers != other.numbers))
                scale = float(len(exact.numbers))
            else:
                if nonfinite_elements_differ(exact.numbers, other.numbers):
                    left, scale = np.inf, 1.0
                else:
                    program = one.numbers
                    if b is not None and key in b and b[key].shape == one.shape:
                        program = b[key].numbers
                    elif not nonfinite_elements_differ(
                        one.numbers, exact.numbers
                    ):  # it is taken to round as the graph itself does
                        finite = np.isfinite(exact.numbers)
                        program = np.where(finite, other.numbers - one.numbers + exact.numbers, one.numbers)
                    judged = judge_item(key, one.dtype, (one.numbers, program, exact.numbers, other.numbers), False)
                    if judged.verdict != "wrong":
                        continue
                    left, scale = judged.left, judged.scale
            if left == 0:
                continue
            if noise is None:
                noise = self._run_on_disturbed_inputs(subject, wide, True)
            if not any(explains(each, key, exact, left, GUARD) for each in noise):
                yield WrongValue(key, "float64", left / scale if scale else np.inf)

    def _iterate_values_with_lost_bits(self, subject: GraphOnInputs, a: Values, b: Values, a64: Values) -> Any:
        """Values of which the compiled graph loses half of the bits, where the graph itself does not."""
        noise: list[Values] | None = None
        for key, one in a.items():
            other, exact = b.get(key), a64.get(key)
            if other is None or exact is None or not len(one.numbers) or exact.shape != one.shape:
                continue
            if other.shape != one.shape or other.dtype != one.dtype:
                yield WrongValue(key, "program", np.inf)
                continue
            if key[0] == "form":
                continue
            if np.issubdtype(one.numbers.dtype, np.integer):
                if not np.array_equal(one.numbers, exact.numbers):
                    continue
                left, scale = float(np.count_nonzero(one.numbers != other.numbers)), float(len(one.numbers))
            elif nonfinite_elements_differ(one.numbers, other.numbers):
                if nonfinite_elements_differ(one.numbers, exact.numbers):
                    continue
                left, scale = np.inf, 1.0
            else:
                finite = np.isfinite(one.numbers) & np.isfinite(exact.numbers)
                unit = UNIT.get(one.dtype, UNIT["float32"])
                scale = norm(exact.numbers[finite])
                error_a = norm(one.numbers[finite] - exact.numbers[finite])
                left = norm(other.numbers[finite] - exact.numbers[finite])
                if left <= min(LOSES_HALF, unit**-0.5) * max(error_a, unit * scale):
                    continue
            if left == 0:
                continue
            if noise is None:
                noise = self._run_on_disturbed_inputs(subject, subject.graph, False)
            if not any(explains(each, key, one, left, LOSES_HALF) for each in noise):
                yield WrongValue(key, "program", left / scale if scale else np.inf)

    def _find_changed_sharing_or_grad_flags(self, a: Values, b: Values) -> Any:
        one, other = a.get(("form", "")), b.get(("form", ""))
        if one is not None and other is not None and not np.array_equal(one.numbers, other.numbers):
            yield WrongValue(("form", ""), "program", np.inf)

    def _run_on_disturbed_inputs(self, subject: GraphOnInputs, graph: GraphModule, wide: bool) -> list[Values]:
        """The graph itself, with every input moved by one ulp, in two ways."""
        found: list[Values] = []
        inputs = subject.wide_inputs if wide else subject.inputs
        if self.looks_closer or inputs is None:
            return found
        for direction in (1, -1):
            moved = copy_inputs(inputs, ulp_direction=direction)
            found.append(run_on_copies(graph, moved, subject.random_states, wide, False))
        return found


def explains(disturbed: Values, key: ItemKey, exact: Any, difference_norm: float, allowed_factor: float) -> bool:
    """Whether a disturbance makes a difference that is as large, so that rounding may have made this one."""
    moved = disturbed.get(key)
    if moved is None or moved.shape != exact.shape:
        return False
    if np.issubdtype(exact.numbers.dtype, np.integer):
        return difference_norm <= float(np.count_nonzero(moved.numbers != exact.numbers))
    if nonfinite_elements_differ(moved.numbers, exact.numbers):
        return True
    finite = np.isfinite(exact.numbers)
    return difference_norm <= allowed_factor * norm(moved.numbers[finite] - exact.numbers[finite])


def are_equal_counting_nan_as_equal(a: Values, b: Values) -> bool:
    return a.keys() == b.keys() and all(
        value.dtype == b[key].dtype
        and value.shape == b[key].shape
        and value.numbers.tobytes() == b[key].numbers.tobytes()
        for key, value in a.items()
    )


def describe_inputs(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """What a graph is compiled for: shapes, strides, dtypes, and numbers."""
    return tuple(
        (each.value.shape, each.value.stride(), each.value.dtype, each.requires_grad)
        if isinstance(each, TensorCopy) else repr(each)
        for each in inputs
    )  # fmt: skip


def widened_or_none(inputs: Sequence[Any]) -> Sequence[Any] | None:
    """The inputs in float64; None where that is too large."""
    try:
        return copy_inputs(inputs, in_float64=True)
    except (RuntimeError, torch.OutOfMemoryError):
        return None
