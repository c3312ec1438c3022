"""Libraries that setup.py built from C, and the OpenMP threads of torch that they borrow."""

from __future__ import annotations

import ctypes
import importlib.machinery
import os
import sys
import threading
from functools import cache
from pathlib import Path


def find_built_library(module_file: str, library_name: str) -> Path | None:
    """The library that lies beside the file of a module; None: not built."""
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = Path(module_file).with_name(library_name + suffix)
        if path.exists():
            return path
    return None


def try_load_built_library(module_file: str, library_name: str, *, keep_gil: bool = False) -> ctypes.CDLL | None:
    """The same, loaded. None: not built, or built for another machine.

    keep_gil: its functions are called with the interpreter's lock held, which is right for short ones.
    """
    path = find_built_library(module_file, library_name)
    try:
        return (ctypes.PyDLL if keep_gil else ctypes.CDLL)(str(path)) if path is not None else None
    except OSError:
        return None


LIBRARIES = (
    "base/_wrap", "data/_states", "numerics/kernels/_portable", "record/digests/_digest", "record/receipt/_folder",
    "record/watching/_entropy", "record/watching/_watch",
)  # fmt: skip
"""Every library, below the folder of the package."""
ONLY_ON_LINUX = "record/watching/_entropy"

MISSING_IN_ONE_LINE = (
    "its C libraries are not installed for this Python; Python does their work, with the same result and slower. "
    "`samerun doctor` says how to get them."
)


def find_unloadable_libraries() -> list[str]:
    """Names of the libraries that were not built, or do not load here. Each is loaded to find out."""
    package = Path(__file__).parent.parent
    wanted = [name for name in LIBRARIES if name != ONLY_ON_LINUX or sys.platform == "linux"]
    paths = {Path(name).name: package / name for name in wanted}
    return [name for name, path in paths.items() if try_load_built_library(str(path), name) is None]


# --- The OpenMP threads that torch computes with, lent to our own C code. They are awake between two operators. Threads
# of our own beside them would share the cores with theirs, which wait for the next operator without sleeping.
_in_child = False


def may_use_torch_openmp_threads() -> bool:
    """Only in the main thread (each thread would get a team of its own), and never in a forked child, where a team
    that the parent has used hangs."""
    return not _in_child and threading.get_ident() == threading.main_thread().ident


def gomp_parallel_address() -> ctypes.c_void_p | None:
    """``GOMP_parallel`` as torch's library finds it, as a `ctypes.c_void_p`; None with other OpenMP libraries.

    Call this and `omp_get_thread_num_address` once torch is loaded.
    """
    return _find_symbol_in_libtorch("GOMP_parallel")


def omp_get_thread_num_address() -> ctypes.c_void_p | None:
    """``omp_get_thread_num`` of the same library, which numbers the threads of its teams."""
    return _find_symbol_in_libtorch("omp_get_thread_num")


@cache
def _find_symbol_in_libtorch(symbol_name: str) -> ctypes.c_void_p | None:
    try:
        library = ctypes.CDLL(str(Path(sys.modules["torch"].__file__ or "").with_name("lib") / "libtorch_cpu.so"))
        return ctypes.cast(getattr(library, symbol_name), ctypes.c_void_p)
    except (OSError, AttributeError):
        return None


def _mark_process_as_forked_child() -> None:
    global _in_child
    _in_child = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_process_as_forked_child)
