"""Hold this process still before the program's first line. Called by the bootstrap `sitecustomize`."""

from __future__ import annotations

import json
import os
import sys
from types import ModuleType
from typing import Any

from samerun.base.errors import SamerunError
from samerun.base.hooks import PostImportHooks

VARIABLE = "SAMERUN_HOLD"
"""The arguments of `deterministic()` as JSON."""

_later = PostImportHooks()


def start() -> None:
    """Put in force what the environment asks for: in this process, and in the children it starts."""
    try:
        asked: dict[str, Any] = json.loads(os.environ[VARIABLE])
        seed = asked.pop("seed")
    except (ValueError, KeyError, AttributeError) as error:
        _end(f"{VARIABLE} in the environment is not what `samerun run` writes there: {error!r}.")
    if asked.get("unseeded", "ignore") != "ignore":
        _begin(seed, asked)  # the program's own first line may make a generator
        return
    # The variables are set already and nothing else is due before torch is there: a program without torch
    # does not wait for what it does not need.
    from samerun.control.rng.seeding import seed_everything

    try:
        seed_everything(seed)
    except SamerunError as error:
        _end(str(error))
    _later.add("torch", lambda module: _begin(None, asked))
    _later.install()


def _begin(seed: int | None, asked: dict[str, Any], module: ModuleType | None = None) -> None:
    from samerun.control.determinism.mode import deterministic

    try:
        deterministic(seed, **asked)
    except (SamerunError, TypeError) as error:
        _end(str(error))


def _end(message: str) -> None:
    """End the process: `site` would print an exception and go on with nothing held still."""
    sys.stderr.write(f"samerun: {message}\n")
    sys.stderr.flush()
    os._exit(2)
