"""Where a torch generator stands: the seed, and how many draws were made since it was seeded.

The position is read off the generator's own state, so that torch.manual_seed, get_rng_state, checkpoints and
copies of generators mean what they always do. torch's CPU generator is a Mersenne Twister; every draw of ours moves
it on by one word, and the number of words drawn since seeding is the position. Draws made outside `portable()` move
it too: streams never repeat.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np
import torch

from samerun.base.errors import SamerunError

STATE_WORDS, TWIST_SHIFT = 624, 397
_MATRIX, _UPPER, _LOWER = np.uint32(0x9908B0DF), np.uint32(0x80000000), np.uint32(0x7FFFFFFF)
MOST_TWISTS = 1 << 20
"""After some 650 million words the position is no longer looked for."""

_last_seen: weakref.WeakKeyDictionary[Any, tuple[bytes, int]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def advance_generator(generator: torch.Generator | None) -> tuple[int, int]:
    """The seed (0 to 2^64 - 1) and the position of the next draw; the generator moves on by one.

    Numbers for a CUDA device come from the CPU's generator too, unless one of the device is given: a program draws
    the same ones wherever they are made. A generator of a device counts in steps of four words.

    Raises SamerunError where the state was not reached from its seed (it was set by other means).
    """
    if generator is not None and generator.device.type == "cuda":
        with _lock:
            position = generator.get_offset() // 4
            generator.set_offset(4 * (position + 1))
            return generator.initial_seed() & 0xFFFFFFFFFFFFFFFF, position
    generator = torch.default_generator if generator is None else generator
    with _lock:
        before = generator.get_state().numpy().tobytes()
        kept = _last_seen.get(generator)
        position = kept[1] if kept is not None and kept[0] == before else _count_words_drawn(before)
        torch.empty(1, dtype=torch.int32).random_(generator=generator)
        _last_seen[generator] = generator.get_state().numpy().tobytes(), position + 1
    return generator.initial_seed() & 0xFFFFFFFFFFFFFFFF, position


def _count_words_drawn(state: bytes) -> int:
    """Words drawn since the seeding: twist a freshly seeded state until it is this one."""
    seed, words, next_word = _parse_state(state)
    fresh = _seed_twister_words(seed)
    for twists in range(MOST_TWISTS):
        if np.array_equal(fresh, words):
            return (twists - 1) * STATE_WORDS + next_word if twists else 0
        fresh = _twist_words(fresh)
    raise SamerunError(
        "portable(): the state of this random generator was not reached from its seed, so draws have no position.",
        "Seed it: torch.manual_seed(...) or generator.manual_seed(...).",
    )


def _parse_state(state: bytes) -> tuple[int, Any, int]:
    """The seed, the 624 words and the place of the next word. Layout of torch's CPU state (also in checkpoints):
    seed u64, left i32, seeded i32, next u64, then the words as u64 each.
    """
    seed = int.from_bytes(state[:8], "little")
    next_word = int.from_bytes(state[16:24], "little")
    words = np.frombuffer(state, np.uint64, STATE_WORDS, 24).astype(np.uint32)
    return seed, words, next_word


def _seed_twister_words(seed: int) -> Any:
    words = np.empty(STATE_WORDS, np.uint32)
    word = seed & 0xFFFFFFFF
    words[0] = word
    for i in range(1, STATE_WORDS):
        word = (1812433253 * (word ^ (word >> 30)) + i) & 0xFFFFFFFF
        words[i] = word
    return words


def _twist_words(words: Any) -> Any:
    new = words.copy()
    one = np.uint32(1)
    for start, stop in (
        (0, STATE_WORDS - TWIST_SHIFT),
        (STATE_WORDS - TWIST_SHIFT, 2 * (STATE_WORDS - TWIST_SHIFT)),
        (2 * (STATE_WORDS - TWIST_SHIFT), STATE_WORDS - 1),
    ):
        y = (new[start:stop] & _UPPER) | (new[start + 1 : stop + 1] & _LOWER)
        ahead = (np.arange(start, stop) + TWIST_SHIFT) % STATE_WORDS
        new[start:stop] = new[ahead] ^ (y >> one) ^ np.where(y & one, _MATRIX, np.uint32(0))
    y = (new[-1] & _UPPER) | (new[0] & _LOWER)
    new[-1] = new[TWIST_SHIFT - 1] ^ (y >> one) ^ (_MATRIX if y & one else np.uint32(0))
    return new
