"""What the user wants run: a script, a module, or a whole command."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from samerun.base.errors import SamerunError
from samerun.base.text import did_you_mean_prefix_or_empty
from samerun.base.versions import require_supported_torch_and_numpy

LAUNCHERS = ("torch", "accelerate", "deepspeed", "lightning", "horovod", "coverage", "debugpy", "kernprof")
"""Packages whose modules start a program that is named behind them: their lines are not the program's."""


TargetForm = Literal["script", "module", "command", ""]
""""" when nothing is named."""


@dataclass(frozen=True)
class Target:
    """`command` is the whole command line; `shown` what the user wrote; `user_folder` where the code is."""

    command: tuple[str, ...]
    shown: tuple[str, ...]
    user_folder: str | None = None


def suggest_running_without_samerun(command: Sequence[str], user_argv: Sequence[str]) -> str:
    """What a user tries next whose program failed under samerun."""
    alone = shlex.join(["python", *user_argv] if tuple(command[1:]) == tuple(user_argv) else user_argv)
    return f"It failed under samerun. Does `{alone}` work alone?"


class SplitCommandLine(NamedTuple):
    """samerun's own options, what kind of program is named behind them, and the program's words."""

    own_options: list[str]
    form: TargetForm
    program_words: list[str]


def split_command_line_at_program(arguments: list[str], options_with_value: set[str]) -> SplitCommandLine:
    """(samerun's options, form, the rest): everything behind the script, `-m MODULE` or `--` is the program's.

    The form is "script", "module", "command" or "" when nothing is named.
    """
    index = 0
    while index < len(arguments):
        word = arguments[index]
        if word == "--":
            return SplitCommandLine(arguments[:index], "command", arguments[index + 1 :])
        if word == "-m":
            return SplitCommandLine(arguments[:index], "module", arguments[index + 1 :])
        if not word.startswith("-") or word == "-":
            return SplitCommandLine(arguments[:index], "script", arguments[index:])
        index += 2 if word in options_with_value else 1
    return SplitCommandLine(arguments, "", [])


def resolve_target(form: TargetForm, program_argv: list[str]) -> Target:
    """Check that the program is there and can be started.

    Raises SamerunError for a missing script, a syntax error, a missing module or command.
    """
    require_supported_torch_and_numpy()
    if not program_argv:
        what = {"module": "-m needs the name of a module.", "command": "No command after --."}
        raise SamerunError(
            what.get(form, "No script given."),
            hint="Try: samerun check train.py, samerun check -m package.train, samerun check -- torchrun train.py",
        )
    if form == "module":
        return Target(
            (sys.executable, "-m", *program_argv),
            ("-m", *program_argv),
            find_user_package_folder_or_raise(program_argv[0]),
        )
    if form == "command":
        if shutil.which(program_argv[0]) is None:
            raise SamerunError(f"There is no command {program_argv[0]!r}.", hint="Is it installed and on PATH?")
        return Target(tuple(program_argv), tuple(program_argv))
    require_script_compiles(Path(program_argv[0]))
    return Target((sys.executable, *program_argv), tuple(program_argv), str(Path(program_argv[0]).resolve().parent))


def require_script_compiles(path: Path) -> None:
    # os.path, not Path: a name that is too long is one that is not there
    if not os.path.exists(path):
        scripts = sorted(p.name for p in path.parent.glob("*.py")) if os.path.isdir(path.parent) else []
        there = f"In {path.parent} there are: {', '.join(scripts[:8])}" if scripts else "Is the path right?"
        hint = did_you_mean_prefix_or_empty(path.name, scripts) + there
        raise SamerunError(f"There is no script {path}.", hint=hint)
    if path.is_dir():
        if (path / "__main__.py").exists():
            return
        raise SamerunError(f"{path} is a folder without a __main__.py.", hint="Name the script itself.")
    if path.suffix != ".py":
        return
    try:
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise SamerunError(
            f"{path} cannot be run: line {error.lineno}: {error.msg}.",
            hint=(error.text or "").strip() or "Python cannot read it.",
        ) from error
    except (OSError, ValueError) as error:
        raise SamerunError(f"{path} cannot be read: {error}.", hint="Is it a Python program?") from error


def find_user_package_folder_or_raise(module_name: str) -> str | None:
    """The folder of a module's top package, so that its lines count as the user's own; None for what starts others."""
    from importlib.util import find_spec

    top = module_name.split(".")[0]
    sys.path.insert(0, "")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        spec = None
    finally:
        sys.path.pop(0)
    if spec is None:
        raise SamerunError(f"There is no module {module_name}.", hint="Is it installed, or in the working directory?")
    if top in LAUNCHERS or top in sys.stdlib_module_names:
        return None
    if spec.submodule_search_locations:
        return next(iter(spec.submodule_search_locations))
    return str(Path(spec.origin).parent) if spec.origin else None
