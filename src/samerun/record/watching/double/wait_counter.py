"""How often each thread has waited for another one: what it reads after that was handed over."""

from __future__ import annotations

import threading
from time import sleep  # by name, before the module's own is watched

_local = threading.local()


def count() -> int:
    """Waits of the present thread so far."""
    return int(getattr(_local, "count", 0))


def waited() -> None:
    _local.count = count() + 1


__all__ = ["count", "sleep", "waited"]
