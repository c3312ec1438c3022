"""Which instructions MKL may use: recorded."""

from __future__ import annotations

from samerun.control.switches.switch import Switch, Variable, set_variables

_VARIABLES = (Variable("MKL_CBWR"),)

SWITCH = Switch(
    "mkl_cbwr",
    "Which instructions MKL computes matrix products with.",
    "By default MKL follows the machine, and on one machine the bits stay the same. To get the same bits on"
    " other CPUs, set all three: MKL_CBWR=COMPATIBLE, ATEN_CPU_CAPABILITY=avx2, ONEDNN_MAX_CPU_ISA=AVX2. They"
    " cost speed and change results, so they are not set by default.",
    "before torch",
    set_variables(_VARIABLES),
    variables=_VARIABLES,
)
