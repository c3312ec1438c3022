"""What a seed is, and the seed that each source gets from it.

The derivation is a promise: the same seed and name give the same number in every version of samerun.
"""

from __future__ import annotations

import hashlib
import reprlib
from numbers import Integral

from samerun.base.errors import SeedError

LARGEST_SEED = 2**64 - 1
SMALL_SEEDS_HINT = "NumPy and Python seeds are derived from it by hashing, so small seeds are as good as large ones."


def derive_seed(seed: int, name: str) -> int:
    """The seed of source `name`: the first 8 bytes, little-endian, of BLAKE2b of "samerun/name/seed".

    Hashed, not added: seeds 1 and 2, or two sources, share no streams.
    """
    text = f"samerun/{name}/{seed}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def validate_seed(seed: object, call: str) -> int:
    """`seed` as an int, or SeedError in the words of the user's `call`.

    Taken: Python's and NumPy's whole numbers from 0 to 2**64-1. Not taken: bool, float, str.
    """
    rule = f"{call}(seed={_format_seed(seed)}): a seed is a whole number from 0 to {LARGEST_SEED}"
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise SeedError(f"{rule}, not a {type(seed).__name__}.", "Pass a whole number, such as seed=0.")
    if not 0 <= int(seed) <= LARGEST_SEED:
        raise SeedError(f"{rule}.", SMALL_SEEDS_HINT)
    return int(seed)


def _format_seed(seed: object) -> str:
    if isinstance(seed, int) and seed.bit_length() > 256:  # Python refuses to print the very long ones
        return f"<a number of {seed.bit_length()} bits>"
    return reprlib.repr(seed)
