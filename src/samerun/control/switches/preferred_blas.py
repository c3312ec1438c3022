"""The library for matrix products on CUDA."""

from __future__ import annotations

from samerun.control.switches.preferred import preferred_switch
from samerun.control.switches.started import cuda_built

SWITCH = preferred_switch(
    "preferred_blas", "Matrix products on CUDA go", "cublas", cuda_built, "TORCH_BLAS_PREFER_CUBLASLT"
)
