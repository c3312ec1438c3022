"""Start the global generators from keys by putting their states in place, which C writes for many samples at once.

Seeding a Mersenne Twister is a chain of 624 steps that wait for each other (Python's: 1871); four chains at once
take hardly longer than one. The states are those that seeding gives, bit for bit. That is tried out before the
first use; where it does not hold, or the C library was not built, `seeding.py` starts the generators.
"""

from __future__ import annotations

import ctypes
import itertools
import random
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from samerun.base.native import built
from samerun.data.generator_memory import (
    KEPT,
    SIZE,
    WORDS,
    numpy_memory,
    own_random,
    own_random_state,
    python_memory,
    words_of_numpy,
    words_of_python,
)
from samerun.data.keys import KeyArrays

ROWS = 32
"""States are written for so many samples at a time: few enough to stay in the processor's cache."""
_TORCH_SEED, _TORCH_WORDS = 8, 24
"""Of a state that torch gives: its seed takes the first bytes, and words of 64 bits begin behind the others."""
_WHOLE = itertools.repeat(slice(None))


class StateRows:
    """Room for the states of `ROWS` samples. Not to be used twice at the same time."""

    def __init__(self) -> None:
        position = np.frombuffer(np.int32(WORDS).tobytes(), np.uint8)
        python: Any = np.zeros((ROWS, SIZE), np.uint8)
        numpy: Any = np.zeros((ROWS, SIZE), np.uint8)
        python[:, :4], numpy[:, -4:] = position, position
        of_torch = torch.Generator().get_state().repeat(ROWS, 1).numpy()
        self.torch_seeds: Any = of_torch[:, :_TORCH_SEED].view(np.uint64)[:, 0]
        self.torch = [torch.from_numpy(row) for row in of_torch]  # views of a tensor crash torch's set_state
        self.python, self.numpy = ([memoryview(row) for row in rows] for rows in (python, numpy))
        self._begin = python.ctypes.data + 4, numpy.ctypes.data, of_torch.ctypes.data + _TORCH_WORDS
        self._torch_stride = of_torch.strides[0]
        library: Any = _library()
        self._of_words, self._of_numbers = library.samerun_states_of_words, library.samerun_states_of_numbers

    def started(self, keys: KeyArrays, count: int) -> Iterator[Any]:
        """Each turn of the loop starts the generators for the next of `count` samples.

        Put together from iterators that are written in C: this is what keying costs.
        """
        puts: list[Iterator[Any]] = []
        if keys.torch is not None:
            puts.append(map(torch.default_generator.set_state, self._rows(self.torch, count)))
        if keys.numpy is not None:
            words, normal = numpy_memory()  # type: ignore[misc]
            puts.append(map(words.__setitem__, _WHOLE, self._rows(self.numpy, count)))
            puts.append(map(normal.__setitem__, _WHOLE, itertools.repeat(bytes(KEPT))))
        if keys.python is not None:
            python: Any = python_memory()
            puts.append(map(python.__setitem__, _WHOLE, self._rows(self.python, count)))
            puts.append(map(random._inst.__setattr__, itertools.repeat("gauss_next"), itertools.repeat(None)))
        writing = itertools.chain.from_iterable(itertools.repeat(None, rows) for rows in self._written(keys, count))
        return zip(writing, *puts, strict=False)

    def _rows(self, rows: list[Any], count: int) -> Iterator[Any]:
        return itertools.islice(itertools.cycle(rows), count)

    def _written(self, keys: KeyArrays, count: int) -> Iterator[int]:
        """Write the states of the next samples whenever those before them are used up."""
        addresses = [0 if column is None else column.ctypes.data for column in keys]
        for begin in range(0, count, ROWS):
            rows = min(ROWS, count - begin)
            self._write(addresses, begin, rows)
            if keys.torch is not None:
                self.torch_seeds[:rows] = keys.torch[begin : begin + rows]
            yield rows

    def _write(self, keys: list[int], begin: int, count: int) -> None:
        """The words of `count` samples from the `begin`-th on. keys: where they lie; 0: none of this kind."""
        of_python, of_numpy, of_torch = keys
        python, numpy, torch_ = self._begin
        if of_python:
            self._of_numbers(count, of_python + 8 * begin, python, SIZE)
        if of_numpy:
            self._of_words(count, of_numpy + 4 * begin, numpy, SIZE, 0)
        if of_torch:
            self._of_words(count, of_torch + 4 * begin, torch_, self._torch_stride, 1)


def applies(kinds: frozenset[str]) -> bool:
    """Whether these generators can be started this way now. NumPy's may have been replaced by another."""
    if not _is_what_seeding_gives():
        return False
    return ("python" not in kinds or python_memory() is not None) and (
        "numpy" not in kinds or numpy_memory() is not None
    )


@lru_cache(maxsize=1)
def _library() -> Any:
    library = built(__file__, "_states", keep_lock=True)
    try:
        if library is None:
            return None
        words, numbers = library.samerun_states_of_words, library.samerun_states_of_numbers
    except AttributeError:  # built by another version
        return None
    numbers.argtypes = [ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    words.argtypes = [*numbers.argtypes, ctypes.c_int32]
    numbers.restype = words.restype = None
    return library


@lru_cache(maxsize=1)
def _is_what_seeding_gives() -> bool:
    """Try it out, on generators of our own."""
    if _library() is None:
        return False
    try:
        rows = StateRows()
        seeds = [0, 1, 2**32 - 1, 624, *(2654435761 * at % 2**32 for at in range(4, ROWS))]
        large = [0, 2**32 - 1, 2**32, 2**64 - 1, *((seed << 32) + at for at, seed in enumerate(seeds[4:]))]
        keys = KeyArrays(np.array(large, np.uint64), np.array(seeds, np.uint32), np.array(seeds, np.uint32))
        rows._write([column.ctypes.data for column in keys], 0, ROWS)
        rows.torch_seeds[:] = keys.torch
        generator = torch.Generator()
        for row, seed in enumerate(seeds):
            generator.set_state(rows.torch[row])
            expected = torch.Generator().manual_seed(seed).get_state()
            if not torch.equal(rows.torch[row], expected) or not torch.equal(generator.get_state(), expected):
                return False
            if rows.python[row] != words_of_python(own_random(large[row])):
                return False
            words: Any = np.random.MT19937(0)
            words._legacy_seeding(seed)
            if rows.numpy[row] != words_of_numpy(own_random_state(words)):
                return False
    except (RuntimeError, ValueError, TypeError):  # states of torch's look otherwise here
        return False
    return True
