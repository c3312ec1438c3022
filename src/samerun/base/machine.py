"""What a run's bits can depend on besides the program: versions, processor, threads, devices. Plain values."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from typing import Any

from samerun.base.launch import find_trusted_program

REPORTED_LIBRARIES = (
    "torch", "numpy", "xxhash", "scipy", "pandas", "scikit-learn", "lightning", "transformers", "accelerate",
    "torchvision", "triton", "opt-einsum",
)  # fmt: skip
"""Packages whose version is told where they are installed."""

OLDEST_INSTRUCTIONS = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"}
"""What a process is started with whose torch, MKL and oneDNN compute as on the oldest x86-64 processor they know."""


def collect_machine_facts() -> dict[str, Any]:
    """Versions and hardware, for people and receipts. Imports nothing: what torch knows is there once it is."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": read_cpu_model_name(),
        "cores": os.cpu_count(),
        "cores_allowed": count_cores_in_affinity_mask(),
        "libraries": collect_reported_library_versions(),
    }
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "__config__"):
        found["torch"] = collect_torch_facts(torch)
    return found


def read_cpu_model_name() -> str:
    """The processor's own name where the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(("model name", "Model")):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return _run_uname_for_processor() or platform.machine()


def _run_uname_for_processor() -> str:
    """What `platform.processor()` says, which would run a `uname` that lies in the working directory."""
    if os.name != "posix":
        return platform.processor()
    program = find_trusted_program("uname")
    if program is None:
        return ""
    done = subprocess.run([program, "-p"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    told = done.stdout.strip() if done.returncode == 0 else ""
    return "" if told == "unknown" else told


def count_cores_in_affinity_mask() -> int | None:
    """How many cores this process may use; None where the system does not say."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else None


def collect_reported_library_versions() -> dict[str, str]:
    """Installed versions. Only the packages' metadata are read."""
    found = {}
    for name in REPORTED_LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def collect_torch_facts(torch_module: Any) -> dict[str, Any]:
    """What a loaded torch says of itself and of the devices it sees. Starts no device."""
    found: dict[str, Any] = {
        "version": str(torch_module.__version__),
        "git": torch_module.version.git_version,
        "cpu_capability": torch_module.backends.cpu.get_cpu_capability(),
        "threads": torch_module.get_num_threads(),
        "interop_threads": torch_module.get_num_interop_threads(),
        "mkl": torch_module.backends.mkl.is_available(),
        "onednn": torch_module.backends.mkldnn.is_available(),
        "openmp": torch_module.backends.openmp.is_available(),
        "cuda": torch_module.version.cuda,
        "hip": getattr(torch_module.version, "hip", None),
        "cudnn": torch_module.backends.cudnn.version() if torch_module.version.cuda else None,
        "devices": [],
    }
    if torch_module.version.cuda and torch_module.cuda.is_available():
        found["driver"] = _read_nvidia_driver_version()
        for index in range(torch_module.cuda.device_count()):
            properties = torch_module.cuda.get_device_properties(index)
            found["devices"].append(
                {
                    "name": properties.name,
                    "capability": f"{properties.major}.{properties.minor}",
                    "multiprocessors": properties.multi_processor_count,
                    "memory_gib": round(properties.total_memory / 2**30, 1),
                }
            )
    return found


def _read_nvidia_driver_version() -> str | None:
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            words = file.readline().split()
    except OSError:
        return None
    return next((word for word in words if word.replace(".", "").isdigit() and "." in word), None)
