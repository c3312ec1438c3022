"""Hooks: after a module was loaded, last at exit, and around what samerun does for itself in a watched program."""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# --- after a module was loaded, without importing it
ModuleCallback = Callable[[ModuleType], None]


class PostImportHooks:
    """A finder that finds nothing itself: it asks the finders behind it and adds to what they found."""

    def __init__(self) -> None:
        self._calls: dict[str, list[ModuleCallback]] = {}
        self._asking = threading.local()

    def call_now_or_after_import(self, module_name: str, callback: ModuleCallback) -> None:
        """Call `callback(module)` once the module is loaded: now, if it is."""
        module = sys.modules.get(module_name)
        if module is not None and not _is_being_imported(module):
            callback(module)
        else:
            self._calls.setdefault(module_name, []).append(callback)

    def install(self) -> None:
        """Stand first on `sys.meta_path`; once is enough."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def pop_and_run_callbacks(self, module_name: str) -> None:
        """`module_name` stands in `sys.modules` now and nobody was asked for it: call what waits for it."""
        for call in self._calls.pop(module_name, []):
            call(sys.modules[module_name])

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        # A finder behind this one may do the same and ask this one in turn: then stand aside.
        if name not in self._calls or getattr(self._asking, "name", None) == name:
            return None
        before, self._asking.name = getattr(self._asking, "name", None), name
        try:
            return self._find_spec_and_patch_loader(name, path, target)
        finally:
            self._asking.name = before

    def _find_spec_and_patch_loader(self, module_name: str, path: Any, target: Any) -> ModuleSpec | None:
        finders: list[Any] = list(sys.meta_path)
        for finder in finders[finders.index(self) + 1 :]:
            if not hasattr(finder, "find_spec"):
                continue
            spec: ModuleSpec | None = finder.find_spec(module_name, path, target)
            if spec is not None:
                self._patch_loader_to_run_callbacks(module_name, spec)
                return spec
        return None

    def _patch_loader_to_run_callbacks(self, module_name: str, spec: ModuleSpec) -> None:
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
            for call in self._calls.pop(module_name, []):
                call(sys.modules.get(module_name, module))  # a module may put another in its place

        try:
            loader.exec_module = exec_module
        except (AttributeError, TypeError):
            pass  # a built-in loader: its modules are loaded before us anyway


def _is_being_imported(module: ModuleType) -> bool:
    spec = getattr(module, "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


# --- functions that are called last when the process ends, because they were registered first
_reserved_callbacks: list[Callable[[], object]] | None = None


def reserve_last_atexit_slot() -> None:
    """Take the place now for what is registered later: behind all that other modules register from now on."""
    global _reserved_callbacks
    if _reserved_callbacks is None:
        _reserved_callbacks = []
        atexit.register(_run_reserved_callbacks)


def register_in_reserved_atexit_slot(callback: Callable[[], object]) -> None:
    """As `atexit.register`, in the reserved place where there is one."""
    if _reserved_callbacks is None:
        atexit.register(callback)
    else:
        _reserved_callbacks.append(callback)


def _run_reserved_callbacks() -> None:
    for call in reversed(_reserved_callbacks or []):
        call()


# --- what samerun does inside a watched program for itself is no part of what the program did. The lower rooms know no
# recorder: whoever watches the process says here how its own work is hidden.
_hide: Callable[[], AbstractContextManager[None]] = nullcontext


def set_recorder_hiding_context(make_context: Callable[[], AbstractContextManager[None]]) -> None:
    """Have `hide_from_recorder` enter what `make_context` returns."""
    global _hide
    _hide = make_context


def hide_from_recorder() -> AbstractContextManager[None]:
    """A block whose questions about files, times and names are not recorded; nothing where nobody watches."""
    return _hide()
