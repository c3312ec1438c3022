"""SentencePiece's generator (subword sampling: `encode(..., enable_sampling=True)`)."""

from __future__ import annotations

from samerun.control.imported import find_imported, imported
from samerun.control.seeds.source import seed_only


def _available() -> bool:
    return find_imported("sentencepiece", "set_random_generator_seed") is not None


def _seed(seed: int) -> None:
    imported("sentencepiece").set_random_generator_seed(seed & 0x7FFFFFFF)  # it ignores 2**32-1


NOTE = "SentencePiece seeds its generator, but does not give its state"
SOURCE = seed_only("sentencepiece", "sentencepiece", available=_available, seed=_seed, note=NOTE)
