"""The environment of a program that is held still from before its first line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from samerun.base.launch import with_bootstrap
from samerun.control.start import VARIABLE


def held_environment(base: Mapping[str, str], wanted: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, str]:
    """`base`, with the variables that are wanted and the request that the bootstrap carries out.

    `options`: the seed and the arguments of `deterministic()`.
    """
    return with_bootstrap({**base, **wanted, VARIABLE: json.dumps(dict(options), sort_keys=True)})
