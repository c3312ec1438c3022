"""Python's `random`: the module's own generator, with the normal number that `gauss` keeps back."""

from __future__ import annotations

import random

from samerun.control.seeds.source import RandomSource, State


def _can_seed_python() -> bool:
    return True


def _seed_python(seed: int) -> None:
    random.seed(seed)


def _get_python_state() -> State:
    return random.getstate()


def _set_python_state(state: State) -> None:
    version, words, kept_gauss = state  # lists, if it went through JSON
    if kept_gauss is not None and not isinstance(kept_gauss, float):
        raise TypeError("the normal number that gauss() keeps is not a float")
    if max(words) >> 32:  # Python would truncate it
        raise ValueError("it holds a number of more than 32 bits")
    random.setstate((version, tuple(words), kept_gauss))


SOURCE = RandomSource("python", "", _can_seed_python, _seed_python, _get_python_state, _set_python_state)
