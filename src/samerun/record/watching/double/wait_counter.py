"""How often each thread has waited for another one: what it reads after that was handed over."""

from __future__ import annotations

import threading
from time import sleep  # by name, before the module's own is watched

_local = threading.local()


def wait_count() -> int:
    """Waits of the present thread so far."""
    return int(getattr(_local, "count", 0))


def count_wait() -> None:
    _local.count = wait_count() + 1


__all__ = ["count_wait", "sleep", "wait_count"]
