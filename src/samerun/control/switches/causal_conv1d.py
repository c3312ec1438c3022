"""The causal convolution of Mamba models in its deterministic mode."""

from __future__ import annotations

from samerun.control.switches.libraries import installed, is_loaded
from samerun.control.switches.switch import Policy, Switch, Variable, set_variables


def _wanted(policy: Policy) -> str | None:
    return "1" if _installed() else None


def _valid(value: str, policy: Policy) -> bool:
    return value == "1"


_installed = installed("causal_conv1d")
_VARIABLE = Variable("CAUSAL_CONV1D_DETERMINISTIC", _wanted, _valid, "1", is_loaded("causal_conv1d"))

SWITCH = Switch(
    "causal_conv1d",
    "causal_conv1d's backward kernels add in a fixed order.",
    "From its version 1.6.0 on. Not tried on a device.",
    "before library",
    set_variables((_VARIABLE,)),
    available=_installed,
    variables=(_VARIABLE,),
)
