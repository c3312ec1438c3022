"""`samerun verify --step`: have another Python compute a kept step, and say where it differs."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError

FOLDER = Path("samerun-guard")
"""Where `samerun.guard` writes if it is not told otherwise."""


def verify_step(step_number_or_file: str, python_command: str | None, form: str, words: list[str]) -> dict[str, Any]:
    """The record of one step computed again. Raises SamerunError if that was not possible.

    step_number_or_file: number, or file, of a step that `guard(keep=True)` kept. python_command: the words in front of
    what Python is given.
    """
    from samerun.step_replay import ANSWER, read_step

    if form == "command":
        raise SamerunError(
            "--step computes a step of a program on one rank: name the script, not a command that starts it.",
            hint='Steps of several ranks are not kept. guard(also="peer") has another rank compute them.',
        )
    if form not in ("script", "module") or not words:
        raise SamerunError(
            "--step computes a step of a program, and none is named.",
            hint="Try: samerun verify --step 101 --on /other/bin/python train.py",
        )
    is_number = step_number_or_file.isascii() and step_number_or_file.isdigit()
    path = FOLDER / f"step-{int(step_number_or_file):08}.pt" if is_number else Path(step_number_or_file)
    read_step(path)
    python = shlex.split(python_command) if python_command is not None else [sys.executable]
    program = ["-m", *words] if form == "module" else words
    command = [*python, "-m", "samerun.step_replay", str(path), "--", *program]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False)
    except OSError as error:
        raise SamerunError(
            f"--on {python_command}: {error.strerror or error}.", hint="Name a Python that has samerun."
        ) from error
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    answers = [line for line in lines if line.startswith(ANSWER)]
    sys.stderr.write("".join(f"{line}\n" for line in lines if line not in answers and line))
    try:
        answer = json.loads(answers[-1].removeprefix(ANSWER))
        verdict = answer["verdict"]
    except (IndexError, ValueError, KeyError, TypeError) as error:
        raise SamerunError(
            f"The program ended with exit code {done.returncode} before it computed a guarded step.",
            hint="Does it work there without samerun? The step is computed at its first call of guard.step.",
        ) from error
    if verdict not in ("same", "different"):
        raise SamerunError(str(answer.get("message")), hint=answer.get("hint"))
    return {"schema": 1, "command": shlex.join(words), "file": str(path), "on": shlex.join(python), **answer}
