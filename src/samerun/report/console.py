"""The console that reports and progress are printed to."""

from __future__ import annotations

from collections.abc import Iterable

from rich import console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from samerun.base.text import make_printable


class Console(console.Console):
    """Standard output or standard error, without rich's automatic highlighting."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(highlight=False, stderr=stderr)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escape control characters: every text of a report passes here, names from the user's program included."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else make_printable(segment.text)
            yield segment if text == segment.text else Segment(text, segment.style)

    def on_broken_pipe(self) -> None:
        """rich would end with exit code 1, which says "different"; the command line knows what trouble is."""
        raise BrokenPipeError

    def show_cursor(self, show: bool = True) -> bool:
        """Leaves the cursor alone: what is killed while it is hidden leaves a terminal without one."""
        return False
