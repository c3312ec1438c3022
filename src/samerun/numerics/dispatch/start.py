"""Put `portable()` in force before the program's first line. Called by the bootstrap `sitecustomize`."""

from __future__ import annotations

import os
import sys
from types import ModuleType

from samerun.base.errors import SamerunError
from samerun.base.hooks import PostImportHooks

VARIABLE = "SAMERUN_PORTABLE"
"""Set: every Python process of the program is inside `portable()` from the end of its import of torch on."""

_after_import = PostImportHooks()


def start() -> None:
    _after_import.add("torch", _enter_portable)
    _after_import.install()


def _enter_portable(torch: ModuleType) -> None:
    from samerun.numerics.dispatch.portable import portable

    try:
        portable().__enter__()
    except SamerunError as error:
        sys.stderr.write(f"samerun: {error}\n")
        sys.stderr.flush()
        os._exit(2)
