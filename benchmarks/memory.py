"""Memory of results, kept by the process when it is freed."""

from __future__ import annotations

import ctypes
import sys


def keep_memory() -> None:
    """Whether freed memory goes back to the system after each call is chance: it costs one of two sides up to 10 ms."""
    trim_threshold, mmap_threshold = -1, -3  # names of mallopt
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt"):
        ctypes.CDLL(None).mallopt(trim_threshold, 2**31 - 1)
        ctypes.CDLL(None).mallopt(mmap_threshold, 32 << 20)  # the most it takes
