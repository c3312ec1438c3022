"""Which instructions oneDNN may use: recorded."""

from __future__ import annotations

from samerun.control.switches.switch import Switch, Variable, set_variables

_VARIABLES = (Variable("ONEDNN_MAX_CPU_ISA"),)

SWITCH = Switch(
    "onednn_isa",
    "Which instructions oneDNN computes convolutions with.",
    "It matters between machines, not between runs on one; see mkl_cbwr.",
    "before torch",
    set_variables(_VARIABLES),
    variables=_VARIABLES,
)
