"""Find out from a hash itself whether Python hashes strings with a given seed.

PYTHONHASHSEED does not say: `python -R` overrides it, `python -E` does not read it, and both leave it as it is.
"""

from __future__ import annotations

import functools
import sys

_SIPHASH_ROUNDS = {"siphash13": (1, 3), "siphash24": (2, 4)}
_PROBE = b"samerun: which seed?"  # longer than any sys.hash_info.cutoff: short strings may be hashed otherwise
_MASK = 2**64 - 1


@functools.cache
def python_may_hash_with_seed(seed: int) -> bool:
    """Whether `hash(str)` in this interpreter is that of PYTHONHASHSEED=`seed`; True for an unknown hash algorithm."""
    if not 0 <= seed < 2**32:
        return False
    rounds = _SIPHASH_ROUNDS.get(sys.hash_info.algorithm)
    if rounds is None:
        return True
    key = _expand_seed_to_siphash_key(seed)
    difference = (_siphash(key, _PROBE, *rounds) - hash(_PROBE)) % 2**sys.hash_info.width  # hash() is signed
    return bool(difference == 0)


def _expand_seed_to_siphash_key(seed: int) -> bytes:
    """The first 16 bytes of what CPython's `lcg_urandom` makes of the seed (Python/bootstrap_hash.c); zeros for 0."""
    if seed == 0:
        return bytes(16)
    key = bytearray()
    for _ in range(16):
        seed = (seed * 214013 + 2531011) % 2**32
        key.append(seed >> 16 & 0xFF)
    return bytes(key)


def _siphash(key: bytes, message: bytes, message_rounds: int, final_rounds: int) -> int:
    """SipHash-c-d (Aumasson, Bernstein), as an unsigned 64-bit number."""
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v0, v1, v2, v3 = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573
    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for offset in range(0, len(padded), 8):
        word = int.from_bytes(padded[offset : offset + 8], "little")
        v0, v1, v2, v3 = _sip_rounds(message_rounds, v0, v1, v2, v3 ^ word)
        v0 ^= word
    v0, v1, v2, v3 = _sip_rounds(final_rounds, v0, v1, v2 ^ 0xFF, v3)
    return v0 ^ v1 ^ v2 ^ v3


def _sip_rounds(num_rounds: int, v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    for _ in range(num_rounds):
        v0 = (v0 + v1) & _MASK
        v1 = _rotate_left_64(v1, 13) ^ v0
        v2 = (v2 + v3) & _MASK
        v3 = _rotate_left_64(v3, 16) ^ v2
        v0 = (_rotate_left_64(v0, 32) + v3) & _MASK
        v3 = _rotate_left_64(v3, 21) ^ v0
        v2 = (v2 + v1) & _MASK
        v1 = _rotate_left_64(v1, 17) ^ v2
        v2 = _rotate_left_64(v2, 32)
    return v0, v1, v2, v3


def _rotate_left_64(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK
