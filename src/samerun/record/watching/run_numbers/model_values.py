"""What models hold, under names that are the same on both sides of a switch. Imports torch.

An optimizer's parameters are named after the models that were called. What a program writes into models itself (the
average of weights that a teacher is) is trained by no optimizer, and counts as much.
"""

from __future__ import annotations

import gc
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.compiler import is_compiling
from xxhash import xxh3_128_digest, xxh3_128_hexdigest

from samerun.record.digests.digest import digest, is_readable
from samerun.record.digests.state_digests import (
    dict_items_bypassing_overrides,
    named_buffers,
    named_modules,
    named_parameters,
)
from samerun.record.digests.torch_guards import HiddenFromProgram, unwrap_transformed
from samerun.record.watching import stack_frames
from samerun.record.watching.recorder import Recorder
from samerun.record.watching.run_numbers.tensor_numbers import (
    flatten_to_float64,
    is_floating_or_complex,
    strip_wrapper_names,
)

NOWHERE = 1 << 62
SAMPLED = 256
"""So many elements tell whether a tensor was written into."""


ASSIGNMENTS_KEPT = 8


class Assignment(NamedTuple):
    """The program's lines (`file:line`) that gave a module a parameter, or another one in its place, the last ones."""

    module: weakref.ref[Any]
    lines: tuple[str, ...]


class ModelValues:
    """The parameters and buffers of the models of a process, by name."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._trained: set[int] = set()
        """The ids of parameters that an optimizer holds, or held."""
        self._positions: dict[int, int] = {}
        """Where each parameter stands in the optimizer that made the last step, by id."""
        self._uncalled: list[Any] = []
        """Models (weakly) that were not called when they were last looked for."""
        self._first_samples: dict[int, tuple[Any, bytes]] = {}
        """Of each untrained parameter, by id: a weak reference, and what a sample of it was when it was first seen."""
        self._written: dict[int, Any] = {}
        """Weak references to untrained parameters that have changed, by id."""
        self._assignments: dict[tuple[int, str], Assignment] = {}
        """By the id of the module and the parameter's name there."""

    def list_called_models(self) -> list[Any]:
        """The outermost models that were called and are still there."""
        references = list(self.recorder.root_models.values())
        return [model for reference in references if (model := reference()) is not None]

    def list_trained_parameters(self, optimizer: Any) -> list[Any]:
        """The parameters that an optimizer holds; in place of one that no called model has, those of called models
        that lie in its memory (a flat vector of all weights).
        """
        held = [p for group in optimizer.param_groups for p in group["params"]]
        known = {id(p): p for root in self.list_called_models() for _, p in list_named_parameters(root)}
        if all(id(p) in known for p in held):
            return held
        with HiddenFromProgram():
            by_memory: dict[int, list[Any]] = defaultdict(list)
            for parameter in filter(can_be_sampled, known.values()):
                by_memory[parameter.untyped_storage().data_ptr()].append(parameter)
            return [
                member
                for p in held
                for member in (
                    by_memory.get(p.untyped_storage().data_ptr(), [p])
                    if id(p) not in known and can_be_sampled(p)
                    else [p]
                )
            ]

    def name_parameters_and_buffers(self, parameters: list[Any], number: int) -> tuple[dict[int, str], dict[str, Any]]:
        """The names of an optimizer's parameters by id, and by name what else models hold that may change.

        parameters: those of the optimizer that made a step; none at the end. number: the step that is over. Models
        that are not called are looked for after steps 1, 2, 4, 8 and so on.
        """
        positions = {id(p): at for at, p in enumerate(parameters)} or self._positions
        self._positions = positions
        self._trained.update(positions)
        lists = [(root, list_named_parameters(root)) for root in self.list_called_models()]
        # The largest first; of equal ones the optimizer's first, in its order: sides may call them in another order.
        lists.sort(
            key=lambda each: (-len(each[1]), min((positions.get(id(p), 1 << 30) for _, p in each[1]), default=0))
        )
        names: dict[int, str] = {}
        values: dict[str, Any] = {}
        seen: set[int] = set()
        for at, (root, listed) in enumerate(lists):
            prefix = "" if at == 0 else f"{type(root).__name__}#{at}."
            for name, parameter in listed:
                names.setdefault(id(parameter), prefix + strip_wrapper_names(name))
            for name, buffer in named_buffers(root):
                if id(buffer) not in seen and is_readable(buffer) and buffer.numel():
                    seen.add(id(buffer))
                    values[prefix + strip_wrapper_names(name)] = buffer
        untrained = [(names[id(p)], p) for _, listed in lists for _, p in listed]
        if number & (number - 1) == 0:
            self._uncalled = [weakref.ref(model) for model in find_models_without(names.keys() | self._trained)]
        uncalled = [member for reference in self._uncalled if (model := reference()) is not None
                    for member in (*named_parameters(model), *named_buffers(model))]  # fmt: skip
        # In which order models are found says nothing: what only one of them has is the same value on both sides.
        counts = Counter(strip_wrapper_names(name) for name, _ in uncalled)
        for name, value in uncalled:
            if counts[strip_wrapper_names(name)] == 1:
                untrained.append((f"{strip_wrapper_names(name)} of a model that is not called", value))
        for name, value in untrained:
            if (
                id(value) not in seen
                and id(value) not in self._trained
                and self._has_sample_changed_since_first_seen(value)
            ):
                seen.add(id(value))
                values.setdefault(name, value)
        for at, parameter in enumerate(parameters):
            names.setdefault(id(parameter), f"parameter {at}")
        return names, values

    def list_tied_names_and_assigning_lines(
        self, names: dict[int, str]
    ) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
        """Further names of parameters that called models hold more than once, with the name that each goes by; and of
        all, by name, the lines that gave them to their modules.
        """
        tied: dict[str, str] = {}
        given: dict[str, tuple[str, ...]] = {}
        for root in self.list_called_models():
            first = {id(parameter): strip_wrapper_names(name) for name, parameter in named_parameters(root)}
            for prefix, module in named_modules(root):
                for key, parameter in dict_items_bypassing_overrides(vars(module).get("_parameters")):
                    name = strip_wrapper_names(f"{prefix}.{key}" if prefix else str(key))
                    known = names.get(id(parameter), "")
                    if id(parameter) not in first or not known.endswith(first[id(parameter)]):
                        continue
                    whole = known.removesuffix(first[id(parameter)]) + name
                    if name != first[id(parameter)]:
                        tied[whole] = known
                    assignment = self._assignments.get((id(module), key))
                    if assignment is not None and assignment.module() is module:
                        given[whole] = assignment.lines
        return tied, given

    def digest_values_by_model_class(self) -> dict[str, list[str]]:
        """Of each called model, by its class, a digest of all values that it holds, whatever names they have."""
        found: dict[str, list[str]] = defaultdict(list)
        for root in self.list_called_models():
            values = sorted(digest(t) for _, t in (*named_parameters(root), *named_buffers(root)) if is_readable(t))
            found[type(root).__name__].append(xxh3_128_hexdigest(b"".join(values)))
        return {name: sorted(digests) for name, digests in found.items()}

    def note_assignment(self, module: Any, name: str, parameter: Any) -> None:
        """A module is given a parameter; torch calls this before it takes it."""
        if parameter is None or self.recorder.thread.inside_samerun or is_compiling():
            return
        known = self._assignments.get((id(module), name))
        before = known.lines if known is not None and known.module() is module else ()
        line = stack_frames.find_user_line()
        lines = (*before, f"{line.file}:{line.line}")[-ASSIGNMENTS_KEPT:]
        self._assignments[id(module), name] = Assignment(weakref.ref(module), lines)

    def _has_sample_changed_since_first_seen(self, tensor: Any) -> bool:
        """Whether a tensor has changed since it was first seen: frozen weights, which are many, need no numbers."""
        written = self._written.get(id(tensor))
        if written is not None and written() is tensor:
            return True
        if not can_be_sampled(tensor):
            return False
        sample, known = digest_sample(tensor), self._first_samples.get(id(tensor))
        if known is None or known[0]() is not tensor:
            self._first_samples[id(tensor)] = weakref.ref(tensor), sample
            return False
        if known[1] == sample:
            return False
        self._written[id(tensor)] = weakref.ref(tensor)
        return True


def list_named_parameters(model: Any) -> list[tuple[str, Any]]:
    """As `Module.named_parameters()` gives them; in a transform of torch.func, the tensors that it has wrapped."""
    return [(name, unwrap_transformed(parameter)) for name, parameter in named_parameters(model)]


def can_be_sampled(tensor: Any) -> bool:
    return bool(is_readable(tensor) and is_floating_or_complex(tensor) and tensor.numel())


def digest_sample(tensor: Any) -> bytes:
    """Of up to `SAMPLED` elements of a tensor that can be sampled, evenly spaced."""
    with HiddenFromProgram():
        flat = flatten_to_float64(tensor)
        return xxh3_128_digest(flat[:: -(-flat.numel() // SAMPLED)].cpu().numpy().tobytes())


def find_models_without(parameter_ids: set[int]) -> list[Any]:
    """Models that hold parameters, none of them one of these, and that are no part of another model."""
    modules = [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]
    inner = {id(child) for module in modules for child in iterate_children(module)}
    outermost = [(module, list(named_parameters(module))) for module in modules if id(module) not in inner]
    return [
        module
        for module, parameters in outermost
        if parameters and not any(id(parameter) in parameter_ids for _, parameter in parameters)
    ]


def iterate_children(module: Any) -> Iterator[Any]:
    return (child for _, child in dict_items_bypassing_overrides(vars(module).get("_modules")))
