"""Every switch, in the order in which they are set (they are restored in the opposite order)."""

from __future__ import annotations

from samerun.control.switches import (
    attention,
    backends,
    cpu,
    cublas,
    cuda,
    cudnn,
    deterministic_mode,
    fp32_precision,
    hash_seed,
    inductor,
    kernel_libraries,
    preferred_libraries,
)
from samerun.control.switches.switch import Switch

SWITCHES: tuple[Switch, ...] = (
    hash_seed.SWITCH,
    cublas.WORKSPACE,  # before anything can start CUDA
    cuda.NATIVE_OVERRIDES,
    deterministic_mode.ALGORITHMS,
    deterministic_mode.OPERATORS,
    deterministic_mode.FILL_UNINITIALIZED_MEMORY,
    cudnn.DETERMINISTIC,
    cudnn.BENCHMARK,
    cpu.MKLDNN_DETERMINISTIC,
    fp32_precision.SWITCH,
    cublas.REDUCED_PRECISION_REDUCTION,
    cublas.FP16_ACCUMULATION,
    attention.SDPA,
    attention.MATH_SDP_REDUCTION,
    preferred_libraries.LINALG,
    preferred_libraries.BLAS,
    preferred_libraries.ROCM_FLASH_ATTENTION,
    cublas.TUNABLE_OP,
    inductor.DETERMINISTIC,
    inductor.AUTOTUNING,
    cpu.THREADS,
    kernel_libraries.TRANSFORMER_ENGINE,
    kernel_libraries.MAMBA,
    kernel_libraries.CAUSAL_CONV1D,
    # Only recorded, from here on.
    cuda.NCCL,
    cpu.MKL_CBWR,
    cpu.CPU_CAPABILITY,
    cpu.ONEDNN_ISA,
    cublas.LT_WORKSPACE,
    cuda.LAUNCH_BLOCKING,
    cudnn.HEURISTICS,
    cpu.CPU_MATMUL,
    backends.ENABLED,
    backends.EAGER_CHOICES,
    inductor.RANDOM,
)
