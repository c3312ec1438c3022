"""The C library of kernels: find it, load it, call it. Without it the reference does the same work. For tensors of a
CUDA device, functions of the same names and arguments start kernels there (`numerics.cuda`).

Kernels take addresses of memory (``tensor.data_ptr()``) and sizes in elements. ctypes lets go of the
interpreter's lock while they run. They compute on ``torch.get_num_threads()`` threads; the bits do not depend
on how many.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from samerun.base import openmp
from samerun.base.errors import SamerunError
from samerun.base.native import built

LEVEL_VARIABLE = "SAMERUN_NUMERICS_LEVEL"
"""Environment variable: a level's name, or ``reference`` to do without the library."""
REFERENCE = "reference"

_TYPES: dict[str, Any] = {
    "p": ctypes.c_void_p,
    "l": ctypes.c_int64,
    "u": ctypes.c_uint64,
    "i": ctypes.c_int,
    "f": ctypes.c_float,
    "d": ctypes.c_double,
}


def available() -> bool:
    """Whether the C library was built, loads here and is in use."""
    return _library is not None and not _by_reference


def levels() -> list[str]:
    """The levels that this machine can run, slowest first; ``reference`` is always the first."""
    if _library is None:
        return [REFERENCE]
    return [REFERENCE, *(name for name, number in _numbers.items() if _library.samerun_level_runs(number))]


def level() -> str:
    """The instructions in use: ``plain``, ``avx2``, ``avx512``, ``neon``, or ``reference`` without the library."""
    if not available():
        return REFERENCE
    return bytes.decode(_library.samerun_level_name(_library.samerun_level()))


def force_level(name: str | None) -> None:
    """Use this level from now on, in every thread; None: the best of this machine. All give the same bits.

    Raises SamerunError for a level that this machine cannot run.
    """
    global _by_reference
    if name is not None and name not in levels():
        raise SamerunError(
            f"force_level({name!r}): this machine runs the levels {', '.join(levels())}.",
            None
            if _library is not None
            else "The C library was not built: reinstall samerun where there is gcc or clang.",
        )
    _by_reference = name == REFERENCE
    if _library is not None and not _by_reference:
        _library.samerun_force_level(-1 if name is None else _numbers[name])


class Entry:
    """A function of the library. ``entry(...)`` computes on the CPU, ``entry.on(x)`` gives the one for where x lies."""

    def __init__(self, name: str, signature: str) -> None:
        self.name, self.signature = name, signature
        self._found: Any = None

    def __call__(self, *arguments: Any) -> Any:
        return self.here()(*arguments)

    def on(self, x: Any) -> Callable[..., Any]:
        """The function for memory of x's device, to be called at once: it has as many threads as torch has now."""
        if not elsewhere(x):
            return self.here()
        from samerun.numerics.cuda.entries import ENTRIES

        return partial(ENTRIES[self.name], x.device)

    def here(self) -> Callable[..., Any]:
        """The function for memory of the CPU, to be called at once."""
        found = self._found
        if found is None:
            found = getattr(_library, self.name)
            found.restype = _TYPES.get(self.signature[0])
            found.argtypes = [_TYPES[letter] for letter in self.signature[1:]]
            self._found = found
        if not _lent or _number_of_threads() != _threads:  # else it follows already
            follow_torch()
        return found  # type: ignore[no-any-return]


def function(name: str, signature: str) -> Entry:
    """A function of the library. `signature`: what it returns (``v``: nothing), then one letter an argument.

    ``p`` address, ``l`` int64, ``u`` uint64, ``i`` int, ``f`` float, ``d`` double. Found when first called;
    calling it where `available()` is false is a mistake of the caller.
    """
    return Entry(name, signature)


def elsewhere(x: Any) -> bool:
    """Whether a tensor is not on the CPU; then the kernels of `numerics.cuda` compute."""
    return not x.is_cpu


def computes(x: Any) -> bool:
    """Whether kernels, and not the reference, compute on this tensor."""
    return elsewhere(x) or available()


def follow_torch() -> None:
    """Give the pool as many threads as torch computes with, and in the main thread torch's own."""
    global _threads, _lent, _number_of_threads
    torch = sys.modules.get("torch")
    threads = 1 if torch is None else torch.get_num_threads()
    if threads != _threads:
        _library.samerun_set_threads(threads)
        _threads = threads
    if not _lent and torch is not None and openmp.may_borrow():
        _library.samerun_borrow(openmp.parallel(), openmp.number_of_thread())
        _lent, _number_of_threads = True, torch.get_num_threads


def load() -> Any:
    """The library, or None: not built, built for another machine, or numbers do not behave here."""
    library = built(__file__, "_portable")
    try:
        if library is None or not library.samerun_ready():
            return None
        library.samerun_level_name.restype = ctypes.c_char_p
        library.samerun_borrow.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        return library
    except AttributeError:  # built by another version
        return None


def _names() -> dict[str, int]:
    found: dict[str, int] = {}
    while _library is not None and (name := _library.samerun_level_name(len(found))):
        found[name.decode()] = len(found)
    return found


_library = load()
_numbers = _names()
_by_reference = False
_threads = 0
_lent = False
_number_of_threads: Callable[[], int] = int  # torch.get_num_threads, once torch has lent its own
if LEVEL_VARIABLE in os.environ:
    force_level(os.environ[LEVEL_VARIABLE] or None)
