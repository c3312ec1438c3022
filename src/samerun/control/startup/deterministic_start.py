"""Hold a program still from its first line: the request in its environment, and `start`, which carries it out inside.

The bootstrap `sitecustomize` calls `start`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
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
        _print_error_and_exit_with_2(
            f"{VARIABLE} in the environment is not what `samerun run` writes there: {error!r}."
        )
    if options.get("unseeded", "ignore") != "ignore":
        _enter_deterministic_or_exit(seed, options)  # the program's own first line may make a generator
        return
    # The variables are set already and nothing else is due before torch is there: a program without torch
    # does not wait for what it does not need.
    from samerun.control.rng.seeding import seed_everything

    try:
        seed_everything(seed)
    except SamerunError as error:
        _print_error_and_exit_with_2(str(error))
    _later.call_now_or_after_import("torch", lambda module: _enter_deterministic_or_exit(None, options))
    _later.install()


def _enter_deterministic_or_exit(seed: int | None, options: dict[str, Any]) -> None:
    from samerun.control.determinism.mode import deterministic

    try:
        deterministic(seed, **options)
    except (SamerunError, TypeError) as error:
        _print_error_and_exit_with_2(str(error))


def _print_error_and_exit_with_2(message: str) -> None:
    """End the process: `site` would print an exception and go on with nothing held still."""
    sys.stderr.write(f"samerun: {message}\n")
    sys.stderr.flush()
    os._exit(2)


def make_deterministic_run_variables(seed: int) -> dict[str, str]:
    """Return the variables that `samerun run --seed SEED` adds to the environment.

    Raises SwitchError for a variable of the user's own with which a run cannot be deterministic.
    """
    from samerun.control.determinism.survey import required_environment

    return {**required_environment(), VARIABLE: json.dumps({"seed": seed})}


def make_launch_environment(
    base_environment: Mapping[str, str], wanted_variables: Mapping[str, str], deterministic_arguments: Mapping[str, Any]
) -> dict[str, str]:
    """Return `base_environment` with the wanted variables and the request that `start` carries out in the program.

    `deterministic_arguments`: the seed and the arguments of `deterministic()`.
    """
    from samerun.base.launch import prepend_bootstrap_to_pythonpath

    return prepend_bootstrap_to_pythonpath(
        {**base_environment, **wanted_variables, VARIABLE: json.dumps(dict(deterministic_arguments), sort_keys=True)}
    )
