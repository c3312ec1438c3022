"""Transformer Engine chooses deterministic attention."""

from __future__ import annotations

from samerun.control.switches.libraries import installed, is_loaded
from samerun.control.switches.switch import Policy, Switch, Variable, set_variables


def _wanted(policy: Policy) -> str | None:
    return "0" if _installed() else None


def _valid(value: str, policy: Policy) -> bool:
    return value == "0"


_installed = installed("transformer_engine")
_VARIABLE = Variable("NVTE_ALLOW_NONDETERMINISTIC_ALGO", _wanted, _valid, "0", is_loaded("transformer_engine"))

SWITCH = Switch(
    "transformer_engine",
    "Transformer Engine takes only deterministic attention kernels.",
    "Its default allows nondeterministic ones. Not tried on a device.",
    "before library",
    set_variables((_VARIABLE,)),
    available=_installed,
    variables=(_VARIABLE,),
)
