"""How cuDNN's algorithms are chosen: recorded."""

from __future__ import annotations

from samerun.control.switches.switch import Switch, Variable, set_variables

_VARIABLES = (
    Variable("TORCH_CUDNN_USE_HEURISTIC_MODE_B"),
    Variable("TORCH_CUDNN_V8_API_DISABLED"),
)

SWITCH = Switch(
    "cudnn_heuristics",
    "By which rules cuDNN's algorithms are chosen.",
    "Either choice is the same in every run, as long as the variables are.",
    "before torch",
    set_variables(_VARIABLES),
    variables=_VARIABLES,
)
