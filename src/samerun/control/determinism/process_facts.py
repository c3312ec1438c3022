"""What is in force in this process, for a receipt: settings, versions, hardware, streams. Plain values."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from hashlib import blake2b
from importlib import metadata
from typing import Any

from samerun.base.launch import environment_at_start
from samerun.base.machine import collect_machine_facts
from samerun.base.user_code import is_library_file, relative_to_working_folder
from samerun.control.determinism.survey import survey
from samerun.control.streams import process_seed
from samerun.control.streams.stream import process_streams
from samerun.control.switches.table import SWITCHES

VARIABLE_PREFIXES = ("OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "ATEN_", "ONEDNN_", "DNNL_", "TORCH_", "PYTORCH_",
            "TORCHINDUCTOR_", "CUDA_", "CUBLAS", "CUDNN_", "NVIDIA_", "NCCL_", "GLOO_", "TF32_", "HSA_", "MIOPEN_",
            "MALLOC_", "GLIBC_", "OPENCV_")  # fmt: skip
"""Variables that begin so are recorded where they are set: they belong to what computes."""
FURTHER_VARIABLES = ("PYTHONHASHSEED", "PYTHONOPTIMIZE", "PYTHONUTF8", "LD_PRELOAD", "LC_ALL", "LANG", "TZ")
DIFFERENT_EVERY_RUN = ("TORCHELASTIC_", "TORCH_NCCL_TRACE", "OMP_DISPLAY")


def collect_process_facts(read_at: str) -> dict[str, Any]:
    """Return all facts, as they are now. `read_at`: the moment, in words. Nothing is set, imported or started."""
    return {
        "read_at": read_at,
        "knobs": {switch.name: switch.in_force for switch in survey()},
        "machine": collect_machine_facts(),
        "packages": read_installed_versions(),
        "variables": select_relevant_variables(environment_at_start()),
        "seed": process_seed.current_seed(),
        "streams": sorted({name for name, _, _ in process_streams}),
        "sources": digest_loaded_user_files(),
    }


def read_installed_versions() -> dict[str, str]:
    """Every installed distribution and its version."""
    found = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"] if distribution.metadata is not None else None
        if name:
            found[str(name).lower().replace("_", "-")] = str(distribution.version)
    return found


def digest_loaded_user_files() -> dict[str, str]:
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
            inside = relative_to_working_folder(name)
        except OSError:
            continue
        found[name if inside.startswith(os.pardir) else inside] = digest
    return found


def select_relevant_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables on which bits can depend, as they are set."""
    known = {variable.name for switch in SWITCHES for variable in switch.variables} | set(FURTHER_VARIABLES)
    return {
        name: value
        for name, value in environment.items()
        if (name in known or name.startswith(VARIABLE_PREFIXES)) and not name.startswith(DIFFERENT_EVERY_RUN)
    }


def collect_facts_outside_program() -> dict[str, Any]:
    """The facts known outside the program, which loaded no torch or ended too early to collect its own."""
    found = collect_process_facts("outside the program")
    return {
        **found,
        "knobs": {},
        "variables": select_relevant_variables(os.environ),
        "seed": None,
        "streams": [],
        "sources": {},
    }
