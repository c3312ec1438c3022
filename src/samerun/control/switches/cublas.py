"""cuBLAS and what chooses between its kernels: scratch memory, half precision sums, TunableOp."""

from __future__ import annotations

import os

from samerun.control.switches.switch import (
    Policy,
    Switch,
    Variable,
    cuda_is_initialized,
    get_torch_c_module,
    make_record_only_switch,
    make_torch_flag_switch,
    torch_c_has_functions,
    want_false,
    want_false_unless_precision_kept,
)

# The scratch memory of cuBLAS, whose size decides between algorithms.

WORKSPACE_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACE_VALID = (":4096:8", ":16:8", ":4096:2")


def _wanted_workspace_config(policy: Policy) -> str:
    return WORKSPACE_VALID[0]


def _accept_workspace_config(value: str, policy: Policy) -> bool:
    return value in WORKSPACE_VALID


def _read_workspace_variable() -> str | None:
    # Read as the first cuBLAS handle is made. A value that the program set is taken to have been there.
    return os.environ.get(WORKSPACE_VARIABLE)


WORKSPACE = Switch(
    "cublas_workspace",
    "cuBLAS has scratch memory of a fixed size.",
    "The size is one of the things by which cuBLAS chooses an algorithm, and what NVIDIA asks for to make results"
    " reproducible; cuDNN's RNNs and LSTMs ask for it too (:4096:2 or :16:8 are theirs, :4096:8 does as well)."
    " torch 2.13 no longer checks it. Not needed without CUDA.",
    "before CUDA",
    _read_workspace_variable,
    variables=(
        Variable(
            WORKSPACE_VARIABLE,
            _wanted_workspace_config,
            _accept_workspace_config,
            ":4096:8, :16:8 or :4096:2",
            cuda_is_initialized,
            _read_workspace_variable,
        ),
    ),
)


# The scratch memory of cuBLASLt: recorded.

LT_WORKSPACE = make_record_only_switch(
    "cublaslt_workspace",
    "How much scratch memory cuBLASLt has.",
    "The size is one of the things by which it chooses an algorithm. Any size gives the same in every run, as"
    " long as it stays.",
    "before CUDA",
    "CUBLASLT_WORKSPACE_SIZE",
    "TORCH_CUBLASLT_UNIFIED_WORKSPACE",
)


# Matrix products in float16 are not summed in float16.

FP16_ACCUMULATION = make_torch_flag_switch(
    "fp16_accumulation",
    "Matrix products in float16 are summed in float32.",
    'Summing in float16 loses bits in an order that depends on the algorithm. Left alone with precision="keep".',
    ("_get_cublas_allow_fp16_accumulation", "_set_cublas_allow_fp16_accumulation"),
    want_false_unless_precision_kept,
)


# Matrix products of half precision keep their sums in float32.

_HALF_TYPES = ("bf16", "fp16")
_ON_CPU = "cpu_fp16"


def _reduced_precision_flags_available() -> bool:
    return torch_c_has_functions(*(f"_{verb}_cublas_allow_{kind}_reduced_precision_reduction"
                       for verb in ("get", "set") for kind in _HALF_TYPES))  # fmt: skip


def _read_reduced_precision_flags() -> dict[str, list[bool]]:
    """For each type: whether sums may be reduced, and whether products may be split along K."""
    c_module = get_torch_c_module()
    found = {
        kind: [bool(flag) for flag in getattr(c_module, f"_get_cublas_allow_{kind}_reduced_precision_reduction")()]
        for kind in _HALF_TYPES
    }
    if torch_c_has_functions("_get_cpu_allow_fp16_reduced_precision_reduction"):
        found[_ON_CPU] = [bool(c_module._get_cpu_allow_fp16_reduced_precision_reduction())]
    return found


def _set_cublas_and_cpu_reduced_precision(flags: dict[str, list[bool]]) -> None:
    for kind, allowed in flags.items():
        if kind != _ON_CPU:
            getattr(get_torch_c_module(), f"_set_cublas_allow_{kind}_reduced_precision_reduction")(*allowed)
        elif _read_reduced_precision_flags().get(kind) != allowed:
            # Only then: some builds refuse to set the value that is in force already.
            get_torch_c_module()._set_cpu_allow_fp16_reduced_precision_reduction(*allowed)


def _wanted_reduced_precision_flags(policy: Policy) -> dict[str, list[bool]] | None:
    if policy.precision == "keep":
        return None
    return {kind: [False] * len(allowed) for kind, allowed in _read_reduced_precision_flags().items()}


REDUCED_PRECISION_REDUCTION = Switch(
    "reduced_precision_reduction",
    "Matrix products in bfloat16 and float16 are summed in float32, and not split along K.",
    "Setting torch's attribute to False leaves split-K on; both halves are needed: (False, False)."
    ' Left alone with precision="keep".',
    "any time",
    _read_reduced_precision_flags,
    _set_cublas_and_cpu_reduced_precision,
    _wanted_reduced_precision_flags,
    "torch",
    _reduced_precision_flags_available,
    default={"bf16": [True, True], "fp16": [True, True], _ON_CPU: [False]},
)


# Matrix products are not chosen by timing (TunableOp).


def _accept_only_zero(value: str, policy: Policy) -> bool:
    return value == "0"


TUNABLE_OP = make_torch_flag_switch(
    "tunable_op",
    "Matrix products on CUDA are not chosen by timing them.",
    "A timing comes out differently in the next process, and another kernel gives other bits.",
    ("_cuda_tunableop_is_enabled", "_cuda_tunableop_enable"),
    want_false,
    variables=(Variable("PYTORCH_TUNABLEOP_ENABLED", is_valid=_accept_only_zero, valid_values="0"),),
)
