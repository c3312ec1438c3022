"""The operators of two runs of a program side by side: at which ones does a sample's part depend on the batch?

Run A is recorded with the sample's part of every result. Run B computes the same sample in another batch: where an
operator gets the same and gives something else, it depends on the batch. A's values are then put in its place, so that
what comes after is judged by itself, and whether the operators found explain the whole difference shows at the end.
Imports torch.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from samerun.record.watching.batch_invariance.sample_parts import (
    SampleDims,
    SampleWindow,
    Shape,
    have_same_bits_or_both_nan,
    largest_difference,
)
from samerun.record.watching.stack_frames import find_user_line

Tensor = torch.Tensor
MOVES = frozenset(
    (
        "_to_copy", "arange", "cat", "clone", "constant_pad_nd", "contiguous", "copy_", "embedding",
        "empty", "empty_like", "expand_copy", "fill_", "full", "full_like", "gather", "index",
        "index_select", "lift_fresh", "narrow", "new_empty", "new_full", "new_ones", "new_zeros", "ones",
        "ones_like", "repeat", "scalar_tensor", "slice", "stack", "zero_", "zeros", "zeros_like",
    )
)  # fmt: skip
"""Operators that move values and compute none: none of them is where a program takes another way on purpose."""


@dataclass
class OperatorCall:
    """One call of an operator. `inputs`: shapes of what it gets; `shapes` and, in run A, `parts`: of its results."""

    operator: str
    file: str
    line: int
    module: str
    is_view: bool
    inputs: list[Shape] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)
    parts: list[list[Tensor]] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str, int, str]:
        return self.operator, self.file, self.line, self.module

    @property
    def row_key(self) -> tuple[str, int, str]:
        """What a `BatchDependence` knows of it."""
        return self.operator, self.line, self.module

    @property
    def computes(self) -> bool:
        return not self.is_view and self.operator.split(".")[1] not in MOVES


@dataclass
class DependentCall:
    """A call in run B whose part for the sample is another one than in run A.

    `index_a`: its counterpart. `other`: what run A calls instead, where the two runs call other operators.
    """

    call: OperatorCall
    index_b: int
    index_a: int
    counterpart: OperatorCall
    largest_difference: float
    takes_another_way: bool = False
    other: OperatorCall | None = None


class OperatorRecorder(TorchDispatchMode):
    """Writes down every operator. `captured`: of these calls the arguments are kept as they were before."""

    def __init__(self, names: Mapping[int, str], captured: Collection[int] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[OperatorCall] = []
        self.arguments: dict[int, tuple[Any, Any, Any]] = {}
        self._names, self._captured = names, captured
        self._modules: list[str] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import torch._dynamo at the first operator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        index = len(self.calls)
        if index in self._captured:
            with _disable_current_modes():
                self.arguments[index] = (func, *_pytree.tree_map(_clone, (args, kwargs)))
        out = func(*args, **kwargs)
        file, line, _ = find_user_line()
        module = self._modules[-1] if self._modules else ""
        inputs = [tuple(leaf.shape) for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        call = OperatorCall(str(func), file, line, module, bool(getattr(func, "is_view", False)), inputs)
        self.calls.append(call)
        results = list_results(func, args, kwargs, out)
        call.shapes = [tuple(each.shape) for each in results]
        with _disable_current_modes(), torch.no_grad():
            self.keep_parts_of_results(index, call, (args, kwargs), results)
        return out

    def keep_parts_of_results(self, index: int, call: OperatorCall, arguments: Any, results: list[Tensor]) -> None:
        """Look at a call that has returned."""

    @contextmanager
    def recording(self) -> Any:
        """Record what is called inside, and in which module."""
        hooks = torch.nn.modules.module

        def enter(module: Any, _: Any) -> None:
            self._modules.append(self._names.get(id(module), type(module).__name__))

        def leave(module: Any, *_: Any) -> None:
            self._modules.pop()

        before = hooks.register_module_forward_pre_hook(enter)
        after = hooks.register_module_forward_hook(leave, always_call=True)
        try:
            with self:
                yield self
        finally:
            before.remove()
            after.remove()


def _clone(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, Tensor) else leaf


def list_results(func: Any, args: Any, kwargs: Any, out: Any) -> list[Tensor]:
    """What an operator returned, and what it wrote into besides."""
    results = [leaf for leaf in _pytree.tree_leaves(out) if isinstance(leaf, Tensor)]
    schema = getattr(func, "_schema", None)
    for at, argument in enumerate(schema.arguments if schema is not None else ()):
        if argument.alias_info is not None and argument.alias_info.is_write:
            written = args[at] if at < len(args) else kwargs.get(argument.name)
            results += [
                leaf
                for leaf in _pytree.tree_leaves(written)
                if isinstance(leaf, Tensor) and not any(leaf is each for each in results)
            ]
    return results


class PartRecorder(OperatorRecorder):  # type: ignore[no-untyped-call]
    """Run A: keeps the sample's part of every result. `dims`: of each call, of each result."""

    def __init__(
        self, names: Mapping[int, str], window: SampleWindow, dims: list[list[SampleDims | None]],
        fixed: Collection[int], captured: Collection[int] = (),
    ) -> None:  # fmt: skip
        super().__init__(names, captured)
        self._window, self._dims, self._fixed = window, dims, fixed

    def keep_parts_of_results(self, index: int, call: OperatorCall, arguments: Any, results: list[Tensor]) -> None:
        if call.is_view or index >= len(self._dims):
            return
        for dims, result in zip(self._dims[index], results, strict=False):
            parts = (
                self._window.view_candidate_sample_parts_if_shape_fits(result, dims, tuple(result.shape), False)
                if dims is not None
                else []
            )
            if result.untyped_storage().data_ptr() not in self._fixed:
                parts = [part.detach().clone() for part in parts]
            call.parts.append(parts)


class PartComparer(OperatorRecorder):  # type: ignore[no-untyped-call]
    """Run B: compares the sample's part of every result with run A's, and puts A's values in place of others.

    `counterparts`: index in B -> index in A. `left_alone`: keys of calls into which nothing is put.
    """

    def __init__(
        self, names: Mapping[int, str], window: SampleWindow, run_a: PartRecorder, dims: list[list[SampleDims | None]],
        counterparts: Mapping[int, int], captured: Collection[int] = (), left_alone: Collection[Any] = (),
    ) -> None:  # fmt: skip
        super().__init__(names, captured)
        self.dependent: list[DependentCall] = []
        self._window, self._run_a, self._dims = window, run_a, dims
        self._counterparts, self._left_alone = counterparts, left_alone
        self._unknown: dict[int, OperatorCall] = {}
        """Storages whose content has no counterpart in run A, and the operator from which that comes."""
        self._differing: set[int] = set()
        """Storages where the sample's part is another one, because an operator was left alone."""

    def keep_parts_of_results(self, index: int, call: OperatorCall, arguments: Any, results: list[Tensor]) -> None:
        if call.is_view:
            return
        index_a = self._counterparts.get(index, -1)
        counterpart = self._run_a.calls[index_a] if index_a >= 0 else None
        origin = self._find_unmatched_origin(arguments)
        if origin is not None and not origin.computes and call.computes and counterpart is None:
            origin = call
        is_behind = not self._differing.isdisjoint(_list_storage_addresses(arguments))
        for at, result in enumerate(results):
            storage = result.untyped_storage().data_ptr()
            parts, mine = self._take_candidate_parts_of_both_runs(counterpart, index_a, at, result)
            if not mine:
                self._unknown[storage] = origin or call
                continue
            self._unknown.pop(storage, None)
            self._differing.discard(storage)
            if any(have_same_bits_or_both_nan(ours, theirs) for ours in mine for theirs in parts):
                continue
            if is_behind:
                self._differing.add(storage)
                continue
            apart, ours, theirs = min(
                ((largest_difference(o, t), o, t) for o in mine for t in parts), key=lambda found: found[0]
            )
            self._add_dependent_call(call, index, index_a, apart, origin)
            if (origin or call).key in self._left_alone or ours.shape != theirs.shape:
                self._differing.add(storage)
            else:
                ours.copy_(theirs)

    def _take_candidate_parts_of_both_runs(
        self, counterpart: OperatorCall | None, index_a: int, result_position: int, result: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        """What may be the sample's of a result: in run A, and here; nothing where that is not known."""
        if counterpart is None or result_position >= len(counterpart.parts) or not counterpart.parts[result_position]:
            return [], []
        dims = self._dims[index_a][result_position]
        return counterpart.parts[
            result_position
        ], [] if dims is None else self._window.view_candidate_sample_parts_if_shape_fits(
            result, dims, counterpart.shapes[result_position], True
        )

    def add_unmatched_operators_as_dependent(self, results: list[Tensor], apart: float) -> None:
        """Where the model's results come from operators without a counterpart, those are what makes them differ."""
        for result in results:
            origin = self._unknown.get(result.untyped_storage().data_ptr())
            if origin is not None and not any(one.call is origin for one in self.dependent):
                last = len(self._run_a.calls) - 1
                self._add_dependent_call(origin, -1, last, apart, origin)

    def _find_unmatched_origin(self, arguments: Any) -> OperatorCall | None:
        """The first operator without a counterpart in run A on which an input depends."""
        return next((self._unknown[each] for each in _list_storage_addresses(arguments) if each in self._unknown), None)

    def _add_dependent_call(
        self,
        call: OperatorCall,
        index: int,
        index_a: int,
        largest_difference: float,
        unmatched_origin: OperatorCall | None,
    ) -> None:
        counterpart = self._run_a.calls[index_a]
        if unmatched_origin is None:
            self.dependent.append(DependentCall(call, index, index_a, counterpart, largest_difference))
            return
        matched = set(self._counterparts.values())
        others = [
            each
            for at, each in enumerate(self._run_a.calls[: index_a + 1])
            if each.computes and at not in matched and each.module == unmatched_origin.module
        ]
        self.dependent.append(
            DependentCall(
                unmatched_origin, index, index_a, counterpart, largest_difference, True, others[0] if others else None
            )
        )


def _list_storage_addresses(arguments: Any) -> list[int]:
    return [
        leaf.untyped_storage().data_ptr()
        for leaf in _pytree.tree_leaves(arguments)
        if isinstance(leaf, Tensor) and leaf.layout is torch.strided
    ]


def match_calls_of_b_to_a(
    a: list[OperatorCall], b: list[OperatorCall], shapes_correspond: Callable[[Shape, Shape], bool]
) -> dict[int, int]:
    """Index in b -> index in a of the calls that belong together: the same operator at the same line, with inputs that
    are as large but for the batch.
    """

    def belong_together(one: OperatorCall, other: OperatorCall) -> bool:
        return (
            one.key == other.key
            and len(one.inputs) == len(other.inputs)
            and all(shapes_correspond(*shapes) for shapes in zip(one.inputs, other.inputs, strict=True))
        )

    shorter = min(len(a), len(b))
    begin = next((at for at in range(shorter) if not belong_together(a[at], b[at])), shorter)
    most = shorter - begin
    end = next((at for at in range(most) if not belong_together(a[-1 - at], b[-1 - at])), most)
    matched = {at: at for at in range(begin)}
    matched |= {len(b) - 1 - at: len(a) - 1 - at for at in range(end)}
    middle_a, middle_b = a[begin : len(a) - end], b[begin : len(b) - end]
    matcher = difflib.SequenceMatcher(
        None, [call.key for call in middle_a], [call.key for call in middle_b], autojunk=False
    )
    for block in matcher.get_matching_blocks():
        for at in range(block.size):
            if belong_together(middle_a[block.a + at], middle_b[block.b + at]):
                matched[begin + block.b + at] = begin + block.a + at
    return matched


def find_sample_dims(
    window: SampleWindow, a: list[OperatorCall], probe: list[OperatorCall]
) -> list[list[SampleDims | None]]:
    """For each call of run A and each of its results: where the sample is."""
    dims: list[list[SampleDims | None]] = [[None] * len(call.shapes) for call in a]
    matched = match_calls_of_b_to_a(a, probe, lambda one, other: window.find_dims(one, other) is not None)
    for index_probe, index_a in matched.items():
        shapes, others = a[index_a].shapes, probe[index_probe].shapes
        if len(shapes) == len(others):
            dims[index_a] = [window.find_dims(*pair) for pair in zip(shapes, others, strict=True)]
    return dims
