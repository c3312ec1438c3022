"""Progress on standard error: a live line on a terminal, a line per finished run elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType


class Progress:
    """Called by the runner; see samerun.check.runner.Progress."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.live = sys.stderr.isatty()
        self._shown = -1.0

    def __call__(self, name: str, seconds: float, state: str) -> None:
        if self.quiet:
            return
        if state == "done":
            print(("\r\x1b[K" if self.live else "") + f"  {name:40} {seconds:6.1f} s", file=sys.stderr, flush=True)
            self._shown = -1.0
        elif self.live and seconds - self._shown >= 0.2:
            self._shown = seconds
            print(f"\r\x1b[K  {name:36} {seconds:6.1f} s ...", end="", file=sys.stderr, flush=True)


class Counter:
    """How much of a known number is done: a live line on a terminal; elsewhere one line after two seconds."""

    def __init__(self, what: str, quiet: bool) -> None:
        self.what = what
        self.quiet = quiet
        self.live = sys.stderr.isatty()
        self._start = self._shown = time.monotonic()
        self._said = False

    def __enter__(self) -> Counter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._said and self.live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self.quiet or now - self._start < 2 or now - self._shown < 0.2 or (self._said and not self.live):
            return
        self._shown, self._said = now, True
        start, end = ("\r\x1b[K", "") if self.live else ("", "\n")
        print(f"{start}  {self.what}: {done} of {total} ...", end=end, file=sys.stderr, flush=True)
