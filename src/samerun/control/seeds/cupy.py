"""CuPy's global generator (`cupy.random.rand` and the like), of the current device."""

from __future__ import annotations

from samerun.control.imported import find_imported, imported
from samerun.control.seeds.source import seed_only


def _available() -> bool:
    cupy = find_imported("cupy", "random", "is_available")
    return cupy is not None and bool(cupy.is_available())


def _seed(seed: int) -> None:
    imported("cupy").random.seed(seed)


NOTE = "CuPy seeds its generator, but cuRAND does not give its state"
SOURCE = seed_only("cupy", "cupy", available=_available, seed=_seed, note=NOTE)
