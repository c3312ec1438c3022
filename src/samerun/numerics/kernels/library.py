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
from typing import TYPE_CHECKING, Any

from samerun.base import native
from samerun.base.errors import SamerunError
from samerun.base.native import try_load_built_library

if TYPE_CHECKING:
    from torch import Tensor

LEVEL_VARIABLE = "SAMERUN_NUMERICS_LEVEL"
"""Environment variable: a level's name, or ``reference`` to do without the library."""
REFERENCE = "reference"
InstructionLevel = str
"""``plain``, ``avx2``, ``avx512``, ``neon``, or ``reference`` without the library."""

_TYPES: dict[str, Any] = {
    "p": ctypes.c_void_p,
    "l": ctypes.c_int64,
    "u": ctypes.c_uint64,
    "i": ctypes.c_int,
    "f": ctypes.c_float,
    "d": ctypes.c_double,
}


def is_available() -> bool:
    """Whether the C library was built, loads here and is in use."""
    return _library is not None and not _reference_forced


def supported_levels() -> list[InstructionLevel]:
    """The levels that this machine can run, slowest first; ``reference`` is always the first."""
    if _library is None:
        return [REFERENCE]
    return [
        REFERENCE,
        *(name for name, number in _level_numbers.items() if _library.samerun_simd_level_is_supported(number)),
    ]


def current_level() -> InstructionLevel:
    """The instructions in use: ``plain``, ``avx2``, ``avx512``, ``neon``, or ``reference`` without the library."""
    if not is_available():
        return REFERENCE
    return bytes.decode(_library.samerun_simd_level_name(_library.samerun_current_simd_level()))


def force_level(name: InstructionLevel | None) -> None:
    """Use this level from now on, in every thread; None: the best of this machine. All give the same bits.

    Raises SamerunError for a level that this machine cannot run.
    """
    global _reference_forced
    if name is not None and name not in supported_levels():
        raise SamerunError(
            f"force_level({name!r}): this machine runs the levels {', '.join(supported_levels())}.",
            None
            if _library is not None
            else "The C library was not built: reinstall samerun where there is gcc or clang.",
        )
    _reference_forced = name == REFERENCE
    if _library is not None and not _reference_forced:
        _library.samerun_try_force_simd_level(-1 if name is None else _level_numbers[name])


class NativeFunction:
    """A function of the library.

    ``entry(...)`` computes on the CPU, ``entry.for_device_of(x)`` gives the one for where x lies.
    """

    def __init__(self, name: str, type_codes: str) -> None:
        self.name, self.type_codes = name, type_codes
        self._found: Any = None

    def __call__(self, *arguments: Any) -> Any:
        return self.cpu_function_after_setting_threads()(*arguments)

    def for_device_of(self, x: Tensor) -> Callable[..., Any]:
        """The function for memory of x's device, to be called at once: it has as many threads as torch has now."""
        if not is_off_cpu(x):
            return self.cpu_function_after_setting_threads()
        from samerun.numerics.cuda.entries import ENTRIES

        return partial(ENTRIES[self.name], x.device)

    def cpu_function_after_setting_threads(self) -> Callable[..., Any]:
        """The function for memory of the CPU, to be called at once."""
        found = self._found
        if found is None:
            found = getattr(_library, self.name)
            found.restype = _TYPES.get(self.type_codes[0])
            found.argtypes = [_TYPES[letter] for letter in self.type_codes[1:]]
            self._found = found
        # Most calls are small, so that every step of Python shows (decision 0038): once torch's team is borrowed, only
        # a changed number of threads is worth the call.
        if not _team_borrowed or _count_torch_threads() != _pool_threads:
            use_torchs_threads_and_openmp_team()
        return found  # type: ignore[no-any-return]


def declare_native_function(name: str, type_codes: str) -> NativeFunction:
    """A function of the library. `type_codes`: what it returns (``v``: nothing), then one letter an argument.

    ``p`` address, ``l`` int64, ``u`` uint64, ``i`` int, ``f`` float, ``d`` double. Found when first called;
    calling it where `is_available()` is false is a mistake of the caller.
    """
    return NativeFunction(name, type_codes)


def is_off_cpu(x: Tensor) -> bool:
    """Whether a tensor is not on the CPU; then the kernels of `numerics.cuda` compute."""
    return not x.is_cpu


def uses_native_kernels(x: Tensor) -> bool:
    """Whether kernels, and not the reference, compute on this tensor."""
    return is_off_cpu(x) or is_available()


def use_torchs_threads_and_openmp_team() -> None:
    """Give the pool as many threads as torch computes with, and in the main thread torch's own."""
    global _pool_threads, _team_borrowed, _count_torch_threads
    torch = sys.modules.get("torch")
    threads = 1 if torch is None else torch.get_num_threads()
    if threads != _pool_threads:
        _library.samerun_set_num_threads(threads)
        _pool_threads = threads
    # torch's OpenMP threads wait for the next operator without sleeping. Threads of our own would share the cores with
    # them, which cost a third of the speed, so jobs of the main thread run on torch's team (decision 0044).
    if not _team_borrowed and torch is not None and native.may_use_torch_openmp_threads():
        _library.samerun_use_openmp_team(native.gomp_parallel_address(), native.omp_get_thread_num_address())
        _team_borrowed, _count_torch_threads = True, torch.get_num_threads


def load_library_or_none() -> Any:
    """The library, or None: not built, built for another machine, or numbers do not behave here."""
    library = try_load_built_library(__file__, "_portable")
    try:
        if library is None or not library.samerun_arithmetic_is_ieee():
            return None
        library.samerun_simd_level_name.restype = ctypes.c_char_p
        library.samerun_use_openmp_team.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        return library
    except AttributeError:  # built by another version
        return None


def _read_level_number_by_name() -> dict[InstructionLevel, int]:
    found: dict[InstructionLevel, int] = {}
    while _library is not None and (name := _library.samerun_simd_level_name(len(found))):
        found[name.decode()] = len(found)
    return found


_library = load_library_or_none()
_level_numbers = _read_level_number_by_name()
_reference_forced = False
_pool_threads = 0
_team_borrowed = False
_count_torch_threads: Callable[[], int] = int  # torch.get_num_threads, once torch has lent its own
if LEVEL_VARIABLE in os.environ:
    force_level(os.environ[LEVEL_VARIABLE] or None)
