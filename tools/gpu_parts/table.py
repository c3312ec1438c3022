"""The parts in order of worth: what a machine with a CUDA device is asked first."""

from __future__ import annotations

from dataclasses import dataclass

NUMERICS = ("src/samerun/numerics", "native", "tools/gpu_parts/checks.py", "tests/support/cuda_emulation.py")
WATCHING = ("src/samerun/record", "src/samerun/check", "src/samerun/control", "native/watch")


@dataclass(frozen=True)
class PartEntry:
    """A part is the module gpu_parts.`name`. Its results stand until a file below `inputs` changes.

    `seconds`: the most that it takes of one run. `packages`: modules that it cannot do without, beside torch.
    `measures_time`: nothing else may run meanwhile.
    """

    name: str
    what: str
    seconds: float
    packages: tuple[str, ...]
    inputs: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()
    """Environment that must stand when its process starts."""
    measures_time: bool = False


PARTS = (
    PartEntry(
        "kernels", "NVRTC compiles every kernel, and the driver loads and starts it", 300, ("numpy",), NUMERICS
    ),
    PartEntry(
        "vectors", "conformance vectors and operators of portable(): the bits of the CPU", 480, ("numpy",),
        (*NUMERICS, "tests/support"),
    ),
    PartEntry(
        "training", "a CNN and a GPT for 20 steps: one digest on the CPU and the device", 300, ("numpy",),
        (*NUMERICS, "benchmarks/workloads.py"),
    ),
    PartEntry(
        "operators", "deterministic operators: repeats have the same bits, values are right", 420, ("numpy",),
        ("src/samerun/control", "tests/support", "benchmarks/bench_cuda.py"),
    ),
    PartEntry(
        "programs", "the programs of tests/zoo_cuda, alone and under samerun run", 480,
        ("numpy", "click", "rich", "xxhash"), ("src/samerun/control", "tests/zoo_cuda"),
    ),
    PartEntry(
        "hazards", "samerun check, --double, receipts and doctor on programs with a planted hazard, and on clean twins",
        600, ("numpy", "click", "rich", "xxhash"), (*WATCHING, "tests/programs/cuda_hazards"),
    ),
    PartEntry(
        "watching", "what watching costs, and how often it waits for the device", 300, ("numpy", "xxhash"),
        (*WATCHING, "benchmarks/bench_watch.py", "benchmarks/workloads.py"), measures_time=True,
    ),
    PartEntry(
        "costs", "what deterministic and portable operators cost", 480, ("numpy",),
        (*NUMERICS, "src/samerun/control", "benchmarks"), measures_time=True,
    ),
    PartEntry(
        "samples", "torch's samples of its operators, under deterministic() and portable()", 900,
        ("numpy",), (*NUMERICS, "src/samerun/control"),
        (("PYTHONHASHSEED", "0"), ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")),
    ),
)  # fmt: skip
