"""Numba's own generators: `numpy.random` and `random` inside `@njit` code draw from these.

Of the calling thread only: Numba keeps one pair per thread and gives no way to reach those of other threads.
"""

from __future__ import annotations

import ctypes
from typing import Any

from samerun.control.imported import find_imported, get_imported
from samerun.control.seeds.source import RandomSource, State

_NUMBA_FUNCTIONS = ("rnd_seed", "rnd_get_state", "rnd_get_np_state_ptr", "rnd_get_py_state_ptr")


class _NumbaGenerator(ctypes.Structure):
    """`rnd_state_t` of Numba's _random.c. Numba's own `rnd_get_state` leaves out the normal number
    that is kept for the next call."""

    _fields_ = [
        ("index", ctypes.c_int),
        ("words", ctypes.c_uint * 624),
        ("has_gauss", ctypes.c_int),
        ("gauss", ctypes.c_double),
        ("is_initialized", ctypes.c_int),
    ]


def _can_seed_numba() -> bool:
    return find_imported("numba") is not None and find_imported("numba._helperlib", *_NUMBA_FUNCTIONS) is not None


def _get_numba_state_pointers() -> tuple[int, int]:
    helper = get_imported("numba._helperlib")
    return helper.rnd_get_np_state_ptr(), helper.rnd_get_py_state_ptr()


def _seed_numba(seed: int) -> None:
    for pointer, half in zip(_get_numba_state_pointers(), (seed & 0xFFFFFFFF, seed >> 32), strict=True):
        get_imported("numba._helperlib").rnd_seed(pointer, half)


def _get_numba_state() -> State:
    return (
        [_copy_numba_generator(pointer) for pointer in _get_numba_state_pointers()]
        if _is_numba_layout_known()
        else None
    )


def _set_numba_state(state: State) -> None:
    if not _is_numba_layout_known():
        raise TypeError(_NUMBA_NOTE)
    for pointer, saved in zip(_get_numba_state_pointers(), state, strict=True):
        index, words, has_gauss, gauss, is_initialized = saved
        generator = _NumbaGenerator(index, (ctypes.c_uint * 624)(*words), has_gauss, gauss, is_initialized)
        ctypes.memmove(pointer, ctypes.byref(generator), ctypes.sizeof(generator))


def _copy_numba_generator(pointer: int) -> list[Any]:
    generator = _NumbaGenerator.from_address(pointer)
    return [
        generator.index, list(generator.words), generator.has_gauss, generator.gauss, generator.is_initialized
    ]  # fmt: skip


def _is_numba_layout_known() -> bool:
    declared = getattr(find_imported("numba.cpython.randomimpl"), "rnd_state_t", None)
    return declared is None or str(declared) == "{i32, [624 x i32], i32, double, i32}"


_NUMBA_NOTE = "samerun does not know the memory layout of this version of Numba's generators"
SOURCE = RandomSource("numba", "numba", _can_seed_numba, _seed_numba, _get_numba_state, _set_numba_state, _NUMBA_NOTE)
