"""Progress on standard error: a live line on a terminal, a line per finished run elsewhere."""

from __future__ import annotations

import sys


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
