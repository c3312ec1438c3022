"""The record that every file in `interceptors/` exposes, and how attributes are replaced."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from samerun.record.recorder import Recorder
from samerun.record.unseen import unseen


@dataclass(frozen=True)
class Interceptor:
    """One source of events.

    `module`: the module whose loading makes the source available; `install(recorder, module)` is called
    once, right after it was loaded (at once when it is loaded already). It is never imported for this.
    """

    name: str
    module: str
    install: Callable[[Recorder, Any], None]


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace `owner.name` by `make(original)`, keeping name and documentation. Absent: nothing.

    Warnings issued below it name the same line of the program as without it.
    """
    original = getattr(owner, name, None)
    if original is None:
        return
    replacement = unseen(make(original))
    try:
        functools.update_wrapper(replacement, original)
    except (AttributeError, TypeError):
        pass
    if hasattr(original, "__self__"):  # `random.random.__self__` is the global generator
        replacement.__self__ = original.__self__
    setattr(owner, name, replacement)
