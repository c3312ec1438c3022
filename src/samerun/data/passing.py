"""Say how far reading again has come, where it takes longer than two seconds."""

from __future__ import annotations

import sys
import time

FIRST, THEN = 2.0, 10.0
"""Seconds until the first line, and from one to the next."""


class Passing:
    """Writes to standard error. what: what is read again; end: how many samples in all."""

    def __init__(self, what: str, end: int) -> None:
        self._what, self._end = what, end
        self._begin = time.monotonic()
        self._next = self._begin + FIRST

    def at(self, position: int) -> None:
        """So many samples are behind us."""
        now = time.monotonic()
        if now < self._next and (position < self._end or now < self._begin + FIRST):
            return
        self._next = now + THEN
        line = f"samerun: reading {self._what} again to resume: {position:,} of {self._end:,} samples"
        if self._end == position:
            line += f", {now - self._begin:.0f} s"
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
