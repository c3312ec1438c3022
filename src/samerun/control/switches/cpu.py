"""What the CPU computes with: threads, instruction sets, and the libraries MKL and oneDNN."""

from __future__ import annotations

from typing import Literal

from samerun.control.imported import find_imported_module, get_imported_module
from samerun.control.switches.switch import (
    Policy,
    Switch,
    Variable,
    make_record_only_switch,
    make_torch_flag_switch,
    torch_is_imported,
    want_true,
)

# The number of threads that share one operator on the CPU.

_THREADS_VALUES = "the number given as threads="


def _torch_num_threads_available() -> bool:
    return find_imported_module("torch", "get_num_threads", "set_num_threads") is not None


def _read_torch_num_threads() -> int:
    return int(get_imported_module("torch").get_num_threads())


def _set_torch_num_threads(num_threads: int) -> None:
    get_imported_module("torch").set_num_threads(num_threads)


def _wanted_torch_num_threads(policy: Policy) -> int | None:
    return policy.threads


def _wanted_thread_variable_value(policy: Policy) -> str | None:
    return None if policy.threads is None else str(policy.threads)


def _accept_thread_count(value: str, policy: Policy) -> bool:
    return policy.threads is None or value.split(",")[0].strip() == str(policy.threads)


def _wanted_mkl_dynamic(policy: Policy) -> Literal["FALSE"] | None:
    return None if policy.threads is None else "FALSE"


def _accept_mkl_dynamic(value: str, policy: Policy) -> bool:
    return policy.threads is None or value.upper() in ("FALSE", "0")


THREADS = Switch(
    "threads",
    "Operators on the CPU are shared by a fixed number of threads.",
    "Long sums, some gradients, svd, eigh, qr and fft are split by the number of threads, and have other bits"
    " with another number. Set only when asked for: deterministic(threads=4). The variables are for libraries"
    " and processes that start later, and a value of your own stays; DataLoader workers have one thread in any case.",
    "any time",
    _read_torch_num_threads,
    _set_torch_num_threads,
    _wanted_torch_num_threads,
    "torch",
    _torch_num_threads_available,
    variables=(
        Variable(
            "OMP_NUM_THREADS", _wanted_thread_variable_value, _accept_thread_count, _THREADS_VALUES, required=False
        ),
        Variable(
            "MKL_NUM_THREADS", _wanted_thread_variable_value, _accept_thread_count, _THREADS_VALUES, required=False
        ),
        Variable("MKL_DYNAMIC", _wanted_mkl_dynamic, _accept_mkl_dynamic, "FALSE", required=False),
    ),
)


# oneDNN's deterministic kernels, on CPUs and Intel GPUs.

MKLDNN_DETERMINISTIC = make_torch_flag_switch(
    "mkldnn_deterministic",
    "oneDNN (CPU and Intel GPU kernels) takes only deterministic algorithms.",
    "The flag is off after torch.use_deterministic_algorithms(True) and has to be set by itself.",
    ("_get_mkldnn_deterministic", "_set_mkldnn_deterministic"),
    want_true,
)


# Which instructions MKL may use: recorded.

MKL_CBWR = make_record_only_switch(
    "mkl_cbwr",
    "Which instructions MKL computes matrix products with.",
    "By default MKL follows the machine, and on one machine the bits stay the same. To get the same bits on"
    " other CPUs, set all three: MKL_CBWR=COMPATIBLE, ATEN_CPU_CAPABILITY=avx2, ONEDNN_MAX_CPU_ISA=AVX2. They"
    " cost speed and change results, so they are not set by default.",
    "before torch",
    "MKL_CBWR",
)


# Which instructions torch's own CPU kernels use: recorded.


def _can_read_cpu_capability() -> bool:
    return find_imported_module("torch", "backends", "_C") is not None


def _read_cpu_capability() -> str:
    return str(get_imported_module("torch").backends.cpu.get_cpu_capability())


CPU_CAPABILITY = Switch(
    "cpu_capability",
    "Which instructions torch's own CPU kernels are made of.",
    "It matters between machines, not between runs on one; see mkl_cbwr.",
    "before torch",
    _read_cpu_capability,
    module="torch",
    available=_can_read_cpu_capability,
    variables=(Variable("ATEN_CPU_CAPABILITY", already_read=torch_is_imported),),
)


# Which instructions oneDNN may use: recorded.

ONEDNN_ISA = make_record_only_switch(
    "onednn_isa",
    "Which instructions oneDNN computes convolutions with.",
    "It matters between machines, not between runs on one; see mkl_cbwr.",
    "before torch",
    "ONEDNN_MAX_CPU_ISA",
)


# Which library multiplies matrices on the CPU: recorded.

CPU_MATMUL = make_record_only_switch(
    "cpu_matmul",
    "Which matrix products on the CPU go to which library.",
    "Any value gives the same in every run, as long as it stays.",
    "before torch",
    "TORCH_LINEAR_FLATTEN_3D",
    "TORCH_MKLDNN_MATMUL_MIN_DIM",
    "TORCH_MKLDNN_MATMUL_MIN_SIZE",
)
