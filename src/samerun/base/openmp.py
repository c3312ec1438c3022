"""The OpenMP threads that torch computes with, lent to our own C code.

They are awake between two operators. Threads of our own beside them would share the cores with theirs, which wait
for the next operator without sleeping.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

_in_child = False


def may_borrow() -> bool:
    """Only in the main thread (each thread would get a team of its own), and never in a forked child, where a team
    that the parent has used hangs."""
    return not _in_child and threading.get_ident() == threading.main_thread().ident


def parallel() -> Any:
    """``GOMP_parallel`` as torch's library finds it, as a `ctypes.c_void_p`; None with other OpenMP libraries.

    Call this and `number_of_thread` once torch is loaded.
    """
    return _function("GOMP_parallel")


def number_of_thread() -> Any:
    """``omp_get_thread_num`` of the same library, which numbers the threads of its teams."""
    return _function("omp_get_thread_num")


@cache
def _function(name: str) -> Any:
    try:
        library = ctypes.CDLL(str(Path(sys.modules["torch"].__file__ or "").with_name("lib") / "libtorch_cpu.so"))
        return ctypes.cast(getattr(library, name), ctypes.c_void_p)
    except (OSError, AttributeError):
        return None


def _forked() -> None:
    global _in_child
    _in_child = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
