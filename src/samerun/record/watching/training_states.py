"""What a training holds besides its parameters, part by part, as values that `torch.load(weights_only=True)` reads.

Absent libraries are not imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

TORCH, NUMPY, PYTHON, OWN = "torch", "numpy", "python", "own"
OPTIMIZER, SCHEDULER, SCALER = "optimizer", "scheduler", "scaler"
PARTS = (TORCH, NUMPY, PYTHON, OWN, OPTIMIZER, SCHEDULER, SCALER)
"""The global generators, the program's own ones, and what carries over from step to step."""


class NonParameterStates:
    """The objects of a training whose states are kept, each kind in the order in which they were made."""

    def __init__(self, torch: Any, generators: list[Any]) -> None:
        self.torch = torch
        self.generators = generators
        self.optimizers: list[Any] = []
        self.schedulers: list[Any] = []
        self.scalers: list[Any] = []

    def read_training_states_skipping_unreadable(self) -> dict[str, Any]:
        """Part -> its state, without the parts whose state cannot be read."""
        numpy, python = sys.modules.get("numpy.random"), sys.modules.get("random")
        ways: dict[str, Callable[[], Any]] = {
            TORCH: lambda: self._read_torch_generator_states(),
            NUMPY: lambda: encode_arrays_as_lists(numpy.get_state(legacy=False)) if numpy is not None else None,
            PYTHON: lambda: python.getstate() if python is not None else None,
            OWN: lambda: [_read_generator_state(generator) for generator in self.generators],
            OPTIMIZER: lambda: [optimizer.state_dict() for optimizer in self.optimizers],
            SCHEDULER: lambda: (
                [scheduler.state_dict() for scheduler in self.schedulers],
                [_read_param_group_settings(optimizer) for optimizer in self.optimizers],
            ),
            SCALER: lambda: [scaler.state_dict() for scaler in self.scalers],
        }
        found = {}
        for part, way in ways.items():
            try:
                found[part] = way()
            except Exception:  # a class of the user's may not support it
                continue
        return found

    def try_restore_and_list_restored_parts(self, states: dict[str, Any], parts: Sequence[str]) -> list[str]:
        """Put these parts back into the objects that exist. Returns the parts that took a state."""
        taken = []
        for part in parts:
            try:
                if part in states and self._restore_part(part, states[part]):
                    taken.append(part)
            except Exception:  # another model, for example: the experiment then proves nothing
                continue
        return taken

    def _restore_part(self, part_name: str, state: Any) -> bool:
        """Returns whether an object took a state. Raises what torch raises for a state that does not fit."""
        if part_name == TORCH:
            self.torch.set_rng_state(state["cpu"])
            if state["cuda"]:
                self.torch.cuda.set_rng_state_all(state["cuda"])
            return True
        if part_name == NUMPY:
            if state is not None and "numpy.random" in sys.modules:
                sys.modules["numpy.random"].set_state(decode_lists_to_arrays(state))
            return state is not None
        if part_name == PYTHON:
            if state is not None and "random" in sys.modules:
                sys.modules["random"].setstate(state)
            return state is not None
        if part_name == SCHEDULER:
            schedulers, numbers = state
            for optimizer, groups in zip(self.optimizers, numbers, strict=False):
                for group, values in zip(optimizer.param_groups, groups, strict=True):
                    group.update(values)
            return _load_every_paired_state_dict_and_count(self.schedulers, schedulers) > 0
        if part_name == OWN:
            for generator, value in zip(self.generators, state, strict=False):
                _set_generator_state(generator, value)
            return bool(self.generators and state)
        owners = self.optimizers if part_name == OPTIMIZER else self.scalers
        return _load_every_paired_state_dict_and_count(owners, state) > 0

    def _read_torch_generator_states(self) -> dict[str, Any]:
        cuda = self.torch.cuda
        return {
            "cpu": self.torch.get_rng_state(),
            "cuda": cuda.get_rng_state_all() if cuda.is_available() and cuda.is_initialized() else [],
        }


def _load_every_paired_state_dict_and_count(objects: list[Any], states: list[Any]) -> int:
    pairs = list(zip(objects, states, strict=False))
    for each, state in pairs:
        each.load_state_dict(state)
    return len(pairs)


def _read_param_group_settings(optimizer: Any) -> list[dict[str, Any]]:
    """Learning rate, momentum, ...: the entries of the parameter groups besides the parameters."""
    return [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]


def _read_generator_state(generator: Any) -> Any:
    if hasattr(generator, "getstate"):
        return ["python", generator.getstate()]
    if hasattr(generator, "bit_generator"):
        return ["numpy", encode_arrays_as_lists(generator.bit_generator.state)]
    if hasattr(generator, "initial_seed"):
        return ["torch", generator.get_state()]
    return ["legacy", encode_arrays_as_lists(generator.get_state(legacy=False))]


def _set_generator_state(generator: Any, kind_and_state: Any) -> None:
    kind, state = kind_and_state
    if kind == "python":
        generator.setstate(state)
    elif kind == "numpy":
        generator.bit_generator.state = decode_lists_to_arrays(state)
    else:
        generator.set_state(decode_lists_to_arrays(state) if kind == "legacy" else state)


def encode_arrays_as_lists(value: Any) -> Any:
    """A state of NumPy's with arrays as lists, which `torch.load(weights_only=True)` accepts."""
    if isinstance(value, dict):
        return {key: encode_arrays_as_lists(inner) for key, inner in value.items()}
    if hasattr(value, "tolist"):
        return {"array": value.tolist(), "dtype": str(value.dtype)}
    return value


def decode_lists_to_arrays(value: Any) -> Any:
    """The reverse of `encode_arrays_as_lists`."""
    if isinstance(value, dict) and value.keys() == {"array", "dtype"}:
        return sys.modules["numpy"].array(value["array"], value["dtype"])
    return {key: decode_lists_to_arrays(inner) for key, inner in value.items()} if isinstance(value, dict) else value
