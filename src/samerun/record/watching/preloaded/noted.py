"""In a run from nothing: write down in which order NumPy and torch were imported, and whether it mattered when."""

from __future__ import annotations

import json
import os
import sys
from importlib.machinery import ModuleSpec
from typing import Any

from samerun.record.config import ROLE_VARIABLE
from samerun.record.watching.preloaded import early

FILE = "imports.json"
ORDERED = ("numpy", "torch")
LAST = "torch"


class Noted:
    """A finder that finds nothing: it is asked first, and sees what is about to be imported."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, FILE)
        self.order: list[str] = []
        self.reason = ""
        self.before: early.Surroundings | None = None

    def install(self) -> None:
        """Only in the program's own process, and where none of the modules is loaded yet."""
        possible = sys.platform == "linux" and ROLE_VARIABLE not in os.environ
        if possible and not any(name in sys.modules for name in ORDERED):
            sys.meta_path.insert(0, self)
            self.before = early.surroundings()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in ORDERED or name in self.order or self.before is None:
            return None
        self.order.append(name)
        self.reason = self.reason or early.change(self.before, early.surroundings())
        if name == LAST:
            self.write()  # it stays where it is: who leaves now takes the next finder's turn away
        return None

    def write(self) -> None:
        try:
            with open(self.path, "x", encoding="utf-8") as file:
                json.dump({"order": self.order, "reason": self.reason}, file)
        except OSError:
            return  # nobody will know that it was possible: runs go on from nothing
