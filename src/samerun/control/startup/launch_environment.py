"""The environment of a program that is deterministic from before its first line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from samerun.base.launch import prepend_bootstrap_to_pythonpath
from samerun.control.determinism.preflight import required_environment
from samerun.control.startup.deterministic_start import VARIABLE


def make_run_environment(seed: int) -> dict[str, str]:
    """The variables that `samerun run --seed SEED` adds to the environment.

    Raises SwitchError for a variable of the user's own with which a run cannot be deterministic.
    """
    return {**required_environment(), VARIABLE: json.dumps({"seed": seed})}


def launch_environment(
    base: Mapping[str, str], wanted: Mapping[str, str], options: Mapping[str, Any]
) -> dict[str, str]:
    """`base` with the `wanted` variables and the request that `deterministic_start` carries out in the program.

    `options`: the seed and the arguments of `deterministic()`.
    """
    return prepend_bootstrap_to_pythonpath({**base, **wanted, VARIABLE: json.dumps(dict(options), sort_keys=True)})
