"""Random numbers from Philox4x32-10: the same on any machine, for any number of threads.

`seed`: the 64-bit key. `draw_number`: of the draw in its stream, which the caller counts. `device`: where the
numbers are made; they are the same everywhere.

Where a torch generator stands (`advance_generator`) is read off its own state: the seed, and how many draws were made
since it was seeded. So torch.manual_seed, get_rng_state, checkpoints and copies of generators mean what they always do.
torch's CPU generator is a Mersenne Twister; every draw of ours moves it on by one word, and the number of words drawn
since seeding is the number of the next draw. Draws made outside `portable()` move it too: streams never repeat.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from samerun.base.errors import SamerunError
from samerun.numerics.kernels import library
from samerun.numerics.reference import random as reference

Shape = Sequence[int]
Device = torch.device | str

_random = library.declare_native_function("samerun_random_floats", "viuupl")
_randint = library.declare_native_function("samerun_randint", "vuulupl")
_words64 = library.declare_native_function("samerun_random_words64", "vuupl")
_block_words = library.declare_native_function("samerun_random_block_words", "vuuppl")


def _require_uint64_seed_and_draw_number(operator: str, seed: int, draw_number: int) -> None:
    for name, value in (("seed", seed), ("draw_number", draw_number)):
        if not 0 <= value < 1 << 64:
            raise SamerunError(f"{operator}({name}={value}): it is a whole number from 0 to {2**64 - 1}.")


def _draw_floats(is_normal: bool, shape: Shape, seed: int, draw_number: int, device: Device) -> torch.Tensor:
    n = math.prod(shape)
    out = torch.empty(tuple(shape), dtype=torch.float32, device=device)
    if not library.uses_native_kernels(out):
        found = reference.normal(seed, draw_number, n) if is_normal else reference.uniform(seed, draw_number, n)
        return torch.from_numpy(found).reshape(tuple(shape))
    _random.for_device_of(out)(is_normal, seed, draw_number, out.data_ptr(), n)
    return out


def uniform(shape: Shape, seed: int, draw_number: int, device: Device = "cpu") -> torch.Tensor:
    """float32 in [0, 1): (word >> 8) * 2^-24, word i of the draw for value i."""
    _require_uint64_seed_and_draw_number("uniform", seed, draw_number)
    return _draw_floats(False, shape, seed, draw_number, device)


def normal(shape: Shape, seed: int, draw_number: int, device: Device = "cpu") -> torch.Tensor:
    """float32 of mean 0 and deviation 1: Box and Muller on pairs of words; see `reference.random.normal`."""
    _require_uint64_seed_and_draw_number("normal", seed, draw_number)
    return _draw_floats(True, shape, seed, draw_number, device)


def bernoulli(
    shape: Shape, probability: float | torch.Tensor, seed: int, draw_number: int, device: Device = "cpu"
) -> torch.Tensor:
    """bool: uniform < probability, which is rounded to float32 and may be a tensor that broadcasts to `shape`."""
    _require_uint64_seed_and_draw_number("bernoulli", seed, draw_number)
    found = uniform(shape, seed, draw_number, device)
    return found < torch.as_tensor(probability, dtype=torch.float32, device=found.device)


def randint(low: int, high: int, shape: Shape, seed: int, draw_number: int, device: Device = "cpu") -> torch.Tensor:
    """int64 from low to high - 1, each equally likely. Raises SamerunError where high <= low or either is too large."""
    _require_uint64_seed_and_draw_number("randint", seed, draw_number)
    if not -(1 << 63) <= low < high <= 1 << 63:
        raise SamerunError(f"randint({low}, {high}): needs -2^63 <= low < high <= 2^63.")
    n = math.prod(shape)
    out = torch.empty(tuple(shape), dtype=torch.int64, device=device)
    if not library.uses_native_kernels(out):
        return torch.from_numpy(reference.randint(low, high, seed, draw_number, n)).reshape(tuple(shape))
    if high - low == 1 << 64:
        _words64.for_device_of(out)(seed, draw_number, out.data_ptr(), n)
        return out ^ torch.iinfo(torch.int64).min
    _randint.for_device_of(out)(seed, draw_number, low, high - low, out.data_ptr(), n)
    return out


def randperm(n: int, seed: int, draw_number: int, device: Device = "cpu") -> torch.Tensor:
    """int64: 0..n-1 in the order of their random 64-bit words (unsigned); of equal words the lower number first."""
    _require_uint64_seed_and_draw_number("randperm", seed, draw_number)
    words = torch.empty(n, dtype=torch.int64, device=device)
    if not library.uses_native_kernels(words):
        return torch.from_numpy(reference.randperm(n, seed, draw_number))
    _words64.for_device_of(words)(seed, draw_number, words.data_ptr(), n)
    return torch.argsort(words ^ torch.iinfo(torch.int64).min, stable=True)


def philox_block_words(block_indices: torch.Tensor, seed: int, draw_number: int) -> torch.Tensor:
    """int64 [n, 2]: the bits of each of the n block_indices (int64, 1-D), two words of which the first is the lower."""
    _require_uint64_seed_and_draw_number("block_words", seed, draw_number)
    out = torch.empty(block_indices.numel(), 2, dtype=torch.int64, device=block_indices.device)
    if not library.uses_native_kernels(out):
        return torch.from_numpy(reference.philox_block_words(seed, draw_number, block_indices.numpy()))
    wanted = block_indices.contiguous()
    _block_words.for_device_of(out)(seed, draw_number, wanted.data_ptr(), out.data_ptr(), wanted.numel())
    return out


STATE_WORDS, TWIST_SHIFT = 624, 397
_MATRIX, _UPPER, _LOWER = np.uint32(0x9908B0DF), np.uint32(0x80000000), np.uint32(0x7FFFFFFF)
MOST_TWISTS = 1 << 20
"""After some 650 million words the number of the draw is no longer looked for."""

_last_seen: dict[int, tuple[bytes, int]] = {}
"""id of a generator -> its state after its last draw, and the number of the next; the generators used last, in order.

An id may be another generator's by now: the state decides, from which alone the number follows. (A generator of torch
2.10 has no weak references.)
"""
MOST_SEEN = 64
_lock = threading.Lock()


class SeedAndDrawNumber(NamedTuple):
    seed: int
    """0 to 2^64 - 1."""
    draw_number: int
    """The number of the draw in the stream of that seed."""


def advance_generator(generator: torch.Generator | None) -> SeedAndDrawNumber:
    """The seed (0 to 2^64 - 1) and the number of the next draw; the generator moves on by one.

    Numbers for a CUDA device come from the CPU's generator too, unless one of the device is given: a program draws
    the same ones wherever they are made. A generator of a device counts in steps of four words.

    Raises SamerunError where the state was not reached from its seed (it was set by other means).
    """
    if generator is not None and generator.device.type == "cuda":
        with _lock:
            draw_number = generator.get_offset() // 4
            generator.set_offset(4 * (draw_number + 1))
            return SeedAndDrawNumber(generator.initial_seed() & 0xFFFFFFFFFFFFFFFF, draw_number)
    generator = torch.default_generator if generator is None else generator
    with _lock:
        before = generator.get_state().numpy().tobytes()
        kept = _last_seen.pop(id(generator), None)
        draw_number = kept[1] if kept is not None and kept[0] == before else _count_mt19937_words_drawn(before)
        torch.empty(1, dtype=torch.int32).random_(generator=generator)
        _last_seen[id(generator)] = generator.get_state().numpy().tobytes(), draw_number + 1
        if len(_last_seen) > MOST_SEEN:
            del _last_seen[next(iter(_last_seen))]
    return SeedAndDrawNumber(generator.initial_seed() & 0xFFFFFFFFFFFFFFFF, draw_number)


def _count_mt19937_words_drawn(state: bytes) -> int:
    """Words drawn since the seeding: twist a freshly seeded state until it is this one."""
    seed, words, next_word = _parse_mt19937_state(state)
    fresh = _mt19937_state_words_from_seed(seed)
    for twists in range(MOST_TWISTS):
        if np.array_equal(fresh, words):
            return (twists - 1) * STATE_WORDS + next_word if twists else 0
        fresh = _twist_mt19937_words(fresh)
    raise SamerunError(
        "portable(): the state of this random generator was not reached from its seed, so draws have no position.",
        "Seed it: torch.manual_seed(...) or generator.manual_seed(...).",
    )


class _Mt19937State(NamedTuple):
    seed: int
    words: Any
    next_word: int
    """The place of the next word to be drawn."""


def _parse_mt19937_state(state: bytes) -> _Mt19937State:
    """The seed, the 624 words and the place of the next word. Layout of torch's CPU state (also in checkpoints):
    seed u64, left i32, seeded i32, next u64, then the words as u64 each.
    """
    seed = int.from_bytes(state[:8], "little")
    next_word = int.from_bytes(state[16:24], "little")
    words = np.frombuffer(state, np.uint64, STATE_WORDS, 24).astype(np.uint32)
    return _Mt19937State(seed, words, next_word)


def _mt19937_state_words_from_seed(seed: int) -> Any:
    words = np.empty(STATE_WORDS, np.uint32)
    word = seed & 0xFFFFFFFF
    words[0] = word
    for i in range(1, STATE_WORDS):
        word = (1812433253 * (word ^ (word >> 30)) + i) & 0xFFFFFFFF
        words[i] = word
    return words


def _twist_mt19937_words(words: Any) -> Any:
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
