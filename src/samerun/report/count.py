"""How far a count is, on standard error: a live line on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time

QUIET_SECONDS = 2.0
"""Before that nothing is shown."""
LIVE_SECONDS, LINE_SECONDS = 0.2, 10.0
"""Between two changes of a live line; between two lines elsewhere."""


class Count:
    """Called with how many are done, and how many there are; `what`: what they are, in words."""

    def __init__(self, what: str, quiet: bool) -> None:
        self._what, self._quiet = what, quiet
        self._live = sys.stderr.isatty()
        self._next = time.monotonic() + QUIET_SECONDS
        self._shown = False

    def __enter__(self) -> Count:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown and self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def __call__(self, done: int, of: int) -> None:
        now = time.monotonic()
        if self._quiet or now < self._next or (done >= of and not self._shown):  # no news of what is over
            return
        self._next = now + (LIVE_SECONDS if self._live else LINE_SECONDS)
        self._shown = True
        begin, end = ("\r\x1b[K", "") if self._live else ("", "\n")
        print(f"{begin}samerun: {done} of {of} {self._what}", end=end, file=sys.stderr, flush=True)
