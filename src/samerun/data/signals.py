"""Signals held back while a library runs that loses, or dies of, what a handler raises in a callback from it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def held_back(interrupted: Callable[[], None]) -> Iterator[None]:
    """Handlers in Python are called when the block has ended, for what came in it. `interrupted`: called at a Ctrl-C
    that would raise KeyboardInterrupt, to end the block soon."""
    if threading.current_thread() is not threading.main_thread():  # handlers run in the main thread only
        yield
        return
    noted: set[int] = set()
    handlers: dict[int, Any] = {}

    def note(number: int, frame: Any) -> None:
        noted.add(number)
        if handlers[number] is signal.default_int_handler:
            interrupted()

    # Ctrl-C first and, below, last: what it raises while the others are exchanged would leave them as they are.
    numbers = sorted(signal.valid_signals(), key=lambda number: number != signal.SIGINT)
    try:
        for number in numbers:
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, note)
        yield
    finally:
        for replaced, handler in reversed(handlers.items()):
            signal.signal(replaced, handler)
        for came in sorted(noted, key=lambda number: number == signal.SIGINT):
            signal.raise_signal(came)
