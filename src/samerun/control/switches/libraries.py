"""Whether a library is installed or loaded, without importing it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable


def installed(name: str) -> Callable[[], bool]:
    def there() -> bool:
        if name in sys.modules:
            return sys.modules[name] is not None
        try:
            return importlib.util.find_spec(name) is not None
        except (ImportError, ValueError):
            return False

    return there


def is_loaded(name: str) -> Callable[[], bool]:
    return lambda: sys.modules.get(name) is not None
