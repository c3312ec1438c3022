"""What to do where a run could not be recorded, by what went wrong."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_SPACE = tuple(os.strerror(getattr(errno, name)) for name in ("ENOSPC", "EDQUOT", "EFBIG") if hasattr(errno, name))
_DESCRIPTORS = (os.strerror(errno.EMFILE), os.strerror(errno.ENFILE))
_FILE = ("the trace could not be written", "the trace could not be made", "the disk may be full")


def is_about_the_disk(reason: str) -> bool:
    """Whether a file could not be made or written."""
    return any(said in reason for said in (*_SPACE, *_FILE))


def where_traces_are(reason: str, folder: Path) -> str:
    """ " in FOLDER" where the folder has to do with it."""
    return f" in {folder}" if is_about_the_disk(reason) else ""


def hint_for(reason: str) -> str:
    """The next step for why a trace could not be made, written or finished."""
    if any(said in reason for said in _DESCRIPTORS):
        return "Raise the limit of open files (ulimit -n)."
    if any(said in reason for said in _SPACE) or "the disk may be full" in reason:
        return "Free some space, or put the traces elsewhere with TMPDIR or --save."
    if is_about_the_disk(reason):
        return "Put the traces elsewhere with TMPDIR or --save."
    if "samerun could not" in reason or "samerun's recorder failed" in reason:
        return "This is a bug in samerun, not in the program. Please report it."
    return ""
