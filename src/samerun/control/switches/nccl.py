"""How NCCL and its like reduce over ranks: recorded."""

from __future__ import annotations

from samerun.control.switches.switch import Switch, Variable, set_variables

_VARIABLES = (
    Variable("NCCL_ALGO"),
    Variable("NCCL_PROTO"),
    Variable("NCCL_MIN_NCHANNELS"),
    Variable("NCCL_MAX_NCHANNELS"),
    Variable("NCCL_NVLS_ENABLE"),
    Variable("NCCL_COLLNET_ENABLE"),
    Variable("NCCL_LAUNCH_MODE"),
    Variable("NCCL_TOPO_FILE"),
    Variable("HCCL_DETERMINISTIC"),
)

SWITCH = Switch(
    "nccl",
    "How ranks add up their tensors: algorithm, protocol, number of channels.",
    "Public advice contradicts itself (Ring or Tree, NVLS on or off), and a ring may lie otherwise in the next"
    " allocation of nodes. So nothing is set: compare two runs of your own cluster.",
    "before CUDA",
    set_variables(_VARIABLES),
    variables=_VARIABLES,
)
