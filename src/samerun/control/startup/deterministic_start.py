"""Hold this process still before the program's first line. Called by the bootstrap `sitecustomize`."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from samerun.base.errors import SamerunError
from samerun.base.hooks import PostImportHooks

VARIABLE = "SAMERUN_HOLD"
"""The arguments of `deterministic()` as JSON."""

_later = PostImportHooks()


def start() -> None:
    """Put in force what the environment asks for: in this process, and in the children it starts."""
    try:
        options: dict[str, Any] = json.loads(os.environ[VARIABLE])
        seed = options.pop("seed")
    except (ValueError, KeyError, AttributeError) as error:
        _exit_with_error(f"{VARIABLE} in the environment is not what `samerun run` writes there: {error!r}.")
    if options.get("unseeded", "ignore") != "ignore":
        _enter_deterministic(seed, options)  # the program's own first line may make a generator
        return
    # The variables are set already and nothing else is due before torch is there: a program without torch
    # does not wait for what it does not need.
    from samerun.control.rng.seeding import seed_everything

    try:
        seed_everything(seed)
    except SamerunError as error:
        _exit_with_error(str(error))
    _later.add("torch", lambda module: _enter_deterministic(None, options))
    _later.install()


def _enter_deterministic(seed: int | None, options: dict[str, Any]) -> None:
    from samerun.control.determinism.mode import deterministic

    try:
        deterministic(seed, **options)
    except (SamerunError, TypeError) as error:
        _exit_with_error(str(error))


def _exit_with_error(message: str) -> None:
    """End the process: `site` would print an exception and go on with nothing held still."""
    sys.stderr.write(f"samerun: {message}\n")
    sys.stderr.flush()
    os._exit(2)
