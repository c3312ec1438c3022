"""Would an import now do the same as at the start of the process? In which order were NumPy and torch imported?

What an import may depend on is compared with what it was at the start. What cannot be compared counts as a change.
"""

from __future__ import annotations

import builtins
import json
import os
import sys
import threading
from dataclasses import dataclass, fields
from importlib.machinery import ModuleSpec
from typing import Any

from samerun.record.config import ROLE_VARIABLE

IRRELEVANT_VARIABLES = ("PYTHONHASHSEED", "CUBLAS_WORKSPACE_CONFIG")
"""Variables that programs set and no import reads: for children, and for cuBLAS when it starts."""
PRELOADED_FOLDERS = ("/numpy/", "/numpy.libs/", "/torch/")
PACKAGE_FOLDERS = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class ImportConditions:
    """What an import may depend on; each field is named in the reason when it has changed."""

    environment: dict[str, str]
    processors: object
    limits: object
    locale: object
    loading: object
    finders: object
    importing: object
    threads: int
    foreign_libraries: frozenset[str]


def read_import_conditions() -> ImportConditions:
    """The conditions as they are now. Linux only."""
    import _locale
    import resource

    limits = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    environment = {
        name: value for name, value in os.environ.items()
        if name not in IRRELEVANT_VARIABLES and not name.startswith("SAMERUN_")
    }  # fmt: skip
    return ImportConditions(
        environment=environment,
        processors=os.sched_getaffinity(0),
        limits=[(name, resource.getrlimit(getattr(resource, name))) for name in limits],
        locale=_locale.setlocale(_locale.LC_ALL),
        loading=sys.getdlopenflags(),
        finders=([id(finder) for finder in sys.meta_path], [id(hook) for hook in sys.path_hooks]),
        importing=id(builtins.__import__),
        threads=threading.active_count(),
        foreign_libraries=find_foreign_libraries(),
    )


def find_foreign_libraries() -> frozenset[str]:
    """Native libraries in this process that are neither the system's, nor Python's, nor of NumPy or torch.

    The order in which libraries are loaded decides whose symbols they use.
    """
    system = ("/lib", "/usr/lib", "/usr/local/lib", os.path.join(os.path.realpath(sys.base_prefix), "lib"))
    found = set()
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            path = line.rstrip("\n").partition("/")[2]
            if ".so" in path:
                found.add("/" + path)
    return frozenset(
        path for path in found
        if not any(part in path for part in PRELOADED_FOLDERS)
        and (not path.startswith(system) or any(part in path for part in PACKAGE_FOLDERS))
    )  # fmt: skip


def describe_change(before: ImportConditions, now: ImportConditions) -> str:
    """Says in words which condition changed in between; "" if none did."""
    for field in fields(ImportConditions):
        if getattr(before, field.name) != getattr(now, field.name):
            return f"the program changed its {field.name} before it imported torch"
    return ""


ORDER_FILE = "imports.json"
ORDERED = ("numpy", "torch")
LAST = "torch"


class ImportOrderRecorder:
    """A finder that finds nothing: it is imported_name first, and so sees what is about to be imported."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, ORDER_FILE)
        self.order: list[str] = []
        self.reason = ""
        self.before: ImportConditions | None = None

    def install(self) -> None:
        """Only in the program's own process, and where none of the modules is loaded yet."""
        possible = sys.platform == "linux" and ROLE_VARIABLE not in os.environ
        if possible and not any(name in sys.modules for name in ORDERED):
            sys.meta_path.insert(0, self)
            self.before = read_import_conditions()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in ORDERED or name in self.order or self.before is None:
            return None
        self.order.append(name)
        self.reason = self.reason or describe_change(self.before, read_import_conditions())
        if name == LAST:
            # The finder stays in sys.meta_path: removing it during the search would skip the next one.
            self.write_order_file()
        return None

    def write_order_file(self) -> None:
        try:
            with open(self.path, "x", encoding="utf-8") as file:
                json.dump({"order": self.order, "reason": self.reason}, file)
        except OSError:
            return  # without this file the check starts every run as a fresh process
