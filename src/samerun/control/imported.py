"""Look at a library without importing it."""

from __future__ import annotations

import sys
from typing import Any


def find_imported_module(module_name: str, *required_attributes: str) -> Any | None:
    """Return the module if the program has imported it and it has every one of `required_attributes`; else None.

    A half-imported or a stubbed library lacks the attributes, and counts as absent.
    """
    module = sys.modules.get(module_name)
    return (
        module if module is not None and all(hasattr(module, attribute) for attribute in required_attributes) else None
    )


def get_imported_module(module_name: str) -> Any:
    """Return a module that the caller knows to be imported (its `available()` said so)."""
    return sys.modules[module_name]
