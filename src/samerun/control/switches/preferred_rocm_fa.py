"""The library for flash attention on AMD devices."""

from __future__ import annotations

from samerun.control.seeds.loaded import loaded
from samerun.control.switches.preferred import chosen, preferred
from samerun.control.switches.started import torch_started
from samerun.control.switches.switch import Policy, Switch, Variable

_read, _write = preferred("preferred_rocm_fa_library")


def _available() -> bool:
    torch = loaded("torch", "backends", "version")
    return torch is not None and bool(getattr(torch.version, "hip", None))


def _wanted(policy: Policy) -> str:
    return "aotriton"


SWITCH = Switch(
    "preferred_rocm_fa",
    "Flash attention on AMD devices goes to one library, not to the one that a heuristic picks.",
    "A library that you chose yourself, by torch's function or by the variable, stays. Not tried on a device.",
    "any time",
    _read,
    _write,
    _wanted,
    "torch",
    _available,
    agrees=chosen,
    variables=(Variable("TORCH_ROCM_FA_PREFER_CK", started=torch_started),),
)
