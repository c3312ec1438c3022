"""Start Python so that samerun is there before the program's first line, in its children too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def bootstrap_folder() -> Path:
    """The folder whose `sitecustomize` starts samerun; it goes first on PYTHONPATH."""
    return Path(__file__).resolve().parent / "bootstrap"


def with_bootstrap(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the bootstrap folder first on PYTHONPATH, once."""
    here = str(bootstrap_folder())
    rest = [part for part in environment.get("PYTHONPATH", "").split(os.pathsep) if part and part != here]
    return {**environment, "PYTHONPATH": os.pathsep.join([here, *rest])}
