"""Sample order, keyed randomness, a loader that resumes exactly. Public as `samerun.data`.

The names below are loaded when they are first used; `import samerun.data` imports neither torch nor NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from samerun.base.errors import DataError, OwnGeneratorWarning
    from samerun.data.loader import DataLoader, replay
    from samerun.data.order import GroupedByLength, Order, Sequential, Shuffle, Weighted

_WHERE = {
    "DataError": "samerun.base.errors",
    "DataLoader": "samerun.data.loader",
    "GroupedByLength": "samerun.data.order",
    "Order": "samerun.data.order",
    "OwnGeneratorWarning": "samerun.base.errors",
    "Sequential": "samerun.data.order",
    "Shuffle": "samerun.data.order",
    "Weighted": "samerun.data.order",
    "replay": "samerun.data.loader",
}

__all__ = [
    "DataError",
    "DataLoader",
    "GroupedByLength",
    "Order",
    "OwnGeneratorWarning",
    "Sequential",
    "Shuffle",
    "Weighted",
    "replay",
]


def __getattr__(name: str) -> Any:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module 'samerun.data' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
