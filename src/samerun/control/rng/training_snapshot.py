"""Go back to where a training stood before a step, in the same process: models, optimizers and the like, generators."""

from __future__ import annotations

import copy
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from samerun.base.errors import SamerunError
from samerun.control.rng.state import restore_snapshot, set_rng_state, take_snapshot

ValueKey: TypeAlias = tuple[str, "int | str"]
"""Kind of a value that a snapshot keeps, and its number, or the name of a generator."""
GENERATOR = "generator"


class TrainingSnapshot:
    """What a step changes, as it is now. `restore` may be called more than once.

    Tensors are put back in place: the program, its graph and a communication library may hold them. Covers of a
    module the parameters, gradients and buffers (also those that are not saved), of an optimizer the parameters, their
    gradients, the state and the groups, of another object its `state_dict`, and every generator that
    `seed_everything` knows. `arguments`: what the step is called with, whose tensors, lists and dicts are put back too.
    """

    def __init__(self, parts: Sequence[Any], arguments: Any = ()) -> None:
        import torch

        require_restorable(parts)
        self._random = take_snapshot(start_devices=False)
        self._contents: dict[int, tuple[Any, Any]] = {}
        """Id of a tensor -> it, and a copy: one tensor may be part of many things."""
        self._containers: list[tuple[Any, Any]] = []
        self._gradients: list[tuple[Any, Any]] = []
        self._modes: list[tuple[Any, bool]] = []
        self._states: list[tuple[Any, Any]] = []
        for part in parts:
            if isinstance(part, torch.nn.Module):
                self._keep_module_mode_and_tensors(part)
            elif isinstance(part, torch.optim.Optimizer):
                self._keep_nested_tensors_and_containers(part.param_groups)
                self._keep_nested_tensors_and_containers(part.state)
            else:
                self._states.append((part, copy.deepcopy(part.state_dict())))
        self._counts = len(self._contents), len(self._containers)
        """How many tensors and containers are the parts', not the arguments'."""
        self._keep_nested_tensors_and_containers(arguments)

    def get_kept_values_by_key(self) -> dict[ValueKey, Any]:
        """All values that were kept of the parts, and of generators.

        Another process with such parts has the same keys: tensors, numbers and states in their order, generators.
        """
        tensors = [content for _, content in list(self._contents.values())[: self._counts[0]]]
        numbers = [content[key] for _, key, content in self._iterate_saved_non_tensor_entries()]
        states = [state for _, state in self._states]
        listed = {"tensor": tensors, "number": numbers, "state": states}
        found: dict[ValueKey, Any] = {(kind, at): value for kind in listed for at, value in enumerate(listed[kind])}
        return {**found, **{(GENERATOR, name): state for name, state in self._random.state.items()}}

    def replace_values_after_restore(self, values: Mapping[ValueKey, Any]) -> None:
        """After `restore`: put other values in the place of those with these keys of `get_kept_values_by_key`."""
        import torch

        tensors = [tensor for tensor, _ in self._contents.values()]
        numbers = list(self._iterate_saved_non_tensor_entries())
        for (kind, at), value in values.items():
            if kind == "tensor":
                with torch.no_grad():
                    tensors[int(at)].detach().copy_(value)
            elif kind == "number":
                container, key, _ = numbers[int(at)]
                container[key] = value
            elif kind == "state":
                self._states[int(at)][0].load_state_dict(copy.deepcopy(value))
        set_rng_state({str(name): value for (kind, name), value in values.items() if kind == GENERATOR}, strict=False)

    def _iterate_saved_non_tensor_entries(self) -> Iterator[tuple[Any, Any, Any]]:
        """Container, key and kept content for each value in the parts' containers that is no tensor or container."""
        import torch

        for container, content in self._containers[: self._counts[1]]:
            for key in content if isinstance(content, dict) else range(len(content)):
                if not isinstance(content[key], (torch.Tensor, dict, list, deque)):
                    yield container, key, content

    def restore(self) -> None:
        """Put everything back."""
        import torch

        for container, content in self._containers:
            container.clear()
            if isinstance(container, dict):
                container.update(content)
            else:
                container.extend(content)
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        with torch.no_grad():
            for tensor, content in self._contents.values():
                tensor.detach().copy_(content)  # an inference tensor itself refuses to be written
        for module, training in self._modes:
            module.training = training
        for part, state in self._states:
            part.load_state_dict(copy.deepcopy(state))
        restore_snapshot(self._random)

    def _keep_module_mode_and_tensors(self, module: Any) -> None:
        for child in module.modules():
            self._modes.append((child, child.training))
            for tensors in (child._parameters, child._buffers):  # `module.buffer = ...` replaces a tensor
                self._keep_nested_tensors_and_containers(tensors)

    def _keep_nested_tensors_and_containers(self, value: Any) -> None:
        import torch

        if isinstance(value, torch.Tensor):
            if id(value) in self._contents:
                return
            held = _get_tensor_in_memory(value)
            self._contents[id(value)] = held, held.detach().clone()
            if value.is_leaf and value.requires_grad:
                self._gradients.append((value, value.grad))
                self._keep_nested_tensors_and_containers(value.grad)
        elif isinstance(value, dict):
            self._containers.append((value, dict(value)))
            for entry in value.values():
                self._keep_nested_tensors_and_containers(entry)
        elif isinstance(value, (list, deque)):
            self._containers.append((value, list(value)))
            for entry in value:
                self._keep_nested_tensors_and_containers(entry)
        elif isinstance(value, tuple):
            for entry in value:
                self._keep_nested_tensors_and_containers(entry)


def _get_tensor_in_memory(tensor: Any) -> Any:
    """The part of a sharded tensor that this rank holds; a tensor that is not sharded itself."""
    kinds = sys.modules.get("torch.distributed.tensor")
    return tensor._local_tensor if kinds is not None and isinstance(tensor, kinds.DTensor) else tensor


def require_restorable(parts: Sequence[Any]) -> None:
    """Raises SamerunError for a part that cannot be put back."""
    import torch

    for part in parts:
        known = isinstance(part, (torch.nn.Module, torch.optim.Optimizer))
        if not known and not all(callable(getattr(part, name, None)) for name in ("state_dict", "load_state_dict")):
            raise SamerunError(
                f"{type(part).__name__} cannot be put back: it has no state_dict and load_state_dict.",
                hint="Give models, optimizers, schedulers, scalers, and objects of yours with these two methods.",
            )


def iterate_named_training_state(parts: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Everything that a `TrainingSnapshot` covers, by name: tensors, and what an optimizer or scheduler counts."""
    import torch

    names: dict[int, str] = {}
    for part in parts:
        kind = type(part).__name__
        if isinstance(part, torch.nn.Module):
            for name, parameter in part.named_parameters():
                names[id(parameter)] = name
                yield f"parameter {name}", parameter
                yield f"gradient of {name}", parameter.grad
            for name, buffer in part.named_buffers():
                yield f"buffer {name}", buffer
        elif isinstance(part, torch.optim.Optimizer):
            parameters = [parameter for group in part.param_groups for parameter in group["params"]]
            for at, parameter in enumerate(parameters):
                name = names.get(id(parameter), f"{at} of {kind}")
                if id(parameter) not in names:
                    yield f"parameter {name}", parameter
                    yield f"gradient of {name}", parameter.grad
                state = part.state.get(parameter, {})
                for key, value in state.items() if isinstance(state, dict) else ():
                    yield f"{kind}'s {key} of {name}", value
            for group in part.param_groups:
                yield f"{kind}'s settings", {key: value for key, value in group.items() if key != "params"}
        else:
            yield f"state of {kind}", part.state_dict()
    for name, random_state in take_snapshot(start_devices=False).state.items():
        yield f"random generator {name}", random_state
