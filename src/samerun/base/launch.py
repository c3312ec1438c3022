"""Start processes: which program, never one that lies where the user works, and with which environment."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Mapping
from pathlib import Path


# --- Every program that samerun starts for itself is found here: git (which version of the code ran), locale and
# setarch (which surroundings can be varied), uname (the name of the processor). All else that it starts is this Python
# again, or what the user named.
def find_trusted_program(name: str, *untrusted_folders: Path) -> str | None:
    """The absolute path of a program on PATH, or None.

    Relative and empty entries of PATH mean the working directory, and a folder that somebody sent may hold a `git`
    of its own: such entries are passed over, and so are those inside the working directory and `untrusted_folders`.
    """
    try:
        folders = [os.path.realpath(each) for each in (Path.cwd(), *untrusted_folders)]
    except OSError:  # the working directory was deleted
        folders = [os.path.realpath(each) for each in untrusted_folders]
    folders = [each for each in folders if os.path.dirname(each) != each]  # everything lies inside of /
    for entry in os.get_exec_path():
        if not os.path.isabs(entry) or _is_inside_any(os.path.realpath(entry), folders):
            continue
        found = shutil.which(os.path.join(entry, name))
        if found is not None and not _is_inside_any(os.path.realpath(found), folders):
            return found
    return None


def _is_inside_any(path: str, folders: list[str]) -> bool:
    return any(path == each or path.startswith(each + os.sep) for each in folders)


# --- samerun is there before the first line of the program, in its children too
def bootstrap_folder() -> Path:
    """The folder whose `sitecustomize` starts samerun; it goes first on PYTHONPATH."""
    return Path(__file__).resolve().parent / "bootstrap"


def prepend_bootstrap_to_pythonpath(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the bootstrap folder first on PYTHONPATH, once."""
    here = str(bootstrap_folder())
    rest = [part for part in environment.get("PYTHONPATH", "").split(os.pathsep) if part and part != here]
    return {**environment, "PYTHONPATH": os.pathsep.join([here, *rest])}


# --- the environment with which this process started, which `os.environ` may no longer be
_at_import = dict(os.environ)


@functools.cache
def read_environ_at_process_start() -> Mapping[str, str]:
    """The variables the interpreter was started with: on Linux the kernel keeps them.

    Elsewhere, or where /proc cannot be read: those of the moment at which samerun was loaded.
    """
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return _at_import
    pairs = (os.fsdecode(entry).partition("=") for entry in entries if b"=" in entry)
    found: dict[str, str] = {}
    for name, _, value in pairs:
        found.setdefault(name, value)
    return found if found else _at_import
