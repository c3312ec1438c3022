"""From two batches whose results for a sample differ to the operators that make the difference. Imports torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree
from torch.utils._python_dispatch import _disable_current_modes

from samerun.base.user_code import relative_to_working_folder
from samerun.record.watching.batch_invariance.batches import Arguments
from samerun.record.watching.batch_invariance.model_runs import ModelRuns
from samerun.record.watching.batch_invariance.operators import (
    DependentCall,
    OperatorRecorder,
    PartComparer,
    PartRecorder,
    find_sample_dims,
    list_results,
    match_calls_of_b_to_a,
)
from samerun.record.watching.batch_invariance.report import BatchDependence, DependenceKind
from samerun.record.watching.batch_invariance.sample_parts import SampleDims, SampleWindow, largest_difference

Tensor = torch.Tensor
MOST_CONFIRMED = 8
"""Of so many operators it is tried whether the difference is there without their values being held."""
EXACT = 1e-9
ROUNDINGS = 256
"""A difference of more ulps of the largest value than this is none of float32's own rounding."""


@dataclass(frozen=True)
class BatchPair:
    """Two batches that show a difference: `a`, `b` and, with yet another shape, `probe`. `text`: the two in words."""

    experiment: str
    text: str
    window: SampleWindow
    a: Arguments
    b: Arguments
    probe: Arguments


@dataclass(frozen=True)
class AttributedPair:
    """The operators found. `is_explained`: holding their values removes the whole difference."""

    dependences: list[BatchDependence]
    is_explained: bool


def find_operators_behind_difference(
    runs: ModelRuns, pair: BatchPair, measure_sample_difference: Callable[[list[Tensor], list[Tensor]], float | None]
) -> AttributedPair:
    """Find the operators. `measure_sample_difference`: how far the sample's results are apart; None if not."""
    recorders = [OperatorRecorder(runs.names) for _ in range(3)]
    for recorder, arguments in zip(recorders, (pair.a, pair.b, pair.probe), strict=True):
        runs.run(_clone_tensors_in_arguments(arguments), recorder)
    shapes_a, shapes_b, probe = (recorder.calls for recorder in recorders)
    dims = find_sample_dims(pair.window, shapes_a, probe)
    counterparts = match_calls_of_b_to_a(shapes_a, shapes_b, pair.window.correspond)

    def run_a(captured: tuple[int, ...] = ()) -> tuple[PartRecorder, list[Tensor]]:
        recorder = PartRecorder(runs.names, pair.window, dims, runs.storages, captured)
        return recorder, runs.run(_clone_tensors_in_arguments(pair.a), recorder)

    def run_b(captured: tuple[int, ...] = (), left_alone: tuple[Any, ...] = ()) -> tuple[PartComparer, list[Tensor]]:
        comparer = PartComparer(runs.names, pair.window, first, dims, counterparts, captured, left_alone)
        return comparer, runs.run(_clone_tensors_in_arguments(pair.b), comparer)

    first, results_a = run_a()
    comparer, results_held = run_b()
    apart = measure_sample_difference(results_a, results_held)
    is_explained = apart is None
    if apart is not None:
        comparer.add_unmatched_operators_as_dependent(results_held, apart)
        is_explained = bool(comparer.dependent) and comparer.dependent[-1].index_b < 0
    groups: dict[Any, list[DependentCall]] = {}
    for one in comparer.dependent:
        groups.setdefault((one.call.key, one.takes_another_way), []).append(one)
    firsts = [calls[0] for calls in groups.values()]
    captured_a, _ = run_a(tuple(one.index_a for one in firsts))
    captured_b, _ = run_b(tuple(one.index_b for one in firsts))
    dependences = []
    for number, ((key, _), calls) in enumerate(groups.items()):
        one = calls[0]
        confirmed = is_explained and number < MOST_CONFIRMED
        if confirmed and len(groups) > 1 and one.index_b >= 0:
            _, results = run_b(left_alone=(key,))
            if measure_sample_difference(results_a, results) is None:
                continue  # it depends on the batch, but no result of the sample depends on it
        kind = _classify_dependence(pair, one, captured_a, captured_b, dims[one.index_a])
        other = one.other
        dependences.append(
            BatchDependence(
                operator=one.call.operator, file=relative_to_working_folder(one.call.file), line=one.call.line,
                module=one.call.module, kind=kind, shows_under=(pair.experiment,), between=pair.text,
                largest_difference=_finite(max(each.largest_difference for each in calls)),
                calls=len({each.index_b for each in calls}),
                confirmed=confirmed, other_operator=other.operator if other else "",
                other_line=other.line if other else 0,
            )
        )  # fmt: skip
    return AttributedPair(dependences, is_explained)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _clone_tensors_in_arguments(arguments: Arguments) -> Arguments:
    copied: Arguments = _pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, arguments)
    return copied


def _classify_dependence(
    pair: BatchPair,
    dependent_call: DependentCall,
    run_a: PartRecorder,
    run_b: PartComparer,
    dims: list[SampleDims | None],
) -> DependenceKind:
    if dependent_call.takes_another_way:
        return "another way"
    func = run_a.arguments[dependent_call.index_a][0]
    if torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()):
        return "random numbers"
    if pair.experiment == "padding":
        return "padding"
    try:
        results_a, results_b = (
            _recompute_in_float64_or_raise(run.arguments[index])
            for run, index in ((run_a, dependent_call.index_a), (run_b, dependent_call.index_b))
        )
    except Exception:  # the operator knows no float64
        return "unknown"
    kind: DependenceKind = "rounding"
    for at, (a, b) in enumerate(zip(results_a, results_b, strict=True)):
        its_dims = dims[at] if at < len(dims) else None
        if its_dims is None:
            continue
        shape = tuple(a.shape)
        parts = zip(
            pair.window.view_candidate_sample_parts_if_shape_fits(a, its_dims, shape, False),
            pair.window.view_candidate_sample_parts_if_shape_fits(b, its_dims, shape, True),
            strict=False,
        )
        apart, scale = min(
            ((largest_difference(x, y), float(x.abs().max())) for x, y in parts if x.numel()), default=(0.0, 0.0)
        )
        if not a.is_floating_point():
            return "other rows" if apart else "unknown"
        if not apart <= EXACT * scale:
            return "other rows"
        shapes = run_a.calls[dependent_call.index_a].parts
        dtype = shapes[at][0].dtype if at < len(shapes) and shapes[at] else torch.float32
        eps = torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
        if dependent_call.largest_difference > max(ROUNDINGS * torch.finfo(torch.float32).eps, 4 * eps) * scale:
            kind = "lower precision"
    return kind


def _recompute_in_float64_or_raise(func_args_kwargs: tuple[Any, Any, Any]) -> list[Tensor]:
    """What the operator gives in float64, by torch's own kernels."""
    func, args, kwargs = func_args_kwargs

    def widen(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.double() if leaf.is_floating_point() else leaf.clone()
        return torch.float64 if isinstance(leaf, torch.dtype) and leaf.is_floating_point else leaf

    with _disable_current_modes(), torch.no_grad():
        args, kwargs = _pytree.tree_map(widen, (args, kwargs))
        return list_results(func, args, kwargs, func(*args, **kwargs))
