"""Look at a library without importing it."""

from __future__ import annotations

import sys
from typing import Any


def loaded(name: str, *needs: str) -> Any | None:
    """Module `name` if the program has imported it and it has every attribute in `needs`; else None.

    A half-imported or a stubbed library lacks the attributes, and counts as absent.
    """
    module = sys.modules.get(name)
    return module if module is not None and all(hasattr(module, need) for need in needs) else None


def present(name: str) -> Any:
    """Module `name`, which `available()` has found already."""
    return sys.modules[name]
