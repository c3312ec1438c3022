"""The environment of a program that is held still from before its first line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from samerun.base.launch import with_bootstrap
from samerun.control.start import VARIABLE
from samerun.control.too_late import environment_wanted


def as_run_does(seed: int) -> dict[str, str]:
    """The variables that `samerun run --seed SEED` adds to the environment.

    Raises SwitchError for a variable of the user's own with which a run cannot be held still.
    """
    return {**environment_wanted(), VARIABLE: json.dumps({"seed": seed})}


def held_environment(base: Mapping[str, str], wanted: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, str]:
    """`base`, with the variables that are wanted and the request that the bootstrap carries out.

    `options`: the seed and the arguments of `deterministic()`.
    """
    return with_bootstrap({**base, **wanted, VARIABLE: json.dumps(dict(options), sort_keys=True)})
