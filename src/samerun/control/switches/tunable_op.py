"""Matrix products are not chosen by timing (TunableOp)."""

from __future__ import annotations

from samerun.control.switches.started import torch_c, torch_has
from samerun.control.switches.switch import Policy, Switch, Variable


def _available() -> bool:
    return torch_has("_cuda_tunableop_is_enabled", "_cuda_tunableop_enable")


def _read() -> bool:
    return bool(torch_c()._cuda_tunableop_is_enabled())


def _write(value: bool) -> None:
    torch_c()._cuda_tunableop_enable(value)


def _wanted(policy: Policy) -> bool:
    return False


def _valid(value: str, policy: Policy) -> bool:
    return value == "0"


SWITCH = Switch(
    "tunable_op",
    "Matrix products on CUDA are not chosen by timing them.",
    "A timing comes out differently in the next process, and another kernel gives other bits.",
    "any time",
    _read,
    _write,
    _wanted,
    "torch",
    _available,
    default=False,
    variables=(Variable("PYTORCH_TUNABLEOP_ENABLED", valid=_valid, values="0"),),
)
