"""Find a program of the system without ever taking one that lies where the user works.

Every program that samerun starts for itself is found here: git (which version of the code ran), locale and setarch
(which surroundings can be varied), uname (the processor's name). All else that it starts is this Python again, or what
the user named.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def find_program(name: str, *untrusted: Path) -> str | None:
    """The absolute path of a program on PATH, or None.

    Relative and empty entries of PATH mean the working directory, and a folder that somebody sent may hold a `git`
    of its own: such entries are passed over, and so are those inside the working directory and `untrusted`.
    """
    try:
        folders = [os.path.realpath(each) for each in (Path.cwd(), *untrusted)]
    except OSError:  # the working directory was deleted
        folders = [os.path.realpath(each) for each in untrusted]
    folders = [each for each in folders if os.path.dirname(each) != each]  # everything lies inside of /
    for entry in os.get_exec_path():
        if not os.path.isabs(entry) or _is_inside(os.path.realpath(entry), folders):
            continue
        found = shutil.which(os.path.join(entry, name))
        if found is not None and not _is_inside(os.path.realpath(found), folders):
            return found
    return None


def _is_inside(path: str, folders: list[str]) -> bool:
    return any(path == each or path.startswith(each + os.sep) for each in folders)
