"""Where reports for people go."""

from __future__ import annotations

from rich import console


class Console(console.Console):
    """Standard output, without guesses at what in a text could be coloured."""

    def __init__(self) -> None:
        super().__init__(highlight=False)

    def on_broken_pipe(self) -> None:
        """rich would end with exit code 1, which says "different"; the command line knows what trouble is."""
        raise BrokenPipeError
