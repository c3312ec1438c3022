"""Which claim a comparison of two runs could test: the tier of the promise, by what differed around them."""

from __future__ import annotations

from fnmatch import fnmatchcase

from samerun.record.receipt.surroundings import Differing

TIERS = {
    "T0": "rerun: same machine, same environment, same command",
    "T1": "environment: also another environment of the process",
    "T2": "shape of the run: also another number of threads or workers",
    "T3": "anywhere: also another processor, device, torch release or system",
}
_ANYWHERE = ("packages.torch", "machine.processor", "machine.machine", "machine.system", "machine.torch.*",
             "knobs.cpu_capability", "knobs.mkl_cbwr", "knobs.onednn_isa", "variables.ATEN_*", "variables.MKL_CBWR",
             "variables.ONEDNN_*", "packages.numpy", "machine.python", "machine.implementation")  # fmt: skip
_SHAPE = ("knobs.threads", "held.threads", "machine.torch.threads", "machine.torch.interop_threads",
          "variables.OMP_*", "machine.cores*")  # fmt: skip
_ENVIRONMENT = ("variables.*", "knobs.hash_seed", "processes/*/environment", "packages.*")


def tier_of(surroundings: list[Differing]) -> str:
    """The highest tier of which two runs with these differences are a test."""
    paths = [one.path for one in surroundings]
    for tier, patterns in (("T3", _ANYWHERE), ("T2", _SHAPE), ("T1", _ENVIRONMENT)):
        inner = ("machine.torch.threads", "machine.torch.interop_threads") if tier == "T3" else ()
        if any(fnmatchcase(path, pattern) for path in paths for pattern in patterns if path not in inner):
            return tier
    return "T0"
