"""Notice when samples draw from a generator that the user said they do not draw from."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from samerun.base.errors import DataError

ALWAYS, THEN_EACH = 8, 32
"""The first batches are looked at, then one of so many: taking the states costs up to 100 us."""
SHOWN = {"python": "Python's random", "numpy": "numpy.random", "torch": "torch's default generator"}
_STATES: dict[str, Callable[[], Any]] = {
    "python": random.getstate,
    "numpy": lambda: pickle.dumps(np.random.get_state()),
    "torch": lambda: torch.default_generator.get_state().numpy().tobytes(),
}


class Unkeyed:
    """`before` and `after` stand around the samples of a batch."""

    def __init__(self, kinds: frozenset[str]) -> None:
        self._kinds = sorted(SHOWN.keys() - kinds)
        self._keyed = sorted(kinds)
        self._batches = 0
        self._before: dict[str, Any] = {}

    def before(self) -> None:
        if self._kinds:
            self._batches += 1
            looked_at = self._batches <= ALWAYS or self._batches % THEN_EACH == 0
            self._before = {kind: _STATES[kind]() for kind in self._kinds} if looked_at else {}

    def after(self) -> None:
        """Raises DataError if one has moved since `before`."""
        for kind, state in self._before.items():
            if _STATES[kind]() != state:
                raise DataError(
                    f"DataLoader(keyed={self._keyed!r}): a sample drew from {SHOWN[kind]}, which is left out there.",
                    f"Its numbers would depend on the workers: add {kind!r}, or leave out keyed=.",
                )
