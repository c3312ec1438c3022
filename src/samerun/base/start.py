"""The environment with which this process started, which `os.environ` may no longer be."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping

_at_import = dict(os.environ)


@functools.cache
def environment_at_start() -> Mapping[str, str]:
    """The variables the interpreter was started with: on Linux the kernel keeps them.

    Elsewhere, or where /proc cannot be read: those of the moment at which samerun was loaded.
    """
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return _at_import
    pairs = (os.fsdecode(entry).partition("=") for entry in entries if b"=" in entry)
    found: dict[str, str] = {}
    for name, _, value in pairs:
        found.setdefault(name, value)
    return found if found else _at_import
