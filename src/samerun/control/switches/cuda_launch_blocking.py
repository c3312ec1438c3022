"""CUDA_LAUNCH_BLOCKING: recorded."""

from __future__ import annotations

from samerun.control.switches.switch import Switch, Variable, set_variables

_VARIABLES = (Variable("CUDA_LAUNCH_BLOCKING"),)

SWITCH = Switch(
    "cuda_launch_blocking",
    "Whether kernels run one at a time.",
    "Only CUDA 10.1 needed it for reproducible RNNs and LSTMs; later versions need cublas_workspace instead.",
    "before CUDA",
    set_variables(_VARIABLES),
    variables=_VARIABLES,
)
