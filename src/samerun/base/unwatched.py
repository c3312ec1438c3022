"""What samerun does inside a watched program for itself is no part of what the program did.

The lower rooms know no recorder: whoever watches the process says here how its own work is hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

_hide: Callable[[], AbstractContextManager[None]] = nullcontext


def hide_by(hide: Callable[[], AbstractContextManager[None]]) -> None:
    """Have `unwatched` enter what `hide` returns."""
    global _hide
    _hide = hide


def unwatched() -> AbstractContextManager[None]:
    """A block whose questions about files, times and names are not recorded; nothing where nobody watches."""
    return _hide()
