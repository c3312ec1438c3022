"""`torch.empty` and its like give a known value while deterministic algorithms are on."""

from __future__ import annotations

from samerun.control.switches.flag import flag_switch
from samerun.control.switches.switch import Policy


def _wanted(policy: Policy) -> bool:
    return policy.fill_uninitialized_memory


SWITCH = flag_switch(
    "fill_uninitialized_memory",
    "Fresh memory holds NaN (floats) or the largest value (integers) instead of what was there before.",
    "A program that reads memory before it writes it gets other bits in every run. Filling costs time:"
    " deterministic(fill_uninitialized_memory=False) saves it, for programs that never do that.",
    ("_get_deterministic_fill_uninitialized_memory", "_set_deterministic_fill_uninitialized_memory"),
    _wanted,
    default=True,
)
