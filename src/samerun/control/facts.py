"""What was in force in this process, for a receipt: settings, versions, hardware, streams. Plain values."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from hashlib import blake2b
from importlib import metadata
from typing import Any

from samerun.base.machine import machine
from samerun.base.start import environment_at_start
from samerun.base.user_code import is_library_file, relative_path
from samerun.control import process_seed
from samerun.control.named_stream import streams
from samerun.control.survey import survey
from samerun.control.switches.table import SWITCHES

FAMILIES = ("OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "ATEN_", "ONEDNN_", "DNNL_", "TORCH_", "PYTORCH_",
            "TORCHINDUCTOR_", "CUDA_", "CUBLAS", "CUDNN_", "NVIDIA_", "NCCL_", "GLOO_", "TF32_", "HSA_", "MIOPEN_",
            "MALLOC_", "GLIBC_", "OPENCV_")  # fmt: skip
"""Variables that begin so are recorded where they are set: they belong to what computes."""
SINGLE = ("PYTHONHASHSEED", "PYTHONOPTIMIZE", "PYTHONUTF8", "LD_PRELOAD", "LC_ALL", "LANG", "TZ")
OWN_EVERY_TIME = ("TORCHELASTIC_", "TORCH_NCCL_TRACE", "OMP_DISPLAY")


def facts(read_at: str) -> dict[str, Any]:
    """Everything, now. `read_at`: the moment, in words. Nothing is set, imported or started."""
    return {
        "read_at": read_at,
        "knobs": {one.name: one.in_force for one in survey()},
        "machine": machine(),
        "packages": packages(),
        "variables": variables(environment_at_start()),
        "seed": process_seed.seed(),
        "streams": sorted({name for name, _, _ in streams}),
        "sources": sources(),
    }


def packages() -> dict[str, str]:
    """Every installed distribution and its version."""
    found = {}
    for one in metadata.distributions():
        name = one.metadata["Name"] if one.metadata is not None else None
        if name:
            found[str(name).lower().replace("_", "-")] = str(one.version)
    return found


def sources() -> dict[str, str]:
    """Digests (BLAKE2b-256) of the program's own Python files that are loaded, by path."""
    found = {}
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if not isinstance(name, str) or not name.endswith(".py"):
            continue
        try:
            if is_library_file(os.path.abspath(name)):
                continue
            with open(name, "rb") as file:
                digest = blake2b(file.read(), digest_size=32).hexdigest()
            inside = relative_path(name)
        except OSError:
            continue
        found[name if inside.startswith(os.pardir) else inside] = digest
    return found


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables on which bits can depend, as they are set."""
    known = {each.name for switch in SWITCHES for each in switch.variables} | set(SINGLE)
    return {
        name: value
        for name, value in environment.items()
        if (name in known or name.startswith(FAMILIES)) and not name.startswith(OWN_EVERY_TIME)
    }


def outside() -> dict[str, Any]:
    """What can be said without having been in the program: it loaded no torch, or ended too early."""
    found = facts("outside the program")
    return {**found, "knobs": {}, "variables": variables(os.environ), "seed": None, "streams": [], "sources": {}}
