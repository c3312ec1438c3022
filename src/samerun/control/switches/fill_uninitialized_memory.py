"""`torch.empty` and its like give a known value while deterministic algorithms are on."""

from __future__ import annotations

from samerun.control.switches.started import torch_c, torch_has
from samerun.control.switches.switch import Policy, Switch


def _available() -> bool:
    return torch_has("_get_deterministic_fill_uninitialized_memory", "_set_deterministic_fill_uninitialized_memory")


def _read() -> bool:
    return bool(torch_c()._get_deterministic_fill_uninitialized_memory())


def _write(value: bool) -> None:
    torch_c()._set_deterministic_fill_uninitialized_memory(value)


def _wanted(policy: Policy) -> bool:
    return policy.fill_uninitialized_memory


SWITCH = Switch(
    "fill_uninitialized_memory",
    "Fresh memory holds NaN (floats) or the largest value (integers) instead of what was there before.",
    "A program that reads memory before it writes it gets other bits in every run. Filling costs time:"
    " deterministic(fill_uninitialized_memory=False) saves it, for programs that never do that.",
    "any time",
    _read,
    _write,
    _wanted,
    "torch",
    _available,
    default=True,
)
