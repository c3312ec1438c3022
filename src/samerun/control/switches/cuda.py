"""CUDA operators that other packages replace, kernel launches, and NCCL's reductions."""

from __future__ import annotations

import os

from samerun.control.imported import find_imported
from samerun.control.switches.switch import Policy, Switch, Variable, make_recording_switch, make_variables_reader
from samerun.control.switches.torch_flags import torch_is_imported

# Operators that torch replaces by Triton or CuteDSL kernels when those packages are installed.

DISABLE_NATIVE_JIT = "TORCH_DISABLE_NATIVE_JIT"


def _native_overrides_possible() -> bool:
    torch = find_imported("torch", "_C", "backends")
    if torch is None:
        return True  # not known yet
    return find_imported("torch._native.common_utils", "check_native_jit_disabled") is not None and bool(
        torch.backends.cuda.is_built()
    )


def _read_disable_native_jit_in_force() -> str | None:
    """What torch found as it was imported, which it keeps."""
    module = find_imported("torch._native.common_utils", "check_native_jit_disabled")
    if module is not None and module.check_native_jit_disabled():
        return "1"
    return "0" if os.environ.get(DISABLE_NATIVE_JIT) == "0" else None


def _choose_disable_native_jit(policy: Policy) -> str:
    return "1"


def _is_zero_or_one(value: str, policy: Policy) -> bool:
    return value in ("0", "1")


_NATIVE_OVERRIDES_VARIABLE = Variable(
    DISABLE_NATIVE_JIT, _choose_disable_native_jit, _is_zero_or_one, "1 (or 0)", torch_is_imported,
    _read_disable_native_jit_in_force, required=False,
)  # fmt: skip

NATIVE_OVERRIDES = Switch(
    "native_overrides",
    "CUDA operators are torch's own, whatever other packages are installed.",
    "From torch 2.13 on, topk, scatter_add, fused norms and others are replaced if Triton or CuteDSL is there:"
    " then bits depend on the packages of a machine. In deterministic mode the replacements are deterministic,"
    " so being too late is no error.",
    "before torch",
    make_variables_reader((_NATIVE_OVERRIDES_VARIABLE,)),
    available=_native_overrides_possible,
    variables=(_NATIVE_OVERRIDES_VARIABLE,),
)


# CUDA_LAUNCH_BLOCKING: recorded.

LAUNCH_BLOCKING = make_recording_switch(
    "cuda_launch_blocking",
    "Whether kernels run one at a time.",
    "Only CUDA 10.1 needed it for reproducible RNNs and LSTMs; later versions need cublas_workspace instead.",
    "before CUDA",
    "CUDA_LAUNCH_BLOCKING",
)


# How NCCL and its like reduce over ranks: recorded.

NCCL = make_recording_switch(
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
