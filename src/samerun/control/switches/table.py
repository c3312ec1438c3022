"""Every switch, in the order in which they are set (they are restored in the opposite order)."""

from __future__ import annotations

from samerun.control.switches import cpu, cublas, cuda, fp32_precision, inductor, torch, variables
from samerun.control.switches.switch import Switch

SWITCHES: tuple[Switch, ...] = (
    variables.HASH_SEED,
    cublas.WORKSPACE,  # before anything can start CUDA
    cuda.NATIVE_OVERRIDES,
    torch.ALGORITHMS,
    torch.OPERATORS,
    torch.FILL_UNINITIALIZED_MEMORY,
    cuda.CUDNN_DETERMINISTIC,
    cuda.CUDNN_BENCHMARK,
    cpu.MKLDNN_DETERMINISTIC,
    fp32_precision.SWITCH,
    cublas.REDUCED_PRECISION_REDUCTION,
    cublas.FP16_ACCUMULATION,
    torch.SDPA,
    torch.MATH_SDP_REDUCTION,
    cuda.PREFERRED_LINALG,
    cuda.PREFERRED_BLAS,
    cuda.PREFERRED_ROCM_FLASH_ATTENTION,
    cublas.TUNABLE_OP,
    inductor.DETERMINISTIC,
    inductor.AUTOTUNING,
    cpu.THREADS,
    variables.TRANSFORMER_ENGINE,
    variables.MAMBA,
    variables.CAUSAL_CONV1D,
    # Only recorded, from here on.
    cuda.NCCL,
    cpu.MKL_CBWR,
    cpu.CPU_CAPABILITY,
    cpu.ONEDNN_ISA,
    cublas.LT_WORKSPACE,
    cuda.LAUNCH_BLOCKING,
    cuda.CUDNN_HEURISTICS,
    cpu.CPU_MATMUL,
    torch.ENABLED_BACKENDS,
    torch.EAGER_CHOICES,
    inductor.RANDOM,
)
