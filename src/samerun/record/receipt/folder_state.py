"""What stands in a folder of receipts, and in which state: the one thing that is done for every file each time.

The time of the folder itself does not tell: a file that is written to in place leaves it as it is. So every file
is looked at. Its state is one text, for what is done with 100,000 of them is done to all at once (sets, one query).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from samerun.base.errors import SamerunError

SETTLED_NS = 2_000_000_000
"""A file that was changed so shortly before it was looked at may change again in the same tick of its clock: the
coarsest there are have ticks of two seconds."""
TOLD_EACH = 5_000

Progress = Callable[[int, int], None]
"""Called with how many are done, and how many there are."""


def read(folder: Path, progress: Progress | None = None) -> set[str]:
    """The states of the files of a folder that may be receipts. Raises SamerunError if it cannot be read."""
    found = set()
    try:
        with os.scandir(folder) as items:
            some = [item for item in items if item.name.endswith(".json") and item.name[0] != "." and item.is_file()]
        for number, item in enumerate(some, 1):
            try:
                info = item.stat()
            except FileNotFoundError:  # gone in the meantime
                continue
            # The name cannot hold a "/". The time of change (ctime) is set by the system alone, so that a file put
            # in the place of another with the same size and time of writing is noticed.
            found.add(f"{item.name}/{info.st_mtime_ns}/{info.st_size}/{info.st_ctime_ns}")
            if progress is not None and number % TOLD_EACH == 0:
                progress(number, len(some))
    except OSError as error:
        raise SamerunError(f"{folder} cannot be read: {error.strerror}.", hint="Name a folder of receipts.") from error
    return found


def parts(state: str) -> tuple[str, int, int, int]:
    """Name, time of writing (ns), size (bytes), time of change (ns)."""
    name, written, size, changed = state.split("/")
    return name, int(written), int(size), int(changed)


def is_settled(state: str, looked: int) -> bool:
    """Whether a change after `looked` (ns since 1970) is sure to give another state."""
    _, written, _, changed = parts(state)
    # elsewhere that time is the one of creation
    return looked - (changed if os.name == "posix" else written) > SETTLED_NS
