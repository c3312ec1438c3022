"""CUDA: operators that other packages replace, kernel launches, NCCL, cuDNN, and the choice between libraries."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal

from samerun.control.imported import find_imported_module, get_imported_module
from samerun.control.switches.switch import (
    Policy,
    Switch,
    Variable,
    make_record_only_switch,
    make_torch_flag_switch,
    make_variable_value_or_dict_reader,
    torch_is_built_for_nvidia_cuda,
    torch_is_imported,
    want_true,
)

# Operators that torch replaces by Triton or CuteDSL kernels when those packages are installed.

DISABLE_NATIVE_JIT = "TORCH_DISABLE_NATIVE_JIT"


def _torch_may_override_cuda_operators() -> bool:
    torch = find_imported_module("torch", "_C", "backends")
    if torch is None:
        return True  # not known yet
    return find_imported_module("torch._native.common_utils", "check_native_jit_disabled") is not None and bool(
        torch.backends.cuda.is_built()
    )


def _read_effective_disable_native_jit() -> str | None:
    """What torch found as it was imported, which it keeps."""
    module = find_imported_module("torch._native.common_utils", "check_native_jit_disabled")
    if module is not None and module.check_native_jit_disabled():
        return "1"
    return "0" if os.environ.get(DISABLE_NATIVE_JIT) == "0" else None


def _wanted_disable_native_jit(policy: Policy) -> Literal["1"]:
    return "1"


def _accept_zero_or_one(value: str, policy: Policy) -> bool:
    return value in ("0", "1")


_NATIVE_OVERRIDES_VARIABLE = Variable(
    DISABLE_NATIVE_JIT, _wanted_disable_native_jit, _accept_zero_or_one, "1 (or 0)", torch_is_imported,
    _read_effective_disable_native_jit, required=False,
)  # fmt: skip

NATIVE_OVERRIDES = Switch(
    "native_overrides",
    "CUDA operators are torch's own, whatever other packages are installed.",
    "From torch 2.13 on, topk, scatter_add, fused norms and others are replaced if Triton or CuteDSL is there:"
    " then bits depend on the packages of a machine. In deterministic mode the replacements are deterministic,"
    " so being too late is no error.",
    "before torch",
    make_variable_value_or_dict_reader((_NATIVE_OVERRIDES_VARIABLE,)),
    available=_torch_may_override_cuda_operators,
    variables=(_NATIVE_OVERRIDES_VARIABLE,),
)


# CUDA_LAUNCH_BLOCKING: recorded.

LAUNCH_BLOCKING = make_record_only_switch(
    "cuda_launch_blocking",
    "Whether kernels run one at a time.",
    "Only CUDA 10.1 needed it for reproducible RNNs and LSTMs; later versions need cublas_workspace instead.",
    "before CUDA",
    "CUDA_LAUNCH_BLOCKING",
)


# How NCCL and its like reduce over ranks: recorded.

NCCL = make_record_only_switch(
    "nccl",
    "How ranks add up their tensors: algorithm, protocol, number of channels.",
    "Public advice contradicts itself (Ring or Tree, NVLS on or off), and a ring may lie otherwise in the next"
    " allocation of nodes. So nothing is set: compare two runs of your own cluster.",
    "before CUDA",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_NVLS_ENABLE",
    "NCCL_COLLNET_ENABLE",
    "NCCL_LAUNCH_MODE",
    "NCCL_TOPO_FILE",
    "HCCL_DETERMINISTIC",
)


# cuDNN chooses among deterministic convolution algorithms.

CUDNN_DETERMINISTIC = make_torch_flag_switch(
    "cudnn_deterministic",
    "cuDNN takes only convolution algorithms that give the same bits each time.",
    "Some backward algorithms of cuDNN add with atomics. torch.use_deterministic_algorithms does not set this"
    " flag (torch looks at both); it is set so that whoever reads it sees what is in force.",
    ("_get_cudnn_deterministic", "_set_cudnn_deterministic"),
    want_true,
)


# cuDNN does not time convolution algorithms to choose one.


def _wanted_cudnn_benchmark(policy: Policy) -> Literal[False] | None:
    return False if policy.cudnn_benchmark == "off" else None


CUDNN_BENCHMARK = make_torch_flag_switch(
    "cudnn_benchmark",
    "cuDNN chooses a convolution algorithm by rule, not by timing them.",
    "A timing comes out differently in the next process, and another algorithm gives other bits. Within one"
    ' process the choice stays: who needs no more than that passes cudnn_benchmark="keep" and may leave it on.',
    ("_get_cudnn_benchmark", "_set_cudnn_benchmark"),
    _wanted_cudnn_benchmark,
)


# How cuDNN's algorithms are chosen: recorded.

CUDNN_HEURISTICS = make_record_only_switch(
    "cudnn_heuristics",
    "By which rules cuDNN's algorithms are chosen.",
    "Either choice is the same in every run, as long as the variables are.",
    "before torch",
    "TORCH_CUDNN_USE_HEURISTIC_MODE_B",
    "TORCH_CUDNN_V8_API_DISABLED",
)


# Where a heuristic of torch would choose between several libraries, one is named.


def make_preferred_library_switch(
    name: str,
    sentence_start: str,
    library: str,
    available: Callable[[], bool],
    variable: str,
    remark: str = "",
) -> Switch:
    """A switch that sets `torch.backends.cuda.<name>_library` to `library` where a heuristic would choose."""

    def get_or_set_preferred_library(*library_to_set: str) -> Any:
        return getattr(get_imported_module("torch").backends.cuda, f"{name}_library")(*library_to_set)

    def read() -> str:
        return str(get_or_set_preferred_library()).rpartition(".")[2].lower()

    def write(value: str) -> None:
        get_or_set_preferred_library(value)

    def wanted(policy: Policy) -> str:
        return library

    return Switch(
        name,
        f"{sentence_start} to one library, not to the one that a heuristic picks.",
        f"A library that you chose yourself, by torch's function or by the variable, stays.{remark}",
        "any time",
        read,
        write,
        wanted,
        "torch",
        available,
        agrees=_is_explicit_library_choice,
        variables=(Variable(variable, already_read=torch_is_imported),),
    )


def _is_explicit_library_choice(library_in_force: str, wanted: str) -> bool:
    """A library that was chosen is as good as ours; only a choice by heuristics is not."""
    return library_in_force != "default"


# The library for linear algebra on CUDA.

PREFERRED_LINALG = make_preferred_library_switch(
    "preferred_linalg",
    "Linear algebra on CUDA (svd, eigh, qr, ...) goes",
    "cusolver",
    torch_is_built_for_nvidia_cuda,
    "TORCH_LINALG_PREFER_CUSOLVER",
)


# The library for matrix products on CUDA.

PREFERRED_BLAS = make_preferred_library_switch(
    "preferred_blas",
    "Matrix products on CUDA go",
    "cublas",
    torch_is_built_for_nvidia_cuda,
    "TORCH_BLAS_PREFER_CUBLASLT",
)


# The library for flash attention on AMD devices.


def _is_built_for_rocm() -> bool:
    torch = find_imported_module("torch", "backends", "version")
    return torch is not None and bool(getattr(torch.version, "hip", None))


PREFERRED_ROCM_FLASH_ATTENTION = make_preferred_library_switch(
    "preferred_rocm_fa",
    "Flash attention on AMD devices goes",
    "aotriton",
    _is_built_for_rocm,
    "TORCH_ROCM_FA_PREFER_CK",
    " Not tried on a device.",
)
