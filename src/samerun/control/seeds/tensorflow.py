"""TensorFlow's global seed, from which its random operators and `tf.data` shuffles take theirs."""

from __future__ import annotations

from samerun.control.imported import find_imported, imported
from samerun.control.seeds.source import seed_only


def _available() -> bool:
    return hasattr(getattr(find_imported("tensorflow", "random"), "random", None), "set_seed")


def _seed(seed: int) -> None:
    imported("tensorflow").random.set_seed(seed & 0x7FFFFFFF)  # TensorFlow takes it modulo 2**31-1


NOTE = "TensorFlow takes a global seed, but gives no state: its streams live in its operators"
SOURCE = seed_only("tensorflow", "tensorflow", available=_available, seed=_seed, note=NOTE)
