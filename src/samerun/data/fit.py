"""Whether the states in a checkpoint fit the parts that are to take them, seen before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from samerun.base.errors import CheckpointError
from samerun.base.text import shown

_NUMBERS = (bool, int, float)


def check_parts(parts: Mapping[str, Any], held: Mapping[str, Any], target: str) -> None:
    """Raises CheckpointError, with the path to it, for the first state of another kind than its part's own."""
    for name, part in parts.items():
        said = _misfit(part, held[name], name)
        if said:
            raise CheckpointError(
                f"checkpoint.load({target!r}): {said}", "Make it as it was made in the run that saved it."
            )


def _misfit(part: Any, state: Any, name: str) -> str:
    if not hasattr(part, "load_state_dict"):
        return _misfit_inside(part, state, name)
    if not isinstance(state, Mapping):
        return f"{name} ({type(part).__name__}) did not take its state: it is a {type(state).__name__}, not a dict."
    if isinstance(part, torch.nn.Module):
        said = _misfit_of_module(part, state)
    elif isinstance(part, torch.optim.Optimizer):
        said = _misfit_of_optimizer(part, state)
    else:
        said = _other_kind(part.state_dict(), state) if hasattr(part, "state_dict") else ""
    return f"{name} ({type(part).__name__}) did not take its state: {said}." if said else ""


def _misfit_inside(part: Any, state: Any, name: str) -> str:
    """Of a dict or list of parts."""
    if not isinstance(state, Mapping if isinstance(part, Mapping) else list):
        return f"{name} has {len(part)} parts, and the checkpoint holds a {type(state).__name__} for them."
    keys = list(part) if isinstance(part, Mapping) else list(range(len(part)))
    there = list(state) if isinstance(state, Mapping) else list(range(len(state)))
    if [str(key) for key in keys] != [str(key) for key in there]:
        return f"{name} has {keys}, and the checkpoint has {shown(there)}."
    states = [state[str(key)] for key in keys] if isinstance(state, Mapping) else list(state)
    inner = zip(keys, states, strict=True)
    return next((said for key, one in inner if (said := _misfit(part[key], one, f"{name}[{key!r}]"))), "")


def _misfit_of_module(part: torch.nn.Module, state: Mapping[str, Any]) -> str:
    """Of a model as torch makes it: tensors by name. What a module's own hooks make of it, they answer for."""
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
                return f"{shown(key)} is a {type(value).__name__}, not a tensor"
            if value.is_complex() and not here.is_complex():
                return f"{shown(key)} is complex"
        elif not isinstance(key, str):
            return f"{shown(key)} is no name"
    return ""


def _misfit_of_optimizer(part: torch.optim.Optimizer, state: Mapping[str, Any]) -> str:
    groups, states = state.get("param_groups"), state.get("state")
    if not isinstance(groups, list) or not isinstance(states, Mapping):
        return "it holds no groups of parameters"
    for own, group in zip(part.param_groups, groups, strict=False):
        if not isinstance(group, Mapping) or not isinstance(group.get("params"), list):
            return "a group of it holds no parameters"
        said = _other_kind({k: v for k, v in own.items() if k != "params"}, group)
        if said:
            return said
    for number, held in states.items():
        if not isinstance(held, Mapping):
            return f"the state of parameter {shown(number)} is a {type(held).__name__}, not a dict"
    return ""


def _other_kind(own: Any, state: Any, path: str = "", depth: int = 0) -> str:
    """The first entry of a state that is of another kind than the part's own; entries that only one has are let be."""
    if own is None or state is None or depth > 20:
        return ""
    for kinds in (_NUMBERS, (str,), (list, tuple), (Mapping,), (torch.Tensor,)):
        # a number may have been made a tensor, as learning rates are
        others = (
            (*kinds, torch.Tensor) if kinds is _NUMBERS else (*kinds, *_NUMBERS) if torch.Tensor in kinds else kinds
        )
        if isinstance(own, kinds):
            if not isinstance(state, others):
                return f"{path or 'it'} is a {type(state).__name__}, not a {type(own).__name__}"
            break
    if isinstance(own, Mapping):
        both = ((f"{path}[{key!r}]", own[key], state[key]) for key in own if key in state)
        return next((said for where, a, b in both if (said := _other_kind(a, b, where, depth + 1))), "")
    return ""
