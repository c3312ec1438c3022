"""Seed the global generators from keys, one sample after the other: by writing states in C, or by library calls.

Seeding a Mersenne Twister is a chain of 624 dependent steps (Python's: 1871); four chains interleaved take hardly
longer than one. So C (native/states.c) writes the states of many samples at once, and each sample then only copies its
state into place. The states equal those that seeding gives, bit for bit; that is verified before the first use
(docs/decisions/0022). Where it does not hold, or the C library was not built, `seed_before_each_sample_by_library`
seeds the generators one by one.

States lie in memory, and are copied there where possible: `random.getstate` and `numpy.random.get_state` convert 624
words one by one, a memory copy takes 0.1 us. NumPy publishes the address of its words; neither library promises where
the rest lies. So the offsets are searched for once, in private generators, and verified there. Where the layout is not
as expected there is no offset, and callers use the libraries' own functions.
"""

from __future__ import annotations

import _random
import ctypes
import itertools
import random
import sys
from array import array
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from samerun.base.native import try_load_built_library
from samerun.control.rng.seeding import all_random_sources
from samerun.data.keys import SampleKeyArrays, SampleKeys

WORDS = 624
STATE_SIZE = 4 * WORDS + 4
"""Bytes of the words and the position in them. Python stores the position first, NumPy last."""
GAUSS_SIZE = 16
"""Bytes of NumPy's spare normal number: a flag that is nonzero if there is one, and the number 8 bytes behind it."""


def view_python_generator_memory() -> memoryview | None:
    """Return the live memory of Python's global generator: the position and the words.

    The spare normal number of `random.gauss` is not in it: that is the attribute `gauss_next`. None if the layout is
    not known.
    """
    generator: Any = random._inst
    at = _find_python_state_offset()
    return None if at is None or type(generator) is not random.Random else _view_memory(id(generator) + at, STATE_SIZE)


def view_numpy_words_and_gauss_memory() -> tuple[memoryview, memoryview] | None:
    """Return the live memory of NumPy's global generator: (the words and the position, the spare normal number).

    None if the layout is not known or the bit generator is not the Mersenne Twister.
    """
    generator = getattr(np.random.mtrand, "_rand", None)
    at = _find_numpy_gauss_offset()
    if at is None or type(generator) is not np.random.RandomState:
        return None
    bit_generator = get_global_numpy_bit_generator()
    if type(bit_generator) is not np.random.MT19937:
        return None
    return _view_memory(bit_generator.ctypes.state_address, STATE_SIZE), _view_memory(id(generator) + at, GAUSS_SIZE)


def read_python_state_bytes(generator: random.Random) -> bytes:
    """Return the bytes that `view_python_generator_memory` shows, by way of `getstate`."""
    words = array("I", generator.getstate()[1])
    return words[WORDS:].tobytes() + words[:WORDS].tobytes()


def read_mt19937_key_and_position_bytes(generator: np.random.RandomState) -> bytes:
    """Return the bytes that the first part of `view_numpy_words_and_gauss_memory` shows, by way of `get_state`."""
    state: Any = generator.get_state(legacy=False)
    inner = state["state"]
    return bytes(inner["key"].astype(np.uint32).tobytes() + np.int32(inner["pos"]).tobytes())


def get_global_numpy_bit_generator() -> np.random.BitGenerator:
    """Return the bit generator behind `numpy.random`'s functions."""
    random_of_numpy: Any = np.random  # its stubs lack the function
    generator: np.random.BitGenerator = random_of_numpy.get_bit_generator()
    return generator


def _view_memory(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")


def _find_unique_offset(memory: memoryview, pattern: bytes) -> int | None:
    """Return the offset at which `pattern` occurs; None if it does not occur exactly once."""
    content = bytes(memory)
    offset = content.find(pattern)
    return None if offset < 0 or content.find(pattern, offset + 1) >= 0 else offset


def construct_random_unrecorded(seed: int) -> random.Random:
    """Make `random.Random(seed)` without calling its `seed`: a recorder would count that call as the program's."""
    own: random.Random = random.Random.__new__(random.Random)
    _random.Random.seed(own, seed)
    own.gauss_next = None  # type: ignore[attr-defined]
    return own


def construct_random_state_unrecorded(bit_generator: np.random.MT19937) -> np.random.RandomState:
    """Make `RandomState(bit_generator)` without calling what a recorder has patched, for the same reason."""
    kind: Any = np.random.RandomState
    own: np.random.RandomState = kind.__new__(kind)
    _unwrap_patched(kind.__init__)(own, bit_generator)
    return own


def _unwrap_patched(method: Any) -> Any:
    """Return the method that a recorder has wrapped."""
    return getattr(method, "__wrapped__", method)


@lru_cache(maxsize=1)
def _find_python_state_offset() -> int | None:
    """Return where the state begins in a `random.Random` object; None unless reads and writes there work."""
    if sys.implementation.name != "cpython":  # elsewhere an id is not an address
        return None
    own = construct_random_unrecorded(0)
    whole = _view_memory(id(own), _random.Random.__basicsize__)
    at = _find_unique_offset(whole, array("I", own.getstate()[1][:WORDS]).tobytes())
    if at is None or at < 4:
        return None
    place = at - 4
    for _ in range(3):
        if whole[place : place + STATE_SIZE] != read_python_state_bytes(own):
            return None
        own.random()
    before, expected = bytes(whole[place : place + STATE_SIZE]), own.random()
    own.seed(1)
    whole[place : place + STATE_SIZE] = before
    return place if own.random() == expected else None


@lru_cache(maxsize=1)
def _find_numpy_gauss_offset() -> int | None:
    """Return where the spare normal number lies in a `RandomState`; None unless reads and writes work as expected."""
    if sys.implementation.name != "cpython":
        return None
    words = np.random.MT19937(1)
    own = construct_random_state_unrecorded(words)
    kind: Any = np.random.RandomState
    draw = _unwrap_patched(kind.standard_normal)
    draw(own)
    state: Any = own.get_state(legacy=False)
    whole = _view_memory(id(own), kind.__basicsize__)
    at = _find_unique_offset(whole, np.float64(state["gauss"]).tobytes()) if state["has_gauss"] else None
    if at is None or at < 8:
        return None
    place = at - 8
    kept = bytes(whole[place : place + GAUSS_SIZE])
    if kept[:4] != np.int32(1).tobytes():
        return None
    draw(own)
    if any(whole[place : place + 4]):
        return None
    whole[place : place + GAUSS_SIZE] = kept
    if draw(own) != state["gauss"] or any(whole[place : place + 4]):
        return None
    return (
        place
        if _view_memory(words.ctypes.state_address, STATE_SIZE) == read_mt19937_key_and_position_bytes(own)
        else None
    )


# --- seeding from keys ---


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
        library: Any = _load_states_library()
        self._init_genrand = library.samerun_mt19937_init_genrand
        self._init_by_array = library.samerun_mt19937_init_by_array

    def seed_before_each_sample(self, keys: SampleKeyArrays, sample_count: int) -> Iterator[Any]:
        """Return an iterator; each `next` seeds the generators for the next of `sample_count` samples.

        Built from map and zip objects, so that no Python bytecode runs per sample: this loop is the cost of keying.
        """
        puts: list[Iterator[Any]] = []
        if keys.torch is not None:
            puts.append(map(torch.default_generator.set_state, self._cycle_rows(self.torch, sample_count)))
        if keys.numpy is not None:
            words, normal = view_numpy_words_and_gauss_memory()  # type: ignore[misc]
            puts.append(map(words.__setitem__, _WHOLE_BUFFER, self._cycle_rows(self.numpy, sample_count)))
            puts.append(map(normal.__setitem__, _WHOLE_BUFFER, itertools.repeat(bytes(GAUSS_SIZE))))
        if keys.python is not None:
            python: Any = view_python_generator_memory()
            puts.append(map(python.__setitem__, _WHOLE_BUFFER, self._cycle_rows(self.python, sample_count)))
            puts.append(map(random._inst.__setattr__, itertools.repeat("gauss_next"), itertools.repeat(None)))
        blocks = self._write_state_blocks(keys, sample_count)
        writing = itertools.chain.from_iterable(itertools.repeat(None, rows) for rows in blocks)
        return zip(writing, *puts, strict=False)

    def _cycle_rows(self, rows: list[Any], count: int) -> Iterator[Any]:
        """Return an iterator of `count` rows, which begins again after the last one."""
        return itertools.islice(itertools.cycle(rows), count)

    def _write_state_blocks(self, keys: SampleKeyArrays, sample_count: int) -> Iterator[int]:
        """Write the next block of states whenever the block before it is used up, and yield its number of rows."""
        addresses = [0 if column is None else column.ctypes.data for column in keys]
        for begin in range(0, sample_count, BLOCK_ROWS):
            rows = min(BLOCK_ROWS, sample_count - begin)
            self._write_states(addresses, begin, rows)
            if keys.torch is not None:
                self.torch_seeds[:rows] = keys.torch[begin : begin + rows]
            yield rows

    def _write_states(self, key_addresses: list[int], begin: int, count: int) -> None:
        """Write the words of `count` samples from number `begin` on. An address is 0 for a generator without keys."""
        of_python, of_numpy, of_torch = key_addresses
        python, numpy, torch_ = self._addresses
        if of_python:
            self._init_by_array(count, of_python + 8 * begin, python, STATE_SIZE)
        if of_numpy:
            self._init_genrand(count, of_numpy + 4 * begin, numpy, STATE_SIZE, 0)
        if of_torch:
            self._init_genrand(count, of_torch + 4 * begin, torch_, self._torch_stride, 1)


def can_seed_by_writing_states(kinds: frozenset[str]) -> bool:
    """Return whether these generators can be seeded by writing states. A program may have replaced NumPy's."""
    if not _written_states_equal_library_seeding():
        return False
    return ("python" not in kinds or view_python_generator_memory() is not None) and (
        "numpy" not in kinds or view_numpy_words_and_gauss_memory() is not None
    )


@lru_cache(maxsize=1)
def _load_states_library() -> Any:
    library = try_load_built_library(__file__, "_states", keep_gil=True)
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
def _written_states_equal_library_seeding() -> bool:
    """Compare the written states with those of freshly seeded private generators."""
    if _load_states_library() is None:
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
            if rows.python[row] != read_python_state_bytes(construct_random_unrecorded(large[row])):
                return False
            words: Any = np.random.MT19937(0)
            words._legacy_seeding(seed)
            if rows.numpy[row] != read_mt19937_key_and_position_bytes(construct_random_state_unrecorded(words)):
                return False
    except (RuntimeError, ValueError, TypeError):  # this torch lays out its states in another way
        return False
    return True


def seed_before_each_sample_by_library(keys: SampleKeys, sample_count: int) -> Iterator[None]:
    """Yield after seeding the generators for each of `sample_count` samples, by the libraries' own functions.

    `torch.manual_seed` formats stack traces and takes 200 us; the default generator's own method takes 1.5.
    """
    python: Callable[[int], Any] = _ignore_key
    numpy: Callable[[int], Any] = _ignore_key
    manual_seed: Callable[[int], Any] = _ignore_key
    kept: Any = _IgnoredGauss()
    if keys.python is not None:
        python, kept = _get_python_seed_function_keeping_gauss(), random._inst
    if keys.numpy is not None:
        numpy = _choose_numpy_seed_function()
    if keys.torch is not None:
        manual_seed = torch.default_generator.manual_seed
    columns = (itertools.repeat(0, sample_count) if column is None else column for column in keys)
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


def _get_python_seed_function_keeping_gauss() -> Callable[[int], None]:
    """Return `random.seed` for integers, without resetting the spare normal number: the caller drops it."""
    generator: Any = random._inst
    starter: Callable[[int], None] = super(random.Random, generator).seed
    return starter


def _choose_numpy_seed_function() -> Callable[[int], None]:
    """Return `numpy.random.seed`, or the seed function of samerun's NumPy source for other bit generators."""
    if type(get_global_numpy_bit_generator()) is np.random.MT19937:
        starter: Callable[[int], None] = np.random.seed
        return starter
    source = next(source for source in all_random_sources() if source.name == "numpy")
    return source.seed
