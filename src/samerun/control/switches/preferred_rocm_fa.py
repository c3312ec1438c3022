"""The library for flash attention on AMD devices."""

from __future__ import annotations

from samerun.control.seeds.loaded import loaded
from samerun.control.switches.preferred import preferred_switch


def _available() -> bool:
    torch = loaded("torch", "backends", "version")
    return torch is not None and bool(getattr(torch.version, "hip", None))


SWITCH = preferred_switch(
    "preferred_rocm_fa",
    "Flash attention on AMD devices goes",
    "aotriton",
    _available,
    "TORCH_ROCM_FA_PREFER_CK",
    " Not tried on a device.",
)
