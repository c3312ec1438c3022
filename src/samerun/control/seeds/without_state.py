"""Libraries that can be seeded but do not give the state of their generator."""

from __future__ import annotations

from samerun.control.imported import find_imported, get_imported
from samerun.control.seeds.source import make_seed_only_source

# CuPy's global generator (`cupy.random.rand` and the like), of the current device.


def _can_seed_cupy() -> bool:
    cupy = find_imported("cupy", "random", "is_available")
    return cupy is not None and bool(cupy.is_available())


def _seed_cupy(seed: int) -> None:
    get_imported("cupy").random.seed(seed)


_CUPY_NOTE = "CuPy seeds its generator, but cuRAND does not give its state"
CUPY = make_seed_only_source("cupy", "cupy", available=_can_seed_cupy, seed=_seed_cupy, note=_CUPY_NOTE)


# OpenCV's generator (`cv2.randu`, `cv2.randn`, `cv2.kmeans`), of the calling thread.


def _can_seed_opencv() -> bool:
    return find_imported("cv2", "setRNGSeed") is not None


def _seed_opencv(seed: int) -> None:
    get_imported("cv2").setRNGSeed(seed & 0x7FFFFFFF)  # a C int


_OPENCV_NOTE = "OpenCV seeds its generator, but does not give its state"
OPENCV = make_seed_only_source("opencv", "cv2", available=_can_seed_opencv, seed=_seed_opencv, note=_OPENCV_NOTE)


# Polars' global generator (`sample`, `shuffle` without a seed of their own).


def _can_seed_polars() -> bool:
    return find_imported("polars", "set_random_seed") is not None


def _seed_polars(seed: int) -> None:
    get_imported("polars").set_random_seed(seed)


_POLARS_NOTE = "Polars seeds its generator, but does not give its state"
POLARS = make_seed_only_source("polars", "polars", available=_can_seed_polars, seed=_seed_polars, note=_POLARS_NOTE)


# SentencePiece's generator (subword sampling: `encode(..., enable_sampling=True)`).


def _can_seed_sentencepiece() -> bool:
    return find_imported("sentencepiece", "set_random_generator_seed") is not None


def _seed_sentencepiece(seed: int) -> None:
    get_imported("sentencepiece").set_random_generator_seed(seed & 0x7FFFFFFF)  # it ignores 2**32-1


_SENTENCEPIECE_NOTE = "SentencePiece seeds its generator, but does not give its state"
SENTENCEPIECE = make_seed_only_source(
    "sentencepiece", "sentencepiece", available=_can_seed_sentencepiece, seed=_seed_sentencepiece,
    note=_SENTENCEPIECE_NOTE,
)  # fmt: skip


# TensorFlow's global seed, from which its random operators and `tf.data` shuffles take theirs.


def _can_seed_tensorflow() -> bool:
    return hasattr(getattr(find_imported("tensorflow", "random"), "random", None), "set_seed")


def _seed_tensorflow(seed: int) -> None:
    get_imported("tensorflow").random.set_seed(seed & 0x7FFFFFFF)  # TensorFlow takes it modulo 2**31-1


_TENSORFLOW_NOTE = "TensorFlow takes a global seed, but gives no state: its streams live in its operators"
TENSORFLOW = make_seed_only_source(
    "tensorflow", "tensorflow", available=_can_seed_tensorflow, seed=_seed_tensorflow, note=_TENSORFLOW_NOTE
)
