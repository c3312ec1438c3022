"""Where in the user's program are we: the nearest stack frame that is neither a library's nor samerun's."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

from samerun.base import user_code
from samerun.base.user_code import is_library_file
from samerun.record.watching import sites

_HERE = user_code.SAMERUN_FOLDER
USER, LIBRARY, IMPORT = 1, 0, 2

_code_kinds: dict[int, int] = {}
_kept_code: list[CodeType] = []  # ids stay valid as long as the code lives


def treat_as_user(folder: str) -> None:
    """Count files under `folder` as the user's, even inside an installed package (`-m package`)."""
    user_code.treat_as_user(folder)
    _code_kinds.clear()


def code_kind(code: CodeType) -> int:
    """USER, LIBRARY or IMPORT (Python's import machinery) for a code object."""
    kind = _code_kinds.get(id(code))
    if kind is None:
        name = code.co_filename
        imports = "importlib" in name and not name.startswith(_HERE)
        kind = IMPORT if imports else LIBRARY if is_library_file(name) else USER
        _kept_code.append(code)
        _code_kinds[id(code)] = kind
    return kind


def called_by_user(through: tuple[str, ...] = ()) -> bool:
    """Is the function that asks this called by a line of the user's, but for the named standard modules?

    The frames of samerun itself do not count.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_HERE) and frame.f_globals.get("__name__", "").split(".")[0] not in through:
            return code_kind(frame.f_code) == USER
        frame = frame.f_back
    return False


def find_user_line(through_imports: bool = False) -> tuple[str, int, bool]:
    """File, line and directness of a host event.

    Direct means: no installed package stands between the user's line and the call, so that a clock read
    by a progress bar is not taken for the program's own. Python's own library in between is fine. Events
    under an import statement are nobody's: the line is then 0, or with `through_imports` that of the import.
    """
    frame: FrameType | None = sys._getframe(1)
    direct = True
    nameless = ""
    while frame is not None:
        code = frame.f_code
        kind = _code_kinds.get(id(code))
        if kind is None:
            kind = code_kind(code)
        if kind == USER:
            own = not nameless or nameless == frame.f_globals.get("__name__")
            return code.co_filename, frame.f_lineno, direct and own
        if kind == IMPORT:
            if not through_imports:
                return "", 0, False
            direct = False
        name = code.co_filename
        if name.startswith("<") and not name.startswith("<frozen"):
            # Code made by exec: the user's own (a dataclass's __init__) or another module's.
            nameless = str(frame.f_globals.get("__name__", "?"))
        if direct and ("site-packages" in name or "dist-packages" in name) and not name.startswith(_HERE):
            direct = False
        frame = frame.f_back
    return "", 0, False


RECORD_FOLDER = os.path.join(_HERE, "record", "")
_MAPPINGS = (os.__file__, os.path.join(os.path.dirname(os.__file__), "_collections_abc.py"), "<frozen os>",
             "<frozen _collections_abc>")  # fmt: skip


def called_by_samerun() -> bool:
    """Whether it is samerun that reads the environment here, for a program that called it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((RECORD_FOLDER, *_MAPPINGS)):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_HERE)


def called_by_torch() -> bool:
    """Whether torch itself puts back a random state that it took before: that seeds nothing.

    `fork_rng`, recomputed activations and compilation do.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__")).startswith("torch.")


def unseeded_owner_site() -> tuple[str, int, bool] | None:
    """The line that calls an object whose method makes a generator from a seed it was not given.

    An object that makes its generator in a method of its own (`seed`, `reset`), out of a parameter that
    was left None, offers to be seeded: what is missing is that call, and the line that is to be mended is
    the one that uses the object unseeded. None where the generator is made in the open or in `__init__`.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and sites.code_kind(frame.f_code) != sites.USER:
        frame = frame.f_back
    if frame is None or frame.f_code.co_name == "__init__" or not has_seed_left_none(frame):
        return None
    names = frame.f_code.co_varnames
    owner = frame.f_locals.get(names[0]) if names and names[0] == "self" else None
    if owner is None:
        return None
    while frame is not None and frame.f_code.co_varnames[:1] == ("self",) and frame.f_locals.get("self") is owner:
        frame = frame.f_back
    while frame is not None and sites.code_kind(frame.f_code) != sites.USER:
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno, True) if frame is not None else None


def has_seed_left_none(frame: FrameType) -> bool:
    """Has the function a parameter for a seed that was left None?"""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    return any(
        ("seed" in name or name in ("rng", "random_state", "generator")) and frame.f_locals.get(name, 0) is None
        for name in code.co_varnames[:count]
    )
