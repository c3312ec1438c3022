"""Where reports and progress for people go."""

from __future__ import annotations

from rich import console


class Console(console.Console):
    """Standard output, or standard error, without guesses at what in a text could be coloured."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(highlight=False, stderr=stderr)

    def on_broken_pipe(self) -> None:
        """rich would end with exit code 1, which says "different"; the command line knows what trouble is."""
        raise BrokenPipeError

    def show_cursor(self, show: bool = True) -> bool:
        """Leaves the cursor alone: what is killed while it is hidden leaves a terminal without one."""
        return False
