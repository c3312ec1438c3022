"""What the switches on inductor's settings share.

A setting may have no value of the user's own: then torch goes by its default. Both are kept: `saved` holds
the user's own value, or the mark that there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from samerun.control.seeds.loaded import loaded, present

MODULE = "torch._inductor.config"


def available(*names: str) -> Callable[[], bool]:
    def there() -> bool:
        return loaded(MODULE, *names) is not None

    return there


def read(*names: str) -> dict[str, Any]:
    config = present(MODULE)
    return {name: getattr(config, name) for name in names if hasattr(config, name)}


def write(values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(present(MODULE), name, value)


def save(*names: str) -> dict[str, tuple[str, Any]]:
    return {name: _own(name) for name in names if hasattr(present(MODULE), name)}


def restore(saved: dict[str, tuple[str, Any]]) -> None:
    for name, (how, value) in saved.items():
        if how == "override":
            _override(name).set(value)
        else:
            setattr(present(MODULE), name, value)


def _own(name: str) -> tuple[str, Any]:
    override = _override(name)
    return ("value", getattr(present(MODULE), name)) if override is None else ("override", override.get())


def _override(name: str) -> Any:
    """The context variable in which torch keeps the user's own value; None where torch has no such thing."""
    entries = getattr(present(MODULE), "_config", {})
    override = getattr(entries.get(name), "user_override", None)
    return override if hasattr(override, "get") and hasattr(override, "set") else None
