"""Functions that preloaded modules hold under names of their own (`from time import monotonic`).

In a fresh process they are loaded after the interceptors were installed and hold what those put in place. In a fork
the interceptors come later: what was held before is replaced.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any

from samerun.record.watching.interceptors.table import INTERCEPTORS
from samerun.record.watching.preloaded.hidden_modules import HiddenModules

Source = tuple[str, str, frozenset[str]]
"""A module that is intercepted, a name in it, and the modules that were loaded before it was."""
CapturedFunction = tuple[Any, str | int, Any, list[Source]]
"""Who holds it, under which name or at which position, what, and where it may have come from."""


def find_captured_functions(preloaded: HiddenModules, modules_loaded_before: Iterable[str]) -> list[CapturedFunction]:
    """All places in modules loaded since `modules_loaded_before`, as they are before anything is intercepted."""
    finished = dict(preloaded.completed)
    sources: dict[int, list[Source]] = {}
    for owner in dict.fromkeys(interceptor.module for interceptor in INTERCEPTORS):
        module = sys.modules.get(owner)
        if module is None or owner.partition(".")[0] not in sys.stdlib_module_names:
            continue
        for name, value in vars(module).items():
            if callable(value) and not name.startswith("__"):
                sources.setdefault(id(value), []).append((owner, name, finished.get(owner, frozenset())))
    known = set(modules_loaded_before)
    found: list[CapturedFunction] = []

    def look(holder: Any, key: str | int, value: Any, module: str) -> None:
        possible = [source for source in sources.get(id(value), ()) if module not in source[2]]
        if possible and module not in known:
            found.append((holder, key, value, possible))

    for name, module in list(sys.modules.items()):
        if name in known or name.startswith("samerun") or not isinstance(module, ModuleType):
            continue
        for key, value in list(vars(module).items()):
            look(module, key, value, name)
            if isinstance(value, type) and getattr(value, "__module__", None) == name:
                for attribute, held in list(vars(value).items()):
                    look(value, attribute, held, name)
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__defaults__ and not str(each.__module__).startswith("samerun"):
            for position, value in enumerate(each.__defaults__):
                look(each, position, value, str(each.__module__))
    return found


def replace_captured_functions(captured: list[CapturedFunction]) -> None:
    """Put what interceptors have put in place of each."""
    for holder, key, value, sources in captured:
        put = (getattr(sys.modules[owner], name, value) for owner, name, _ in sources)
        now = next((each for each in put if each is not value), value)
        if now is value:
            continue
        if isinstance(key, int):
            defaults = list(holder.__defaults__)
            defaults[key] = now
            holder.__defaults__ = tuple(defaults)
        elif vars(holder).get(key) is value:
            setattr(holder, key, now)
