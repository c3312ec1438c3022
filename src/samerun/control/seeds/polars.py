"""Polars' global generator (`sample`, `shuffle` without a seed of their own)."""

from __future__ import annotations

from samerun.control.imported import find_imported, imported
from samerun.control.seeds.source import seed_only


def _available() -> bool:
    return find_imported("polars", "set_random_seed") is not None


def _seed(seed: int) -> None:
    imported("polars").set_random_seed(seed)


NOTE = "Polars seeds its generator, but does not give its state"
SOURCE = seed_only("polars", "polars", available=_available, seed=_seed, note=NOTE)
