"""Learn that a library was imported, without importing it, so that what comes late is seeded on arrival."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class Arrivals:
    """A finder that finds nothing itself: it asks those behind it and adds a call to what they found."""

    def __init__(self, modules: frozenset[str], arrived: Callable[[str], None]) -> None:
        """Call `arrived(name)` whenever one of `modules` has just been executed."""
        self._modules = modules
        self._arrived = arrived
        self._asking = threading.local()

    def install(self) -> None:
        """Stand first on `sys.meta_path`; once is enough."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        # A finder behind this one may do the same and ask this one in turn: then stand aside.
        if name not in self._modules or getattr(self._asking, "name", None) == name:
            return None
        before, self._asking.name = getattr(self._asking, "name", None), name
        try:
            return self._ask_the_others(name, path, target)
        finally:
            self._asking.name = before

    def _ask_the_others(self, name: str, path: Any, target: Any) -> ModuleSpec | None:
        finders: list[Any] = list(sys.meta_path)
        for finder in finders[finders.index(self) + 1 :]:
            spec: ModuleSpec | None = finder.find_spec(name, path, target)
            if spec is not None:
                self._extend(name, spec)
                return spec
        return None

    def _extend(self, name: str, spec: ModuleSpec) -> None:
        loader = spec.loader
        original = getattr(loader, "exec_module", None)
        if loader is None or original is None:
            return

        def exec_module(module: ModuleType) -> None:
            original(module)
            self._arrived(name)

        try:
            loader.exec_module = exec_module  # type: ignore[method-assign]
        except (AttributeError, TypeError):
            pass  # a built-in loader: none of these libraries has one
