"""Modules that are imported before the program starts, hidden, and handed to it when it imports them.

The program sees in `sys.modules` what it would see without: installed packages appear when they are imported. Some of
Python's own modules are there a little early.

An import may depend on conditions, which are compared with those at the start. What cannot be compared counts as a
change.
"""

from __future__ import annotations

import builtins
import gc
import json
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, cast

from samerun.base.hooks import PostImportHooks
from samerun.record.config import ROLE_VARIABLE
from samerun.record.watching.interceptors.table import INTERCEPTORS

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


def describe_first_changed_condition(before: ImportConditions, now: ImportConditions) -> str:
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
        self.reason = self.reason or describe_first_changed_condition(self.before, read_import_conditions())
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


Refuse = Callable[[str], Any]
"""Called with the reason why a module cannot be handed over; it does not return."""


@dataclass
class ImportStage:
    """What the import of one module loaded."""

    lead: str
    modules: dict[str, ModuleType]
    """Of installed packages."""
    filters: list[Any]
    """What the import has put in front of `warnings.filters`."""


class HiddenModules:
    """The preloaded modules, in the order in which they were imported."""

    def __init__(self) -> None:
        self.stages: list[ImportStage] = []
        self.completed: list[tuple[str, frozenset[str]]] = []
        """Modules that interceptors wait for as they were loaded, each with the modules loaded before it."""
        self.origins: dict[str, str | None] = {}
        """Where the outermost packages and modules were found."""
        self.reason = ""
        """Why a process that has imported these cannot stand for a fresh one; "" where it can."""

    def import_modules(self, names: Iterable[str]) -> None:
        """Import them, and check that the imports left nothing behind that a fresh process would not have."""
        log = PostImportHooks()
        for interceptor in INTERCEPTORS:
            if interceptor.module not in sys.modules:
                log.call_now_or_after_import(interceptor.module, self._note_completed_import)
        log.install()
        before, signals, finders = set(sys.modules), _read_signal_dispositions(), list(sys.meta_path)
        warned: list[str] = []
        for name in names:
            self.stages.append(_import_and_collect_warnings(name, warned))
        if sys.meta_path != finders or _read_signal_dispositions() != signals:
            self.reason = "an import installs finders or signal handlers"
        sys.meta_path.remove(log)
        for name in set(sys.modules) - before:
            top = name.partition(".")[0]
            spec = getattr(sys.modules.get(top), "__spec__", None)
            if spec is not None and top not in self.origins and not top.startswith("samerun"):
                self.origins[top] = spec.origin
        if warned:
            self.reason = f"an import warns: {warned[0]}"
        self.reason = self.reason or _describe_side_effect_of_imports()

    def _note_completed_import(self, module: ModuleType) -> None:
        done = (n for n, m in list(sys.modules.items()) if not getattr(getattr(m, "__spec__", 0), "_initializing", 0))
        self.completed.append((module.__name__, frozenset(done)))

    def hide_from_sys_modules(self) -> None:
        for stage in self.stages:
            for name in stage.modules:
                del sys.modules[name]
            for filter_ in stage.filters:
                warnings.filters.remove(filter_)  # type: ignore[attr-defined]
        warnings._filters_mutated()  # type: ignore[attr-defined]


def _import_and_collect_warnings(name: str, warned: list[str]) -> ImportStage:
    """Import a module; add what it warns of to `warned`, whatever the filters say."""
    modules, filters = set(sys.modules), list(warnings.filters)
    always = ("always", None, Warning, None, 0)
    shown = warnings._showwarnmsg_impl  # type: ignore[attr-defined]
    warnings.filters.insert(0, always)  # type: ignore[attr-defined]
    warnings._showwarnmsg_impl = lambda message: warned.append(str(message.message))  # type: ignore[attr-defined]
    try:
        __import__(name)
    finally:
        warnings._showwarnmsg_impl = shown  # type: ignore[attr-defined]
        warnings.filters.remove(always)  # type: ignore[attr-defined]
        warnings._filters_mutated()  # type: ignore[attr-defined]
    new = [n for n in sys.modules if n not in modules]
    packages = {n: sys.modules[n] for n in new if n.partition(".")[0] not in sys.stdlib_module_names}
    added = [item for item in warnings.filters if item not in filters]
    return ImportStage(name, {n: m for n, m in packages.items() if not n.startswith("samerun")}, added)


def _read_signal_dispositions() -> list[int]:
    """Which signals are blocked, ignored and caught. Two of glibc's own are caught from the first thread on."""
    own = 1 << 31 | 1 << 32
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        return [int(line.split()[1], 16) & ~own for line in file if line.startswith(("SigBlk", "SigIgn", "SigCgt"))]


def _describe_side_effect_of_imports() -> str:
    """Returns which threads or generators the imports left behind, that forks would share with each other; or ""."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    if len(os.listdir("/proc/self/task")) > 1:  # threads that end for a fork have ended now
        return "an import starts threads"
    if "numpy.random" in sys.modules:
        return "an import makes NumPy's global generator"
    random = sys.modules.get("random")
    if random is None:
        return ""
    known = random._inst  # Python itself seeds it again after every fork
    for each in gc.get_objects():
        kind = type(each)
        if issubclass(kind, random.Random) and each is not known and kind is not random.SystemRandom:
            return "an import makes a random generator"
    return ""


class PreloadedFinder:
    """The import finder that hands the program its modules when it imports them."""

    def __init__(self, preloaded: HiddenModules, refuse: Refuse) -> None:
        self.preloaded = preloaded
        self.refuse = refuse
        self.hidden = {name: stage for stage in preloaded.stages for name in stage.modules}
        self.order = [name for name, _ in preloaded.completed]
        self.before: ImportConditions | None = None

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        stage = self.hidden.get(name)
        if stage is None:
            return None
        if name.partition(".")[0] in ORDERED:
            leads = [each.lead for each in self.preloaded.stages]
            if name != stage.lead or any(lead in self.hidden for lead in leads[: leads.index(name)]):
                self.refuse("NumPy and torch are imported in another order")
            self._refuse_if_changed()
            given = stage
        else:  # a small package that torch needs too, imported for itself
            own = {n: m for n, m in stage.modules.items() if n == name or n.startswith(name + ".")}
            given = ImportStage(name, own, [])
        return ModuleSpec(name, cast(Any, _HandOverLoader(self, given)))

    def _refuse_if_changed(self) -> None:
        """Refuse if the import would now find another module, or do something else."""
        assert self.before is not None
        reason = describe_first_changed_condition(self.before, read_import_conditions())
        for top, origin in self.preloaded.origins.items():
            if reason:
                break
            there = sys.modules.get(top)
            spec = PathFinder.find_spec(top) if origin not in ("built-in", "frozen") else None
            if spec is not None and spec.origin != origin:
                reason = f"another {top} would be imported"
            elif there is not None and getattr(getattr(there, "__spec__", None), "origin", None) != origin:
                reason = f"the program put something in the place of {top}"
        if reason:
            self.refuse(reason)

    def hand_over(self, stage: ImportStage, imported_name: str) -> None:
        for name, module in stage.modules.items():
            sys.modules[name] = module
            self.hidden.pop(name, None)
        warnings.filters[:0] = stage.filters  # type: ignore[index]
        warnings._filters_mutated()  # type: ignore[attr-defined]
        if stage.lead == "torch" and "torch" in stage.modules:
            stage.modules["torch"]._C.default_generator.seed()  # torch draws its seed when it is imported
        watching = [finder for finder in sys.meta_path if isinstance(finder, PostImportHooks)]
        for name in self.order:
            if name in stage.modules and name != imported_name:
                for finder in reversed(watching):
                    finder.pop_and_run_callbacks(name)
        if not self.hidden:
            sys.meta_path.remove(self)


class _HandOverLoader:
    def __init__(self, finder: PreloadedFinder, stage: ImportStage) -> None:
        self.finder, self.stage = finder, stage

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        self.finder.hand_over(self.stage, module.__name__)
