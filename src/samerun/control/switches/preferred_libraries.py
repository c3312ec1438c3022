"""Switches that name one library where a heuristic of torch would choose between several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from samerun.control.imported import find_imported, get_imported
from samerun.control.switches.switch import Policy, Switch, Variable
from samerun.control.switches.torch_flags import is_built_for_cuda, torch_is_imported


def make_preferred_library_switch(
    name: str,
    what: str,
    library: str,
    available: Callable[[], bool],
    variable: str,
    remark: str = "",
) -> Switch:
    """A switch that sets `torch.backends.cuda.<name>_library` to `library` where a heuristic would choose."""

    def call(*arguments: str) -> Any:
        return getattr(get_imported("torch").backends.cuda, f"{name}_library")(*arguments)

    def read() -> str:
        return str(call()).rpartition(".")[2].lower()

    def write(value: str) -> None:
        call(value)

    def wanted(policy: Policy) -> str:
        return library

    return Switch(
        name,
        f"{what} to one library, not to the one that a heuristic picks.",
        f"A library that you chose yourself, by torch's function or by the variable, stays.{remark}",
        "any time",
        read,
        write,
        wanted,
        "torch",
        available,
        agrees=_is_any_library_chosen,
        variables=(Variable(variable, already_read=torch_is_imported),),
    )


def _is_any_library_chosen(read: str, wanted: str) -> bool:
    """A library that was chosen is as good as ours; only a choice by heuristics is not."""
    return read != "default"


# The library for linear algebra on CUDA.

LINALG = make_preferred_library_switch(
    "preferred_linalg",
    "Linear algebra on CUDA (svd, eigh, qr, ...) goes",
    "cusolver",
    is_built_for_cuda,
    "TORCH_LINALG_PREFER_CUSOLVER",
)


# The library for matrix products on CUDA.

BLAS = make_preferred_library_switch(
    "preferred_blas", "Matrix products on CUDA go", "cublas", is_built_for_cuda, "TORCH_BLAS_PREFER_CUBLASLT"
)


# The library for flash attention on AMD devices.


def _is_built_for_rocm() -> bool:
    torch = find_imported("torch", "backends", "version")
    return torch is not None and bool(getattr(torch.version, "hip", None))


ROCM_FLASH_ATTENTION = make_preferred_library_switch(
    "preferred_rocm_fa",
    "Flash attention on AMD devices goes",
    "aotriton",
    _is_built_for_rocm,
    "TORCH_ROCM_FA_PREFER_CK",
    " Not tried on a device.",
)
