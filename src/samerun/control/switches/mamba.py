"""Mamba's kernels in their deterministic mode."""

from __future__ import annotations

from samerun.control.switches.libraries import installed, is_loaded
from samerun.control.switches.switch import Policy, Switch, Variable, set_variables


def _wanted(policy: Policy) -> str | None:
    return "1" if _installed() else None


def _valid(value: str, policy: Policy) -> bool:
    return value == "1"


_installed = installed("mamba_ssm")
_VARIABLE = Variable("MAMBA_DETERMINISTIC", _wanted, _valid, "1", is_loaded("mamba_ssm"))

SWITCH = Switch(
    "mamba",
    "Mamba's backward kernels add in a fixed order.",
    "By default they need not. Not tried on a device.",
    "before library",
    set_variables((_VARIABLE,)),
    available=_installed,
    variables=(_VARIABLE,),
)
