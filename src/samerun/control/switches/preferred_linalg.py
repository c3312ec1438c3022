"""The library for linear algebra on CUDA."""

from __future__ import annotations

from samerun.control.switches.preferred import chosen, preferred
from samerun.control.switches.started import cuda_built, torch_started
from samerun.control.switches.switch import Policy, Switch, Variable

_read, _write = preferred("preferred_linalg_library")


def _wanted(policy: Policy) -> str:
    return "cusolver"


SWITCH = Switch(
    "preferred_linalg",
    "Linear algebra on CUDA (svd, eigh, qr, ...) goes to one library, not to the one that a heuristic picks.",
    "A library that you chose yourself, by torch's function or by the variable, stays.",
    "any time",
    _read,
    _write,
    _wanted,
    "torch",
    cuda_built,
    agrees=chosen,
    variables=(Variable("TORCH_LINALG_PREFER_CUSOLVER", started=torch_started),),
)
