"""OpenCV's generator (`cv2.randu`, `cv2.randn`, `cv2.kmeans`), of the calling thread."""

from __future__ import annotations

from samerun.control.imported import find_imported, imported
from samerun.control.seeds.source import seed_only


def _available() -> bool:
    return find_imported("cv2", "setRNGSeed") is not None


def _seed(seed: int) -> None:
    imported("cv2").setRNGSeed(seed & 0x7FFFFFFF)  # a C int


NOTE = "OpenCV seeds its generator, but does not give its state"
SOURCE = seed_only("opencv", "cv2", available=_available, seed=_seed, note=NOTE)
