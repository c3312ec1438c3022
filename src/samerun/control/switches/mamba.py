"""Mamba's kernels in their deterministic mode."""

from __future__ import annotations

from samerun.control.switches.libraries import library_switch

SWITCH = library_switch(
    "mamba",
    "Mamba's backward kernels add in a fixed order.",
    "By default they need not. Not tried on a device.",
    "mamba_ssm",
    "MAMBA_DETERMINISTIC",
    "1",
)
