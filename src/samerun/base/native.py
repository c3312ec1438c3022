"""Find a library that setup.py built from C, beside the module that uses it."""

from __future__ import annotations

import ctypes
import importlib.machinery
from pathlib import Path


def built(module: str, name: str) -> ctypes.CDLL | None:
    """The library `name` that lies beside the file `module`; None: not built, or built for another machine."""
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = Path(module).with_name(name + suffix)
        if path.exists():
            try:
                return ctypes.CDLL(str(path))
            except OSError:
                return None
    return None
