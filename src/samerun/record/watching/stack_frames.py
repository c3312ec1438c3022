"""Stack frames: find the user's line that is running, and keep the recorder's own frames out of what a program shows.

The user's line is that of the nearest frame that is neither a library's nor samerun's.

`warnings.warn(..., stacklevel=3)` counts frames: one more, and the warning names a file of samerun's instead of the
user's line. Python skips frames whose file name holds both "importlib" and "_bootstrap", those of its own imports, so
wrappers get such a file name. Tracebacks of a program that fails are shown without the recorder's frames.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple

from samerun.base import user_code
from samerun.base.user_code import is_library_or_generated_file

_HERE = user_code.SAMERUN_FOLDER
USER, LIBRARY, IMPORT = 1, 0, 2

CodeKind = int
"""USER, LIBRARY or IMPORT."""


class UserLine(NamedTuple):
    """A line of the user's code; `is_direct`: it made the call itself, with no installed package in between.

    ("", 0, False) if there is none.
    """

    file: str
    line: int
    is_direct: bool


class OperatorSite(NamedTuple):
    """Where an operator is called: the phase, the user's line, those that called that one, the nearest first."""

    phase: int
    location_id: int
    callers: tuple[tuple[str, int], ...]
    is_recomputed: bool
    differentiated_at: tuple[tuple[str, int], ...] = ()
    """Of a backward pass: the user's line that asked for it."""


_code_kinds: dict[int, int] = {}
_kept_code: list[CodeType] = []  # keeps the ids in `_code_kinds` from being reused


def treat_folder_as_user_code(folder: str) -> None:
    """Count files under `folder` as the user's, even inside an installed package (`-m package`)."""
    user_code.add_user_folder(folder)
    _code_kinds.clear()


def classify_code(code: CodeType) -> CodeKind:
    """USER, LIBRARY or IMPORT (Python's import machinery) for a code object."""
    kind = _code_kinds.get(id(code))
    if kind is None:
        name = code.co_filename
        imports = "importlib" in name and not name.startswith(_HERE)
        kind = IMPORT if imports else LIBRARY if is_library_or_generated_file(name) else USER
        _kept_code.append(code)
        _code_kinds[id(code)] = kind
    return kind


def is_called_by_user(through_modules: tuple[str, ...] = ()) -> bool:
    """True if user code called the function that asks, directly or through the named standard modules.

    Frames of samerun itself do not count.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_HERE) and frame.f_globals.get("__name__", "").split(".")[0] not in through_modules:
            return classify_code(frame.f_code) == USER
        frame = frame.f_back
    return False


def find_user_names() -> tuple[str, ...]:
    """The names of attributes and globals in the nearest function of user code on the stack; none without one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if classify_code(frame.f_code) == USER:
            return frame.f_code.co_names
        frame = frame.f_back
    return ()


def find_user_line(through_imports: bool = False) -> UserLine:
    """(file, line, direct) of the nearest user code on the stack.

    `direct`: no installed package lies between that line and the call, so that a clock read by a progress bar is not
    taken for the program's own. Python's standard library may lie between. Events during an import belong to nobody:
    the line is then 0, or with `through_imports` that of the import statement.
    """
    frame: FrameType | None = sys._getframe(1)
    direct = True
    nameless = ""
    while frame is not None:
        code = frame.f_code
        kind = _code_kinds.get(id(code))
        if kind is None:
            kind = classify_code(code)
        if kind == USER:
            own = not nameless or nameless == frame.f_globals.get("__name__") or is_module_of_user(nameless)
            return UserLine(code.co_filename, frame.f_lineno, direct and own)
        if kind == IMPORT:
            if not through_imports:
                return UserLine("", 0, False)
            direct = False
        name = code.co_filename
        if name.startswith("<") and not name.startswith("<frozen"):
            # Code made by exec belongs to the module it runs in: the user's (a dataclass's __init__) or a library's.
            nameless = str(frame.f_globals.get("__name__", "?"))
        if direct and ("site-packages" in name or "dist-packages" in name) and not name.startswith(_HERE):
            direct = False
        frame = frame.f_back
    return UserLine("", 0, False)


_modules_of_user: dict[str, bool] = {}


def is_module_of_user(name: str) -> bool:
    """Whether a module that is loaded is the user's."""
    known = _modules_of_user.get(name)
    if known is None:
        file = getattr(sys.modules.get(name), "__file__", None)
        known = _modules_of_user[name] = bool(file) and not is_library_or_generated_file(str(file))
    return known


def list_user_lines(up_to_modules: tuple[str, ...] = ()) -> tuple[tuple[str, int], ...]:
    """File and line of all user code on the stack, the nearest first, up to these modules or to an import."""
    lines = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") not in up_to_modules:
        kind = classify_code(frame.f_code)
        if kind == USER:
            lines.append((frame.f_code.co_filename, frame.f_lineno))
        elif kind == IMPORT:
            break
        frame = frame.f_back
    return tuple(lines)


def find_user_line_that_passes(names: set[str]) -> UserLine:
    """The nearest user line outside of functions that are given values by these names: the call that gives them.

    A function that makes a scheduler of what it is given (`warmup_steps`) is as right as what it is given.
    """

    def is_given_none_of_them(frame: FrameType) -> bool:
        code = frame.f_code
        return names.isdisjoint(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])

    return _find_nearest_user_line(is_given_none_of_them)


def is_called_from_module(*prefixes: str) -> bool:
    """Whether the nearest frame that is not samerun's runs in a module whose name begins so."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__")).startswith(prefixes)


def find_user_line_outside_methods_of(owner: Any) -> UserLine:
    """The nearest user line that is not in a method of this object: the one that makes it."""

    def is_no_method_of_owner(frame: FrameType) -> bool:
        return frame.f_code.co_varnames[:1] != ("self",) or frame.f_locals.get("self") is not owner

    return _find_nearest_user_line(is_no_method_of_owner)


def _find_nearest_user_line(is_accepted: Callable[[FrameType], bool]) -> UserLine:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if classify_code(frame.f_code) == USER and is_accepted(frame):
            return UserLine(frame.f_code.co_filename, frame.f_lineno, True)
        frame = frame.f_back
    return UserLine("", 0, False)


RECORD_FOLDER = os.path.join(_HERE, "record", "")
_MAPPINGS = (os.__file__, os.path.join(os.path.dirname(os.__file__), "_collections_abc.py"), "<frozen os>",
             "<frozen _collections_abc>")  # fmt: skip


def is_environment_read_by_samerun() -> bool:
    """True if samerun itself reads the environment here, on behalf of the program."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((RECORD_FOLDER, *_MAPPINGS)):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_HERE)


def is_called_by_torch() -> bool:
    """True if torch itself restores a random state that it saved before, which seeds nothing.

    `fork_rng`, recomputed activations and compilation do that.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__")).startswith("torch.")


def find_line_using_unseeded_object() -> UserLine | None:
    """The line that uses an object whose method makes a generator without having been given a seed.

    An object that makes its generator in a method (`seed`, `reset`), from a parameter that was left None, can be
    seeded by its user. What is missing is that call, so the line to fix is the one that uses the object unseeded.
    None if the generator is made outside of an object or in `__init__`.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and classify_code(frame.f_code) != USER:
        frame = frame.f_back
    if frame is None or frame.f_code.co_name == "__init__" or not has_seed_parameter_left_none(frame):
        return None
    names = frame.f_code.co_varnames
    owner = frame.f_locals.get(names[0]) if names and names[0] == "self" else None
    if owner is None:
        return None
    while frame is not None and frame.f_code.co_varnames[:1] == ("self",) and frame.f_locals.get("self") is owner:
        frame = frame.f_back
    while frame is not None and classify_code(frame.f_code) != USER:
        frame = frame.f_back
    return UserLine(frame.f_code.co_filename, frame.f_lineno, True) if frame is not None else None


def has_seed_parameter_left_none(frame: FrameType) -> bool:
    """True if the function has a parameter for a seed that was left None."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    return any(
        ("seed" in name or name in ("rng", "random_state", "generator")) and frame.f_locals.get(name, 0) is None
        for name in code.co_varnames[:count]
    )


HIDDEN_SUFFIX = " (as importlib._bootstrap)"


def hide_frame_from_warnings(function: Any) -> Any:
    """The function, no longer counted where a warning is issued below it; anything else as it is."""
    code = getattr(function, "__code__", None)
    if code is not None and not code.co_filename.endswith(HIDDEN_SUFFIX):
        function.__code__ = code.replace(co_filename=code.co_filename + HIDDEN_SUFFIX)
    return function


def hide_recorder_frames_in_excepthook() -> None:
    """Python's own hook, with our frames left out. A program that sets a hook of its own gets everything."""
    shown = sys.excepthook
    if shown is not sys.__excepthook__:
        return

    def excepthook(kind: Any, error: Any, traceback: Any) -> None:
        try:
            strip_recorder_frames_from_error_chain(error)
            traceback = without_recorder_frames_unless_own_error(traceback)
        finally:
            shown(kind, error, traceback)

    # both: libraries ask whether the one is the other, to see whether a program has a hook of its own
    sys.excepthook = sys.__excepthook__ = excepthook


def strip_recorder_frames_from_error_chain(error: BaseException | None) -> None:
    """Take our frames from the traceback of an error, of those that it came of and of those it is made of."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = without_recorder_frames_unless_own_error(one.__traceback__)
        waiting += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


def without_recorder_frames_unless_own_error(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of the recorder.

    One that ends in them is left, because the error is then ours, unless it ends where the program's own call is
    handed on to native code.
    """
    frames = []
    at = traceback
    while at is not None:
        frames.append(at)
        at = at.tb_next
    if not frames or (_is_recorder_frame(frames[-1]) and not _is_recorder_wrapper_or_dispatch_frame(frames[-1])):
        return traceback
    made: TracebackType | None = None
    for one in reversed(frames):
        if not _is_recorder_frame(one):
            made = TracebackType(made, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return made


def _is_recorder_frame(traceback: TracebackType) -> bool:
    return traceback.tb_frame.f_code.co_filename.startswith(RECORD_FOLDER)


def _is_recorder_wrapper_or_dispatch_frame(traceback: TracebackType) -> bool:
    code = traceback.tb_frame.f_code
    return code.co_filename.endswith(HIDDEN_SUFFIX) or code.co_name == "__torch_dispatch__"
