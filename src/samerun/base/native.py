"""Find a library that setup.py built from C, beside the module that uses it."""

from __future__ import annotations

import ctypes
import importlib.machinery
from pathlib import Path


def built_file(module: str, name: str) -> Path | None:
    """The library `name` that lies beside the file `module`; None: not built."""
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = Path(module).with_name(name + suffix)
        if path.exists():
            return path
    return None


def built(module: str, name: str, *, keep_lock: bool = False) -> ctypes.CDLL | None:
    """The same, loaded. None: not built, or built for another machine.

    keep_lock: its functions are called with the interpreter's lock held, which is right for short ones.
    """
    path = built_file(module, name)
    try:
        return (ctypes.PyDLL if keep_lock else ctypes.CDLL)(str(path)) if path is not None else None
    except OSError:
        return None
