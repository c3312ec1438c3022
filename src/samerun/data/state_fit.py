"""Check that the states in a checkpoint fit the objects that are to load them, before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from samerun.base.errors import CheckpointError
from samerun.base.text import printable_line

_NUMBER_TYPES = (bool, int, float)


def require_states_fit(parts: Mapping[str, Any], held: Mapping[str, Any], target: str) -> None:
    """Raises CheckpointError, with its path, for the first state whose type differs from that of the part."""
    for name, part in parts.items():
        misfit = _describe_misfit(part, held[name], name)
        if misfit:
            raise CheckpointError(
                f"checkpoint.load({target!r}): {misfit}", "Make it as it was made in the run that saved it."
            )


def _describe_misfit(part: Any, state: Any, name: str) -> str:
    if not hasattr(part, "load_state_dict"):
        return _describe_container_misfit(part, state, name)
    if not isinstance(state, Mapping):
        return f"{name} ({type(part).__name__}) did not take its state: it is a {type(state).__name__}, not a dict."
    if isinstance(part, torch.nn.Module):
        misfit = _describe_module_misfit(part, state)
    elif isinstance(part, torch.optim.Optimizer):
        misfit = _describe_optimizer_misfit(part, state)
    else:
        misfit = _describe_type_mismatch(part.state_dict(), state) if hasattr(part, "state_dict") else ""
    return f"{name} ({type(part).__name__}) did not take its state: {misfit}." if misfit else ""


def _describe_container_misfit(part: Any, state: Any, name: str) -> str:
    """Return the misfit of a dict or list of parts."""
    if not isinstance(state, Mapping if isinstance(part, Mapping) else list):
        return f"{name} has {len(part)} parts, and the checkpoint holds a {type(state).__name__} for them."
    keys = list(part) if isinstance(part, Mapping) else list(range(len(part)))
    there = list(state) if isinstance(state, Mapping) else list(range(len(state)))
    if [str(key) for key in keys] != [str(key) for key in there]:
        return f"{name} has {keys}, and the checkpoint has {printable_line(there)}."
    states = [state[str(key)] for key in keys] if isinstance(state, Mapping) else list(state)
    inner = zip(keys, states, strict=True)
    return next((misfit for key, one in inner if (misfit := _describe_misfit(part[key], one, f"{name}[{key!r}]"))), "")


def _describe_module_misfit(part: torch.nn.Module, state: Mapping[str, Any]) -> str:
    """Return the misfit of a module: tensors by name. What a module's own hooks do with the state is up to them."""
    metadata = getattr(state, "_metadata", None)
    if metadata is not None and not (
        isinstance(metadata, dict) and all(isinstance(inner, dict) for inner in metadata.values())
    ):
        return "its versions are damaged"
    own = part.state_dict()
    for key, value in state.items():
        here = own.get(key)
        if isinstance(here, torch.Tensor):
            if not isinstance(value, torch.Tensor):
                return f"{printable_line(key)} is a {type(value).__name__}, not a tensor"
            if value.is_complex() and not here.is_complex():
                return f"{printable_line(key)} is complex"
        elif not isinstance(key, str):
            return f"{printable_line(key)} is not a name"
    return ""


def _describe_optimizer_misfit(part: torch.optim.Optimizer, state: Mapping[str, Any]) -> str:
    groups, states = state.get("param_groups"), state.get("state")
    if not isinstance(groups, list) or not isinstance(states, Mapping):
        return "it holds no groups of parameters"
    for own, group in zip(part.param_groups, groups, strict=False):
        if not isinstance(group, Mapping) or not isinstance(group.get("params"), list):
            return "a group of it holds no parameters"
        misfit = _describe_type_mismatch({k: v for k, v in own.items() if k != "params"}, group)
        if misfit:
            return misfit
    for number, held in states.items():
        if not isinstance(held, Mapping):
            return f"the state of parameter {printable_line(number)} is a {type(held).__name__}, not a dict"
    return ""


def _describe_type_mismatch(own: Any, state: Any, path: str = "", depth: int = 0) -> str:
    """Return the first entry of a state whose type differs from the part's; entries that only one has are ignored."""
    if own is None or state is None or depth > 20:
        return ""
    for kinds in (_NUMBER_TYPES, (str,), (list, tuple), (Mapping,), (torch.Tensor,)):
        # a number may have become a tensor and back, as learning rates do
        accepted: tuple[Any, ...] = kinds
        if kinds is _NUMBER_TYPES:
            accepted = (*kinds, torch.Tensor)
        elif torch.Tensor in kinds:
            accepted = (*kinds, *_NUMBER_TYPES)
        if isinstance(own, kinds):
            if not isinstance(state, accepted):
                return f"{path or 'it'} is a {type(state).__name__}, not a {type(own).__name__}"
            break
    if isinstance(own, Mapping):
        both = ((f"{path}[{key!r}]", own[key], state[key]) for key in own if key in state)
        return next((misfit for where, a, b in both if (misfit := _describe_type_mismatch(a, b, where, depth + 1))), "")
    return ""
