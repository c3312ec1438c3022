"""Seed the global generators from keys, one sample after the other: by writing states in C, or by library calls.

Seeding a Mersenne Twister is a chain of 624 dependent steps (Python's: 1871); four chains interleaved take hardly
longer than one. So C (native/states.c) writes the states of many samples at once, and each sample then only copies
its state into place. The states equal those that seeding gives, bit for bit; that is verified before the first use
(docs/decisions/0022). Where it does not hold, or the C library was not built, `iterate_seeding_by_library` seeds the
generators one by one.
"""

from __future__ import annotations

import ctypes
import itertools
import random
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from samerun.base.native import load_built_library
from samerun.control.rng.seeding import all_sources
from samerun.data.generator_memory import (
    GAUSS_SIZE,
    STATE_SIZE,
    WORDS,
    get_numpy_bit_generator,
    make_unrecorded_random,
    make_unrecorded_random_state,
    map_numpy_state,
    map_python_state,
    read_numpy_state_bytes,
    read_python_state_bytes,
)
from samerun.data.keys import SampleKeyArrays, SampleKeys

BLOCK_ROWS = 32
"""How many samples' states are written at a time: few enough to stay in the processor's cache."""
_TORCH_SEED, _TORCH_WORDS = 8, 24
"""Layout of a torch generator state: the seed takes the first 8 bytes, and 64-bit words begin at byte 24."""
_WHOLE_BUFFER = itertools.repeat(slice(None))


class GeneratorStateRows:
    """Buffers for the generator states of `BLOCK_ROWS` samples. Must not be used by two loops at the same time."""

    def __init__(self) -> None:
        position = np.frombuffer(np.int32(WORDS).tobytes(), np.uint8)
        python: Any = np.zeros((BLOCK_ROWS, STATE_SIZE), np.uint8)
        numpy: Any = np.zeros((BLOCK_ROWS, STATE_SIZE), np.uint8)
        python[:, :4], numpy[:, -4:] = position, position
        of_torch = torch.Generator().get_state().repeat(BLOCK_ROWS, 1).numpy()
        self.torch_seeds: Any = of_torch[:, :_TORCH_SEED].view(np.uint64)[:, 0]
        self.torch = [torch.from_numpy(row) for row in of_torch]  # views of a tensor crash torch's set_state
        self.python, self.numpy = ([memoryview(row) for row in rows] for rows in (python, numpy))
        self._addresses = python.ctypes.data + 4, numpy.ctypes.data, of_torch.ctypes.data + _TORCH_WORDS
        self._torch_stride = of_torch.strides[0]
        library: Any = _load_library()
        self._init_genrand = library.samerun_mt19937_init_genrand
        self._init_by_array = library.samerun_mt19937_init_by_array

    def seed_samples(self, keys: SampleKeyArrays, count: int) -> Iterator[Any]:
        """Return an iterator; each `next` seeds the generators for the next of `count` samples.

        Built from map and zip objects, so that no Python bytecode runs per sample: this loop is the cost of keying.
        """
        puts: list[Iterator[Any]] = []
        if keys.torch is not None:
            puts.append(map(torch.default_generator.set_state, self._cycle_rows(self.torch, count)))
        if keys.numpy is not None:
            words, normal = map_numpy_state()  # type: ignore[misc]
            puts.append(map(words.__setitem__, _WHOLE_BUFFER, self._cycle_rows(self.numpy, count)))
            puts.append(map(normal.__setitem__, _WHOLE_BUFFER, itertools.repeat(bytes(GAUSS_SIZE))))
        if keys.python is not None:
            python: Any = map_python_state()
            puts.append(map(python.__setitem__, _WHOLE_BUFFER, self._cycle_rows(self.python, count)))
            puts.append(map(random._inst.__setattr__, itertools.repeat("gauss_next"), itertools.repeat(None)))
        blocks = self._write_state_blocks(keys, count)
        writing = itertools.chain.from_iterable(itertools.repeat(None, rows) for rows in blocks)
        return zip(writing, *puts, strict=False)

    def _cycle_rows(self, rows: list[Any], count: int) -> Iterator[Any]:
        return itertools.islice(itertools.cycle(rows), count)

    def _write_state_blocks(self, keys: SampleKeyArrays, count: int) -> Iterator[int]:
        """Write the next block of states whenever the block before it is used up, and yield its number of rows."""
        addresses = [0 if column is None else column.ctypes.data for column in keys]
        for begin in range(0, count, BLOCK_ROWS):
            rows = min(BLOCK_ROWS, count - begin)
            self._write_states(addresses, begin, rows)
            if keys.torch is not None:
                self.torch_seeds[:rows] = keys.torch[begin : begin + rows]
            yield rows

    def _write_states(self, keys: list[int], begin: int, count: int) -> None:
        """Write the words of `count` samples from number `begin` on. keys: addresses of the columns; 0: not keyed."""
        of_python, of_numpy, of_torch = keys
        python, numpy, torch_ = self._addresses
        if of_python:
            self._init_by_array(count, of_python + 8 * begin, python, STATE_SIZE)
        if of_numpy:
            self._init_genrand(count, of_numpy + 4 * begin, numpy, STATE_SIZE, 0)
        if of_torch:
            self._init_genrand(count, of_torch + 4 * begin, torch_, self._torch_stride, 1)


def can_write_states(kinds: frozenset[str]) -> bool:
    """Return whether these generators can be seeded by writing states. A program may have replaced NumPy's."""
    if not _verify_written_states():
        return False
    return ("python" not in kinds or map_python_state() is not None) and (
        "numpy" not in kinds or map_numpy_state() is not None
    )


@lru_cache(maxsize=1)
def _load_library() -> Any:
    library = load_built_library(__file__, "_states", keep_lock=True)
    try:
        if library is None:
            return None
        words, numbers = library.samerun_mt19937_init_genrand, library.samerun_mt19937_init_by_array
    except AttributeError:  # built by another version
        return None
    numbers.argtypes = [ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    words.argtypes = [*numbers.argtypes, ctypes.c_int32]
    numbers.restype = words.restype = None
    return library


@lru_cache(maxsize=1)
def _verify_written_states() -> bool:
    """Compare the written states with those of freshly seeded private generators."""
    if _load_library() is None:
        return False
    try:
        rows = GeneratorStateRows()
        seeds = [0, 1, 2**32 - 1, 624, *(2654435761 * at % 2**32 for at in range(4, BLOCK_ROWS))]
        large = [0, 2**32 - 1, 2**32, 2**64 - 1, *((seed << 32) + at for at, seed in enumerate(seeds[4:]))]
        keys = SampleKeyArrays(np.array(large, np.uint64), np.array(seeds, np.uint32), np.array(seeds, np.uint32))
        rows._write_states([column.ctypes.data for column in keys], 0, BLOCK_ROWS)
        rows.torch_seeds[:] = keys.torch
        generator = torch.Generator()
        for row, seed in enumerate(seeds):
            generator.set_state(rows.torch[row])
            expected = torch.Generator().manual_seed(seed).get_state()
            if not torch.equal(rows.torch[row], expected) or not torch.equal(generator.get_state(), expected):
                return False
            if rows.python[row] != read_python_state_bytes(make_unrecorded_random(large[row])):
                return False
            words: Any = np.random.MT19937(0)
            words._legacy_seeding(seed)
            if rows.numpy[row] != read_numpy_state_bytes(make_unrecorded_random_state(words)):
                return False
    except (RuntimeError, ValueError, TypeError):  # this torch lays out its states in another way
        return False
    return True


def iterate_seeding_by_library(keys: SampleKeys, count: int) -> Iterator[None]:
    """Yield after seeding the generators for each of `count` samples, by the libraries' own functions.

    `torch.manual_seed` formats stack traces and takes 200 us; the default generator's own method takes 1.5.
    """
    python: Callable[[int], Any] = _ignore_key
    numpy: Callable[[int], Any] = _ignore_key
    manual_seed: Callable[[int], Any] = _ignore_key
    kept: Any = _IgnoredGauss()
    if keys.python is not None:
        python, kept = _get_python_seed_function(), random._inst
    if keys.numpy is not None:
        numpy = _get_numpy_seed_function()
    if keys.torch is not None:
        manual_seed = torch.default_generator.manual_seed
    columns = (itertools.repeat(0, count) if column is None else column for column in keys)
    for key_p, key_n, key_t in zip(*columns, strict=False):
        python(key_p)
        kept.gauss_next = None
        numpy(key_n)
        manual_seed(key_t)
        yield


class _IgnoredGauss:
    """Takes the assignment to `gauss_next` where Python's generator is not keyed."""

    gauss_next: float | None = None


def _ignore_key(key: int) -> Any:
    pass


def _get_python_seed_function() -> Callable[[int], None]:
    """Return `random.seed` for integers, without resetting the spare normal number: the caller drops it."""
    generator: Any = random._inst
    starter: Callable[[int], None] = super(random.Random, generator).seed
    return starter


def _get_numpy_seed_function() -> Callable[[int], None]:
    """Return `numpy.random.seed`, or the seed function of samerun's NumPy source for other bit generators."""
    if type(get_numpy_bit_generator()) is np.random.MT19937:
        starter: Callable[[int], None] = np.random.seed
        return starter
    source = next(source for source in all_sources() if source.name == "numpy")
    return source.seed
