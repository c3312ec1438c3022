"""The record of one global random generator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

State = Any
"""Opaque, but plain: numbers, strings, lists, tuples, dicts, CPU tensors; pickles, and torch saves it."""


@dataclass(frozen=True)
class RandomSource:
    """One global random generator of a process.

    name: its name in states and in the derivation of its seed; never changed once released.
    module: the library whose import brings it; "" when it needs none.
    available(): whether it can be seeded now. Looks only at what is imported, and never imports.
    seed(n): seed it with a whole number from 0 to 2**64-1, derived for it alone (see `seed_derivation.py`).
    get_state(): a copy of its state, or None when the library does not give it; then `note` says so.
    set_state(state): restore what `get_state` gave. Raises DeviceCountMismatch for more or fewer devices.
    starts_device(): whether taking its state now would start a device.
    """

    name: str
    module: str
    available: Callable[[], bool]
    seed: Callable[[int], None]
    get_state: Callable[[], State | None]
    set_state: Callable[[State], None]
    note: str = ""
    starts_device: Callable[[], bool] = lambda: False


class DeviceCountMismatch(ValueError):
    """A state was taken with another number of devices than this process has."""

    def __init__(self, saved: int, here: int) -> None:
        super().__init__(f"it is of {saved} devices, and there are {here} here")


def make_seed_only_source(
    name: str, module: str, *, available: Callable[[], bool], seed: Callable[[int], None], note: str
) -> RandomSource:
    """A source that can be seeded, but whose library does not give its state; `note` says why."""

    def refuse(state: State) -> None:
        raise TypeError(note)

    return RandomSource(name, module, available, seed, lambda: None, refuse, note)
