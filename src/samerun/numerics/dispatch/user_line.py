"""Which line of the user's program is running."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

_OURS = str(Path(__file__).resolve().parents[2]) + os.sep


def user_line() -> str:
    """ "file:line" of the innermost frame that is neither torch's nor samerun's; the file relative if it can be."""
    torch = sys.modules.get("torch")
    skipped = [_OURS, "<"]
    if torch is not None:
        skipped.append(str(Path(str(torch.__file__)).parent) + os.sep)
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(tuple(skipped)) and os.sep + "contextlib.py" not in name:
            return f"{_shortened(name)}:{frame.f_lineno}"
        frame = frame.f_back
    return "no line of Python"


def _shortened(name: str) -> str:
    try:
        relative = os.path.relpath(name)
    except ValueError:  # another drive
        return name
    return name if relative.startswith("..") else relative
