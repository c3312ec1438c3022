"""Functions of ours that stand between the program and torch without being counted.

`warnings.warn(..., stacklevel=3)` counts frames: one more, and the warning names a file of ours instead of the user's
line. Python leaves out frames whose file name holds both "importlib" and "_bootstrap", those of its own imports.
"""

from __future__ import annotations

from typing import Any

MARK = " (as importlib._bootstrap)"


def unseen(function: Any) -> Any:
    """The function, no longer counted where a warning is issued below it; anything else as it is."""
    code = getattr(function, "__code__", None)
    if code is not None and not code.co_filename.endswith(MARK):
        function.__code__ = code.replace(co_filename=code.co_filename + MARK)
    return function
