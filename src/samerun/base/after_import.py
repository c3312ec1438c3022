"""Call something right after a module was loaded, without importing it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Call = Callable[[ModuleType], None]


class AfterImport:
    """A finder that finds nothing itself: it asks the finders behind it and adds to what they found."""

    def __init__(self) -> None:
        self._calls: dict[str, list[Call]] = {}
        self._asking = threading.local()

    def add(self, name: str, call: Call) -> None:
        """Call `call(module)` once `name` is loaded: now, if it is."""
        module = sys.modules.get(name)
        if module is not None and not _being_loaded(module):
            call(module)
        else:
            self._calls.setdefault(name, []).append(call)

    def install(self) -> None:
        """Stand first on `sys.meta_path`; once is enough."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def loaded(self, name: str) -> None:
        """`name` stands in `sys.modules` now and nobody was asked for it: call what waits for it."""
        for call in self._calls.pop(name, []):
            call(sys.modules[name])

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        # A finder behind this one may do the same and ask this one in turn: then stand aside.
        if name not in self._calls or getattr(self._asking, "name", None) == name:
            return None
        before, self._asking.name = getattr(self._asking, "name", None), name
        try:
            return self._ask_those_behind(name, path, target)
        finally:
            self._asking.name = before

    def _ask_those_behind(self, name: str, path: Any, target: Any) -> ModuleSpec | None:
        finders: list[Any] = list(sys.meta_path)
        for finder in finders[finders.index(self) + 1 :]:
            if not hasattr(finder, "find_spec"):
                continue
            spec: ModuleSpec | None = finder.find_spec(name, path, target)
            if spec is not None:
                self._extend(name, spec)
                return spec
        return None

    def _extend(self, name: str, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        original = getattr(loader, "exec_module", None)
        if loader is None or original is None:
            return

        def exec_module(module: ModuleType) -> None:
            try:
                del loader.exec_module
            except AttributeError:
                pass
            original(module)
            for call in self._calls.pop(name, []):
                call(sys.modules.get(name, module))  # a module may put another in its place

        try:
            loader.exec_module = exec_module
        except (AttributeError, TypeError):
            pass  # a built-in loader: its modules are loaded before us anyway


def _being_loaded(module: ModuleType) -> bool:
    spec = getattr(module, "__spec__", None)
    return bool(getattr(spec, "_initializing", False))
