"""Where CPython and NumPy keep the states of their global generators, as memory that can be copied.

`random.getstate` and `numpy.random.get_state` go over 624 words one by one; a copy takes 0.1 us. NumPy gives the
address of its words to everybody; of the rest neither library promises where it lies. So the places are looked for
once, in generators of our own, and tried out there. Where they are not as expected there is none, and callers do it
the libraries' way.
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

WORDS = 624
SIZE = 4 * WORDS + 4
"""Bytes: the words, and the position in them. Python has the position in front, NumPy behind."""
KEPT = 16
"""Bytes: a number that is not 0 if NumPy keeps a normal for the next call, and 8 behind it the normal."""


def python_memory() -> memoryview | None:
    """The position and the words of Python's global generator. What `gauss` keeps is an attribute: `gauss_next`."""
    generator: Any = random._inst
    at = _place_in_python()
    return None if at is None or type(generator) is not random.Random else _memory(id(generator) + at, SIZE)


def numpy_memory() -> tuple[memoryview, memoryview] | None:
    """(the words and the position, whether a normal is kept and which) of NumPy's global generator.

    None also if it is on another bit generator than the Mersenne Twister.
    """
    generator = getattr(np.random.mtrand, "_rand", None)
    at = _place_in_numpy()
    if at is None or type(generator) is not np.random.RandomState:
        return None
    bit_generator = present_bit_generator()
    if type(bit_generator) is not np.random.MT19937:
        return None
    return _memory(bit_generator.ctypes.state_address, SIZE), _memory(id(generator) + at, KEPT)


def words_of_python(generator: random.Random) -> bytes:
    """What `python_memory` holds, as the generator itself tells it."""
    words = array("I", generator.getstate()[1])
    return words[WORDS:].tobytes() + words[:WORDS].tobytes()


def words_of_numpy(generator: np.random.RandomState) -> bytes:
    """What the first part of `numpy_memory` holds, as the generator itself tells it."""
    state: Any = generator.get_state(legacy=False)
    inner = state["state"]
    return bytes(inner["key"].astype(np.uint32).tobytes() + np.int32(inner["pos"]).tobytes())


def present_bit_generator() -> Any:
    random_of_numpy: Any = np.random  # its stubs lack the function
    return random_of_numpy.get_bit_generator()


def _memory(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")


def _only_place(inside: memoryview, wanted: bytes) -> int | None:
    """Where `wanted` lies in it; None if it does not, or twice."""
    found = bytes(inside)
    at = found.find(wanted)
    return None if at < 0 or found.find(wanted, at + 1) >= 0 else at


def own_random(seed: int) -> random.Random:
    """`random.Random(seed)`, made past its method `seed`: a recorder counts what goes there as the program's own."""
    own: random.Random = random.Random.__new__(random.Random)
    _random.Random.seed(own, seed)
    own.gauss_next = None  # type: ignore[attr-defined]
    return own


def own_random_state(words: np.random.MT19937) -> np.random.RandomState:
    """`RandomState(words)`, made past what a recorder has put into the type, for the same reason."""
    kind: Any = np.random.RandomState
    own: np.random.RandomState = kind.__new__(kind)
    _unwatched(kind.__init__)(own, words)
    return own


def _unwatched(method: Any) -> Any:
    return getattr(method, "__wrapped__", method)


@lru_cache(maxsize=1)
def _place_in_python() -> int | None:
    if sys.implementation.name != "cpython":  # elsewhere an id is no address
        return None
    own = own_random(0)
    whole = _memory(id(own), _random.Random.__basicsize__)
    at = _only_place(whole, array("I", own.getstate()[1][:WORDS]).tobytes())
    if at is None or at < 4:
        return None
    place = at - 4
    for _ in range(3):
        if whole[place : place + SIZE] != words_of_python(own):
            return None
        own.random()
    before, expected = bytes(whole[place : place + SIZE]), own.random()
    own.seed(1)
    whole[place : place + SIZE] = before
    return place if own.random() == expected else None


@lru_cache(maxsize=1)
def _place_in_numpy() -> int | None:
    if sys.implementation.name != "cpython":
        return None
    words = np.random.MT19937(1)
    own = own_random_state(words)
    kind: Any = np.random.RandomState
    draw = _unwatched(kind.standard_normal)
    draw(own)
    state: Any = own.get_state(legacy=False)
    whole = _memory(id(own), kind.__basicsize__)
    at = _only_place(whole, np.float64(state["gauss"]).tobytes()) if state["has_gauss"] else None
    if at is None or at < 8:
        return None
    place = at - 8
    kept = bytes(whole[place : place + KEPT])
    if kept[:4] != np.int32(1).tobytes():
        return None
    draw(own)
    if any(whole[place : place + 4]):
        return None
    whole[place : place + KEPT] = kept
    if draw(own) != state["gauss"] or any(whole[place : place + 4]):
        return None
    return place if _memory(words.ctypes.state_address, SIZE) == words_of_numpy(own) else None
