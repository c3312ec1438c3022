"""Is it the same whether a module is imported now, or was when the process started?

What an import may depend on is compared with what it was at the start. Whatever cannot be told counts as a change.
"""

from __future__ import annotations

import builtins
import os
import sys
import threading
from dataclasses import dataclass, fields

IRRELEVANT = ("PYTHONHASHSEED", "CUBLAS_WORKSPACE_CONFIG")
"""Variables that programs set and no import reads: for children, and for cuBLAS when it starts."""
OF_PRELOADED = ("/numpy/", "/numpy.libs/", "/torch/")
PACKAGES = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Surroundings:
    """What an import may depend on; each field is named in the reason when it has changed."""

    environment: dict[str, str]
    processors: object
    limits: object
    locale: object
    loading: object
    finders: object
    importing: object
    threads: int
    libraries: frozenset[str]


def surroundings() -> Surroundings:
    """As they are now. Linux."""
    import _locale
    import resource

    limits = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return Surroundings(
        environment={k: v for k, v in os.environ.items() if k not in IRRELEVANT and not k.startswith("SAMERUN_")},
        processors=os.sched_getaffinity(0),
        limits=[(name, resource.getrlimit(getattr(resource, name))) for name in limits],
        locale=_locale.setlocale(_locale.LC_ALL),
        loading=sys.getdlopenflags(),
        finders=([id(finder) for finder in sys.meta_path], [id(hook) for hook in sys.path_hooks]),
        importing=id(builtins.__import__),
        threads=threading.active_count(),
        libraries=libraries(),
    )


def libraries() -> frozenset[str]:
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
        if not any(part in path for part in OF_PRELOADED)
        and (not path.startswith(system) or any(part in path for part in PACKAGES))
    )  # fmt: skip


def change(before: Surroundings, now: Surroundings) -> str:
    """What has changed in between, in words; "" for nothing that matters."""
    for field in fields(Surroundings):
        if getattr(before, field.name) != getattr(now, field.name):
            return f"the program changed its {field.name} before it imported torch"
    return ""
