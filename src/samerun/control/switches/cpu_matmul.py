"""Which library multiplies matrices on the CPU: recorded."""

from __future__ import annotations

from samerun.control.switches.switch import Switch, Variable, set_variables

_VARIABLES = (
    Variable("TORCH_LINEAR_FLATTEN_3D"),
    Variable("TORCH_MKLDNN_MATMUL_MIN_DIM"),
    Variable("TORCH_MKLDNN_MATMUL_MIN_SIZE"),
)

SWITCH = Switch(
    "cpu_matmul",
    "Which matrix products on the CPU go to which library.",
    "Any value gives the same in every run, as long as it stays.",
    "before torch",
    set_variables(_VARIABLES),
    variables=_VARIABLES,
)
