"""Turn the command recorded in a receipt into one that may run here, or refuse it. Nothing is run in this file."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError
from samerun.base.target import Target, find_user_package_folder_or_raise, require_script_compiles
from samerun.base.text import escape_as_one_line
from samerun.record.receipt.redact import REDACTED

MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
SAFE_VARIABLES = {
    "OMP_NUM_THREADS": r"[0-9]{1,4}",
    "MKL_NUM_THREADS": r"[0-9]{1,4}",
    "OPENBLAS_NUM_THREADS": r"[0-9]{1,4}",
    "MKL_CBWR": r"[A-Z0-9_,]{1,40}",
    "ATEN_CPU_CAPABILITY": r"[a-z0-9_]{1,20}",
    "ONEDNN_MAX_CPU_ISA": r"[A-Z0-9_]{1,40}",
    "PYTHONHASHSEED": r"[0-9]{1,10}",
    "CUBLAS_WORKSPACE_CONFIG": r"[0-9:]{1,40}",
}
"""Recorded variables that a rerun restores, and the form of their values. An allowlist: a variable such as LD_PRELOAD
amounts to code execution."""
HINT = "Name it yourself: samerun verify RECEIPT -- COMMAND..."
MAX_WORDS_SHOWN, MAX_WORD_SHOWN, MAX_COMMAND_ASKED = 50, 100, 4000
_BEGINNINGS = {"script": "python ", "code": "python ", "module": "python -m "}


def format_command_line_truncating_words(command: dict[str, Any]) -> str:
    """The command in one line, quoted as for a shell and safe to print. Long words and commands are cut."""
    words = [escape_as_one_line(shlex.quote(word), MAX_WORD_SHOWN) for word in command["words"][:MAX_WORDS_SHOWN]]
    if len(command["words"]) > MAX_WORDS_SHOWN:
        words.append(f"... ({len(command['words']) - MAX_WORDS_SHOWN} more words)")
    return _BEGINNINGS.get(command["form"], "") + " ".join(words)


def format_whole_command_line(command: dict[str, Any]) -> str:
    """The same with nothing left out: what a user is asked about has to be what will run.

    Raises SamerunError for a command that is too long to be read.
    """
    size = sum(len(word) + 1 for word in command["words"])
    if size <= MAX_COMMAND_ASKED:
        words = [escape_as_one_line(shlex.quote(word), 2 * MAX_COMMAND_ASKED) for word in command["words"]]
        return _BEGINNINGS.get(command["form"], "") + " ".join(words)
    raise SamerunError(f"The receipt's command has {size} characters: too long to be shown and asked about.", HINT)


def resolve_recorded_command(command: dict[str, Any]) -> Target:
    """The recorded program on this machine. Raises SamerunError if it lies elsewhere, or is malformed.

    A script must lie inside the working directory; a command must be on PATH, or inside the working directory.
    """
    words = [_require_encodable_argument(each) for each in command["words"]]
    if any(REDACTED in word for word in words):
        raise SamerunError("The receipt does not hold the whole command: secrets were left out of it.", hint=HINT)
    if not words or not words[0]:
        raise SamerunError("The receipt names no command.", hint=HINT)
    form = command["form"]
    if form == "module":
        if MODULE.fullmatch(words[0]) is None:
            raise SamerunError(
                f"The receipt names a module that is none: {escape_as_one_line(words[0], 80)}.", hint=HINT
            )
        return Target((sys.executable, "-m", *words), ("-m", *words), find_user_package_folder_or_raise(words[0]))
    if form == "command":
        if os.sep in words[0]:
            _require_path_inside_working_folder(words[0])
        if shutil.which(words[0]) is None:
            raise SamerunError(f"There is no command {escape_as_one_line(words[0], 80)} here.", hint=HINT)
        return Target(tuple(words), tuple(words))
    script = _require_path_inside_working_folder(words[0])
    if not os.path.exists(script):
        raise SamerunError(f"There is no script {escape_as_one_line(words[0], 80)} here.", hint=HINT)
    require_script_compiles(script)
    return Target((sys.executable, *words), tuple(words), str(script.parent))


def select_allowlisted_variables(recorded_variables: dict[str, str]) -> dict[str, str]:
    """The recorded variables that a rerun restores."""
    return {
        name: recorded_variables[name]
        for name, pattern in SAFE_VARIABLES.items()
        if name in recorded_variables and re.fullmatch(pattern, recorded_variables[name])
    }


def _require_encodable_argument(word: str) -> str:
    try:
        if "\0" in word:
            raise ValueError
        os.fsencode(word)
    except ValueError:
        raise SamerunError(f"The receipt's command cannot be run: {escape_as_one_line(word, 80)}.", hint=HINT) from None
    return word


def _require_path_inside_working_folder(name: str) -> Path:
    """The resolved path. Raises SamerunError unless it lies inside the working directory."""
    here = Path.cwd().resolve()
    try:
        path = (here / name).resolve()
    except (OSError, RuntimeError) as error:
        raise SamerunError(
            f"The receipt names {escape_as_one_line(name, 80)}, which cannot be found.", hint=HINT
        ) from error
    if Path(name).is_absolute() or name.startswith("-") or not path.is_relative_to(here):
        raise SamerunError(
            f"The receipt names {escape_as_one_line(name, 80)}, outside of the working directory.", hint=HINT
        )
    return path
