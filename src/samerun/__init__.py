"""samerun: run a PyTorch program again and get the same bits, or learn where, why and what to change.

The names below are loaded when they are first used; `import samerun` imports neither torch nor NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from samerun.base.errors import NotPortableError, NotPortableWarning, SamerunError, SeedError
    from samerun.control.state import (
        get_rng_state,
        isolate_rng,
        register_rng,
        seed_everything,
        set_rng_state,
        unregister_rng,
    )
    from samerun.numerics.portable import portable

_WHERE = {
    "NotPortableError": "samerun.base.errors",
    "NotPortableWarning": "samerun.base.errors",
    "SamerunError": "samerun.base.errors",
    "SeedError": "samerun.base.errors",
    "get_rng_state": "samerun.control.state",
    "isolate_rng": "samerun.control.state",
    "portable": "samerun.numerics.portable",
    "register_rng": "samerun.control.state",
    "seed_everything": "samerun.control.state",
    "set_rng_state": "samerun.control.state",
    "unregister_rng": "samerun.control.state",
}

__all__ = [
    "NotPortableError",
    "NotPortableWarning",
    "SamerunError",
    "SeedError",
    "__version__",
    "get_rng_state",
    "isolate_rng",
    "portable",
    "register_rng",
    "seed_everything",
    "set_rng_state",
    "unregister_rng",
]


def __getattr__(name: str) -> Any:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module 'samerun' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
