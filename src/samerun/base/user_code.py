"""Which files are the user's own, and which belong to Python, to installed packages or to samerun."""

from __future__ import annotations

import os
import sysconfig

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def _library_folders() -> tuple[str, ...]:
    # What pip puts beside the interpreter starts programs (torchrun, accelerate) and is none.
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")}
    paths.add(os.path.dirname(os.__file__))
    # A virtual environment's standard library stands in the base interpreter's folder.
    return tuple(sorted({os.path.join(os.path.realpath(p), "") for p in paths if p}
                        | {os.path.join(p, "") for p in paths if p}))  # fmt: skip


_LIBRARIES = _library_folders()
_user_folders: list[str] = []


def is_library_file(name: str) -> bool:
    """True for files of Python, of installed packages, of samerun, and for code with no file."""
    if name.startswith(("<", _HERE)) or "torchinductor_" in name:  # what torch.compile generates
        return True
    user = max((len(folder) for folder in _user_folders if name.startswith(folder)), default=0)
    library = max((len(folder) for folder in _LIBRARIES if name.startswith(folder)), default=0)
    if library > user:  # a virtual environment inside the user's folder
        return True
    rest = name[user:]
    return (library > 0 and not user) or "site-packages" in rest or "dist-packages" in rest


def treat_as_user(folder: str) -> None:
    """Count files under `folder` as the user's, even inside an installed package (`-m package`)."""
    _user_folders.append(os.path.join(folder, ""))


def is_user_code(file: str, module: str) -> bool:
    """Whether code of this file and module name is the program's own.

    Code without a file (`python -c`, the interactive prompt, a notebook) is, when it runs as the main module.
    """
    return module == "__main__" if file.startswith("<") else not is_library_file(file)


def relative_path(path: str) -> str:
    """Relative to the working directory; as it is where there is none any more, or it is on another drive."""
    try:
        return os.path.relpath(path)
    except (OSError, ValueError):
        return path


def place(file: str, line: int) -> str:
    """`file:line`, relative to the working directory where the file lies in it."""
    relative = relative_path(file)
    shown = file if file.startswith("<") or relative.startswith(os.pardir) else relative
    return f"{shown}:{line}"
