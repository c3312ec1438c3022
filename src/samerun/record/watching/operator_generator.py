"""Which generator a random operator draws from. Imports torch."""

from __future__ import annotations

from typing import Any

import torch


def makes_no_values(kwargs: Any) -> bool:
    """Whether an operator without tensor inputs makes a meta or fake tensor: it draws from no generator."""
    device = kwargs.get("device") if kwargs else None
    return (device is not None and torch.device(device).type == "meta") or _infra_mode(_FAKE) is not None


_infra_mode = torch._C._get_dispatch_mode
_FAKE = torch._C._TorchDispatchModeKey.FAKE


def generator_of(kwargs: Any, tensors: list[Any]) -> Any:
    """The generator that a random operator draws from: the one it was given, or its device's own."""
    given = kwargs.get("generator") if kwargs else None
    if given is not None:
        return given
    device = kwargs.get("device") if kwargs else None
    if device is None and tensors:
        device = tensors[0].device
    device = torch.device(device) if device is not None else None
    if device is not None and device.type == "cuda" and torch.cuda.default_generators:
        index = device.index if device.index is not None else torch.cuda.current_device()
        return torch.cuda.default_generators[index]
    return torch.default_generator
