"""What a seed is, the record of a global random generator, and the seed that each generator gets.

The derivation is a promise: the same seed and name give the same number in every version of samerun.
"""

from __future__ import annotations

import hashlib
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from samerun.base.errors import SeedError

LARGEST_SEED = 2**64 - 1
SMALL_SEEDS_HINT = "NumPy and Python seeds are derived from it by hashing, so small seeds are as good as large ones."


def derive_seed(seed: int, source_name: str) -> int:
    """The seed of a source: the first 8 bytes, little-endian, of BLAKE2b of "samerun/name/seed".

    Hashed, not added: seeds 1 and 2, or two sources, share no streams.
    """
    text = f"samerun/{source_name}/{seed}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def validate_seed(seed: object, caller_name: str) -> int:
    """`seed` as an int, or SeedError naming the `caller_name`, a function of the user's.

    Taken: Python's and NumPy's whole numbers from 0 to 2**64-1. Not taken: bool, float, str.
    """
    rule = f"{caller_name}(seed={_short_repr_of_seed(seed)}): a seed is a whole number from 0 to {LARGEST_SEED}"
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise SeedError(f"{rule}, not a {type(seed).__name__}.", "Pass a whole number, such as seed=0.")
    if not 0 <= int(seed) <= LARGEST_SEED:
        raise SeedError(f"{rule}.", SMALL_SEEDS_HINT)
    return int(seed)


def _short_repr_of_seed(seed: object) -> str:
    if isinstance(seed, int) and seed.bit_length() > 256:  # Python refuses to print the very long ones
        return f"<a number of {seed.bit_length()} bits>"
    return reprlib.repr(seed)


State = Any
"""Opaque, but plain: numbers, strings, lists, tuples, dicts, CPU tensors; pickles, and torch saves it."""


@dataclass(frozen=True)
class RandomSource:
    """One global random generator of a process.

    name: its name in states and in the derivation of its seed; never changed once released.
    module: the library whose import brings it; "" when it needs none.
    available(): whether it can be seeded now. Looks only at what is imported, and never imports.
    seed(n): seed it with a whole number from 0 to 2**64-1, derived for it alone (see `seed_derivation.py`).
    get_state(): a copy of its state, or None when the library does not give it; then `note` says so.
    set_state(state): restore what `get_state` gave. Raises DeviceCountMismatch for more or fewer devices.
    starts_device(): whether taking its state now would start a device.
    """

    name: str
    module: str
    available: Callable[[], bool]
    seed: Callable[[int], None]
    get_state: Callable[[], State | None]
    set_state: Callable[[State], None]
    note: str = ""
    starts_device: Callable[[], bool] = lambda: False


class DeviceCountMismatch(ValueError):
    """A state was taken with another number of devices than this process has."""

    def __init__(self, saved_count: int, count_here: int) -> None:
        super().__init__(f"it is of {saved_count} devices, and there are {count_here} here")


def make_seed_only_source_refusing_restore(
    name: str, module: str, *, available: Callable[[], bool], seed: Callable[[int], None], note: str
) -> RandomSource:
    """A source that can be seeded, but whose library does not give its state; `note` says why."""

    def refuse(state: State) -> None:
        raise TypeError(note)

    return RandomSource(name, module, available, seed, lambda: None, refuse, note)
