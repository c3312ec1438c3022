"""Runs of a model from the same state, and the sample's rows of what they give. Imports torch."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree

from samerun.base.errors import SamerunError
from samerun.record.watching.batch_invariance.batches import Arguments, Composition
from samerun.record.watching.batch_invariance.operators import OperatorRecorder
from samerun.record.watching.batch_invariance.sample_parts import (
    BatchDimension,
    have_same_bits_or_both_nan,
    largest_difference,
    take_longer_part,
    view_sample_as_block_and_interleaved,
)

Tensor = torch.Tensor
SampleRows = list[list[Tensor]]
"""Of each result with rows: what may be the sample's."""


class ModelRuns:
    """Calls a model without gradients, each time with the same buffers and random states. Use as a context."""

    def __init__(self, function: Callable[..., Any], is_copied: bool) -> None:
        if is_copied and self._find_root(function) is not None:
            try:
                function = copy.deepcopy(function)
            except Exception:  # a tensor with a history, an open file: then the model itself, put back after each run
                pass
        self.function = function
        root = self._find_root(function)
        self.names = (
            {id(module): name or type(module).__name__ for name, module in root.named_modules()} if root else {}
        )
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in root.buffers()] if root else []
        parameters = list(root.parameters()) if root else []
        self.storages = {each.untyped_storage().data_ptr() for each in parameters}

    @staticmethod
    def _find_root(function: Any) -> torch.nn.Module | None:
        root = function if isinstance(function, torch.nn.Module) else getattr(function, "__self__", None)
        return root if isinstance(root, torch.nn.Module) else None

    def __enter__(self) -> ModelRuns:
        self._random_states = _get_random_states()
        return self

    def __exit__(self, *_: object) -> None:
        self._restore_buffers_and_random_states()

    def _restore_buffers_and_random_states(self) -> None:
        _set_random_states(self._random_states)
        with torch.no_grad():
            for buffer, value in self._buffers:
                if not have_same_bits_or_both_nan(buffer, value):
                    buffer.copy_(value)

    def run(self, arguments: Arguments, recorder: OperatorRecorder | None = None) -> list[Tensor]:
        """The tensors of the model's result. Raises what the model raises."""
        self._restore_buffers_and_random_states()
        args, kwargs = arguments
        with torch.no_grad():
            if recorder is None:
                result = self.function(*args, **kwargs)
            else:
                with recorder.recording():
                    result = self.function(*args, **kwargs)
        found = []
        for leaf in _pytree.tree_leaves(result):
            held = (
                [leaf] if isinstance(leaf, Tensor) else list(vars(leaf).values()) if hasattr(leaf, "__dict__") else []
            )
            found += [each for each in held if isinstance(each, Tensor) and each.layout is torch.strided]
        return [each.detach() for each in found]


def _get_random_states() -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    has_cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return (
        torch.get_rng_state(), torch.cuda.get_rng_state_all() if has_cuda else [],
        random.getstate(), numpy.random.get_state() if numpy is not None else None,
    )  # fmt: skip


def _set_random_states(states: tuple[Any, ...]) -> None:
    cpu, cuda, python, numpy = states
    torch.set_rng_state(cpu)
    if cuda:
        torch.cuda.set_rng_state_all(cuda)
    random.setstate(python)
    if numpy is not None:
        sys.modules["numpy"].random.set_state(numpy)


class ResultRowDimensions:
    """Which dimension of each result holds the rows, as two runs with other numbers of rows show it."""

    def __init__(self, one: Sequence[Tensor], two: Sequence[Tensor], row_counts: tuple[int, int]) -> None:
        """Raises SamerunError where no result has rows."""
        self.dims: list[BatchDimension | None] = []
        if len(one) != len(two):
            raise SamerunError("batch_invariant(): the model returns more or fewer tensors with another batch.")
        for mine, theirs in zip(one, two, strict=True):
            found = None
            for dim, (size, other) in enumerate(zip(mine.shape, theirs.shape, strict=False)):
                factor = size // row_counts[0]
                if (
                    found is None
                    and size != other
                    and factor
                    and (factor * row_counts[0], factor * row_counts[1]) == (size, other)
                ):
                    found = BatchDimension(dim, factor)
            self.dims.append(found if mine.ndim == theirs.ndim else None)
        if not any(self.dims):
            raise SamerunError(
                "batch_invariant(): no result of the model has a row for each row of its inputs.",
                "Give a function that returns them, not their mean or loss.",
            )

    def take(self, results: Sequence[Tensor], composition: Composition) -> SampleRows:
        if len(results) != len(self.dims):
            raise SamerunError("batch_invariant(): the model returns more or fewer tensors with another batch.")
        return [
            [part.detach().clone() for part in view_sample_as_block_and_interleaved(result, (dim,), composition)]
            for result, dim in zip(results, self.dims, strict=True)
            if dim is not None
        ]


def measure_difference_or_none_if_equal(
    a: SampleRows, b: SampleRows, is_padded_on_left: bool | None = None
) -> float | None:
    """How far apart two results of a sample are; None if they have the same bits.

    `is_padded_on_left`: b's sequence is padded there (at its beginning), and the padding does not count. Else a longer
    result may have one value after the end of the other's, as tokens have after the last one.
    """
    apart: float | None = None
    for ours, theirs in zip(a, b, strict=True):
        pairs = [_cut_padding_to_common_shape(x, y, is_padded_on_left) for x in ours for y in theirs]
        if not any(x is not None and y is not None and have_same_bits_or_both_nan(x, y) for x, y in pairs):
            differences = [largest_difference(x, y) for x, y in pairs if x is not None and y is not None]
            apart = max(apart or 0.0, min(differences, default=float("inf")))
    return apart


def _cut_padding_to_common_shape(
    x: Tensor, y: Tensor, is_padded_on_left: bool | None
) -> tuple[Tensor | None, Tensor | None]:
    if x.shape == y.shape:
        return x, y
    if is_padded_on_left is not None:
        return x, take_longer_part(y, x.shape, is_padded_on_left)
    if x.ndim != y.ndim or sum(m != n for m, n in zip(x.shape, y.shape, strict=True)) != 1:
        return None, None
    dim = next(at for at, (m, n) in enumerate(zip(x.shape, y.shape, strict=True)) if m != n)
    length = min(x.shape[dim], y.shape[dim])
    longer = x if x.shape[dim] > length else y
    rest = longer.narrow(dim, length, longer.shape[dim] - length)
    if rest.is_floating_point() or not bool((rest == rest.narrow(dim, 0, 1)).all()):
        return None, None
    return x.narrow(dim, 0, length), y.narrow(dim, 0, length)
