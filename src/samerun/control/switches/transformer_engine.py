"""Transformer Engine chooses deterministic attention."""

from __future__ import annotations

from samerun.control.switches.libraries import library_switch

SWITCH = library_switch(
    "transformer_engine",
    "Transformer Engine takes only deterministic attention kernels.",
    "Its default allows nondeterministic ones. Not tried on a device.",
    "transformer_engine",
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO",
    "0",
)
