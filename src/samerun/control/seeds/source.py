"""The record that every file of this folder exposes as `SOURCE`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

State = Any
"""Opaque, but plain: numbers, strings, lists, tuples, dicts, CPU tensors; pickles, and torch saves it."""


@dataclass(frozen=True)
class Source:
    """One global random generator of a process.

    name: its name in states and in the derivation of its seed; never changed once released.
    module: the library whose import brings it; "" when it needs none.
    available(): whether it can be seeded now. Looks only at what is imported, and never imports.
    seed(n): seed it with a whole number from 0 to 2**64-1, already its own (see `derive.py`).
    get_state(): a copy of its state, or None when the library does not give it; then `note` says so.
    set_state(state): put back what `get_state` gave. Raises OtherDevices if it is of more or fewer devices.
    dormant(): whether taking its state now would start a device.
    """

    name: str
    module: str
    available: Callable[[], bool]
    seed: Callable[[int], None]
    get_state: Callable[[], State | None]
    set_state: Callable[[State], None]
    note: str = ""
    dormant: Callable[[], bool] = lambda: False


class OtherDevices(ValueError):
    """A state of another number of devices than there are here."""

    def __init__(self, saved: int, here: int) -> None:
        super().__init__(f"it is of {saved} devices, and there are {here} here")


def seed_only(
    name: str, module: str, *, available: Callable[[], bool], seed: Callable[[int], None], note: str
) -> Source:
    """A source that can be seeded, but whose library gives no state; `note` says what is known about it."""

    def no_state() -> None:
        return None

    def refuse(state: State) -> None:
        raise TypeError(note)

    return Source(name, module, available, seed, no_state, refuse, note)
