"""The scratch memory of cuBLASLt: recorded."""

from __future__ import annotations

from samerun.control.switches.switch import Switch, Variable, set_variables

_VARIABLES = (
    Variable("CUBLASLT_WORKSPACE_SIZE"),
    Variable("TORCH_CUBLASLT_UNIFIED_WORKSPACE"),
)

SWITCH = Switch(
    "cublaslt_workspace",
    "How much scratch memory cuBLASLt has.",
    "The size is one of the things by which it chooses an algorithm. Any size gives the same in every run, as"
    " long as it stays.",
    "before CUDA",
    set_variables(_VARIABLES),
    variables=_VARIABLES,
)
