"""The library for linear algebra on CUDA."""

from __future__ import annotations

from samerun.control.switches.preferred import preferred_switch
from samerun.control.switches.started import cuda_built

SWITCH = preferred_switch(
    "preferred_linalg",
    "Linear algebra on CUDA (svd, eigh, qr, ...) goes",
    "cusolver",
    cuda_built,
    "TORCH_LINALG_PREFER_CUSOLVER",
)
