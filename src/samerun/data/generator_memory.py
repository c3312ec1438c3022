"""Read and restore the states of the global Python, NumPy and torch generators, by copying memory where possible.

A state is saved and restored with every batch that is loaded in the main process. `random.getstate` and
`numpy.random.get_state` convert 624 words one by one; a memory copy takes 0.1 us. NumPy publishes the address of its
words; neither library promises where the rest lies. So the offsets are searched for once, in private generators, and
verified there. Where the layout is not as expected there is no offset, and callers use the libraries' own functions.
"""

from __future__ import annotations

import _random
import ctypes
import random
import sys
from array import array
from functools import lru_cache
from typing import Any

import numpy as np
import torch

WORDS = 624
STATE_SIZE = 4 * WORDS + 4
"""Bytes of the words and the position in them. Python stores the position first, NumPy last."""
GAUSS_SIZE = 16
"""Bytes of NumPy's spare normal number: a flag that is nonzero if there is one, and the number 8 bytes behind it."""


def map_python_state() -> memoryview | None:
    """Return the live memory of Python's global generator: the position and the words.

    The spare normal number of `random.gauss` is not in it: that is the attribute `gauss_next`. None if the layout is
    not known.
    """
    generator: Any = random._inst
    at = _find_python_state_offset()
    return None if at is None or type(generator) is not random.Random else _view_memory(id(generator) + at, STATE_SIZE)


def map_numpy_state() -> tuple[memoryview, memoryview] | None:
    """Return the live memory of NumPy's global generator: (the words and the position, the spare normal number).

    None if the layout is not known or the bit generator is not the Mersenne Twister.
    """
    generator = getattr(np.random.mtrand, "_rand", None)
    at = _find_numpy_gauss_offset()
    if at is None or type(generator) is not np.random.RandomState:
        return None
    bit_generator = get_numpy_bit_generator()
    if type(bit_generator) is not np.random.MT19937:
        return None
    return _view_memory(bit_generator.ctypes.state_address, STATE_SIZE), _view_memory(id(generator) + at, GAUSS_SIZE)


def read_python_state_bytes(generator: random.Random) -> bytes:
    """Return the bytes that `map_python_state` shows, by way of `getstate`."""
    words = array("I", generator.getstate()[1])
    return words[WORDS:].tobytes() + words[:WORDS].tobytes()


def read_numpy_state_bytes(generator: np.random.RandomState) -> bytes:
    """Return the bytes that the first part of `map_numpy_state` shows, by way of `get_state`."""
    state: Any = generator.get_state(legacy=False)
    inner = state["state"]
    return bytes(inner["key"].astype(np.uint32).tobytes() + np.int32(inner["pos"]).tobytes())


def get_numpy_bit_generator() -> Any:
    """Return the bit generator behind `numpy.random`'s functions."""
    random_of_numpy: Any = np.random  # its stubs lack the function
    return random_of_numpy.get_bit_generator()


def _view_memory(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")


def _find_unique_offset(memory: memoryview, wanted: bytes) -> int | None:
    """Return the offset at which `wanted` occurs; None if it does not occur exactly once."""
    content = bytes(memory)
    offset = content.find(wanted)
    return None if offset < 0 or content.find(wanted, offset + 1) >= 0 else offset


def make_unrecorded_random(seed: int) -> random.Random:
    """Make `random.Random(seed)` without calling its `seed`: a recorder would count that call as the program's."""
    own: random.Random = random.Random.__new__(random.Random)
    _random.Random.seed(own, seed)
    own.gauss_next = None  # type: ignore[attr-defined]
    return own


def make_unrecorded_random_state(words: np.random.MT19937) -> np.random.RandomState:
    """Make `RandomState(words)` without calling what a recorder has patched into the type, for the same reason."""
    kind: Any = np.random.RandomState
    own: np.random.RandomState = kind.__new__(kind)
    _unwrap_patched(kind.__init__)(own, words)
    return own


def _unwrap_patched(method: Any) -> Any:
    return getattr(method, "__wrapped__", method)


@lru_cache(maxsize=1)
def _find_python_state_offset() -> int | None:
    """Return where the state begins in a `random.Random` object; None unless reads and writes there work."""
    if sys.implementation.name != "cpython":  # elsewhere an id is not an address
        return None
    own = make_unrecorded_random(0)
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
    own = make_unrecorded_random_state(words)
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
    return place if _view_memory(words.ctypes.state_address, STATE_SIZE) == read_numpy_state_bytes(own) else None


class PythonSnapshot:
    """The state of Python's global generator, taken when this object is made."""

    def __init__(self) -> None:
        self._generator: Any = random._inst
        self._memory = map_python_state()
        if self._memory is None:
            self._state = random.getstate()
        else:
            self._words = bytes(self._memory)
            self._normal = getattr(self._generator, "gauss_next")

    def restore(self) -> None:
        if self._memory is None:
            random.setstate(self._state)
        else:
            self._memory[:] = self._words
            self._generator.gauss_next = self._normal


class NumpySnapshot:
    """The state of NumPy's global generator, taken when this object is made."""

    def __init__(self) -> None:
        self._bit_generator = get_numpy_bit_generator()
        self._memory = map_numpy_state()
        if self._memory is None:
            self._state: Any = np.random.get_state(legacy=False)
        else:
            words, normal = self._memory
            self._words, self._normal = bytes(words), bytes(normal)

    def restore(self) -> None:
        if get_numpy_bit_generator() is not self._bit_generator:
            random_of_numpy: Any = np.random  # its stubs lack the function
            random_of_numpy.set_bit_generator(self._bit_generator)
        if self._memory is None:
            np.random.set_state(self._state)
        else:
            words, normal = self._memory
            words[:], normal[:] = self._words, self._normal


class TorchSnapshot:
    """The state of torch's default CPU generator, taken when this object is made."""

    def __init__(self) -> None:
        self._state = torch.default_generator.get_state()

    def restore(self) -> None:
        torch.default_generator.set_state(self._state)


SNAPSHOTS: dict[str, Any] = {"python": PythonSnapshot, "numpy": NumpySnapshot, "torch": TorchSnapshot}
"""By kind of generator, in the order in which they are restored."""
