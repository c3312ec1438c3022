"""The causal convolution of Mamba models in its deterministic mode."""

from __future__ import annotations

from samerun.control.switches.libraries import library_switch

SWITCH = library_switch(
    "causal_conv1d",
    "causal_conv1d's backward kernels add in a fixed order.",
    "From its version 1.6.0 on. Not tried on a device.",
    "causal_conv1d",
    "CAUSAL_CONV1D_DETERMINISTIC",
    "1",
)
