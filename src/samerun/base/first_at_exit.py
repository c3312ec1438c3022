"""Functions that are called last when the process ends, because they were registered first."""

from __future__ import annotations

import atexit
from collections.abc import Callable

_reserved: list[Callable[[], object]] | None = None


def reserve() -> None:
    """Take the place now for what is registered later: behind all that other modules register from now on."""
    global _reserved
    if _reserved is None:
        _reserved = []
        atexit.register(_call_all)


def register(call: Callable[[], object]) -> None:
    """As `atexit.register`, in the reserved place where there is one."""
    if _reserved is None:
        atexit.register(call)
    else:
        _reserved.append(call)


def _call_all() -> None:
    for call in reversed(_reserved or []):
        call()
