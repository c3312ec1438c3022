"""Matrix products are not chosen by timing (TunableOp)."""

from __future__ import annotations

from samerun.control.switches.flag import flag_switch, off
from samerun.control.switches.switch import Policy, Variable


def _valid(value: str, policy: Policy) -> bool:
    return value == "0"


SWITCH = flag_switch(
    "tunable_op",
    "Matrix products on CUDA are not chosen by timing them.",
    "A timing comes out differently in the next process, and another kernel gives other bits.",
    ("_cuda_tunableop_is_enabled", "_cuda_tunableop_enable"),
    off,
    variables=(Variable("PYTORCH_TUNABLEOP_ENABLED", valid=_valid, values="0"),),
)
