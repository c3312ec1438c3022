"""The records of this folder: what was asked for, an environment variable, and a switch (`SWITCH`)."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Value = Any
"""Plain: None, bools, numbers, strings, and lists and dicts of them."""

When = Literal["before interpreter", "before torch", "before CUDA", "before library", "any time"]


@dataclass(frozen=True)
class Policy:
    """What `deterministic()` was asked for; its own documentation says what each means."""

    level: str = "error"
    fill_uninitialized_memory: bool = True
    precision: str = "ieee"
    threads: int | None = None
    cudnn_benchmark: str = "off"
    unset_hash_seed: str = "error"
    """What to do where Python drew the seed of its hashes itself: it can be said, and no longer changed."""


def only_recorded(policy: Policy) -> None:
    """No value is better than another: report it, touch nothing."""


def always() -> bool:
    return True


def never() -> bool:
    return False


def anything(value: str, policy: Policy) -> bool:
    return True


@dataclass(frozen=True)
class Variable:
    """An environment variable that a switch goes by.

    wanted(policy): its value, or None: then it is only recorded (and, if set, checked by `valid`).
    valid(value, policy): whether a value that the user chose will do; `values` says which, for people.
    started(): whether the moment at which it is read has passed.
    in_force(): after that moment, the value that was read (None: it was not set).
    required: False where a run is held still without it; then being too late, or another value, is no error.
    inside: False where setting it in a running process does harm.
    """

    name: str
    wanted: Callable[[Policy], str | None] = only_recorded
    valid: Callable[[str, Policy], bool] = anything
    values: str = "anything"
    started: Callable[[], bool] = never
    in_force: Callable[[], str | None] | None = None
    required: bool = True
    inside: bool = True

    def read(self) -> str | None:
        """The value that counts: what was read when its moment had passed, else what will be read."""
        if self.in_force is not None and self.started():
            return self.in_force()
        return os.environ.get(self.name)


@dataclass(frozen=True)
class Switch:
    """One setting on which the bits of a run depend.

    name: for people and for `survey()`; never changed once released.
    what: one sentence. why: why this value, and what is known about it.
    when: the latest moment at which it can be set.
    module: the library whose import brings it; "" when it needs none.
    available(): whether it is there, now. Looks only at what is imported, and never imports.
    wanted(policy): the value to be in force, or None: nothing is set.
    read(): the value in force, asked of torch (or the environment) itself; plain.
    write(wanted): put it in force. None: it cannot be changed from inside, or has only variables.
    save(), restore(saved): everything that `write`, or the user, may change; default: `read` and `write`.
    agrees(read, wanted): whether that is in force which is wanted.
    default: what `read` gives in a fresh process (of a dict, the entries that are known); None: it depends.
    variables: the environment variables that it goes by.
    """

    name: str
    what: str
    why: str
    when: When
    read: Callable[[], Value]
    write: Callable[[Value], None] | None = None
    wanted: Callable[[Policy], Value] = only_recorded
    module: str = ""
    available: Callable[[], bool] = always
    save: Callable[[], Any] | None = None
    restore: Callable[[Any], None] | None = None
    agrees: Callable[[Value, Value], bool] = operator.eq
    default: Value = None
    variables: tuple[Variable, ...] = ()

    def saved(self) -> Any:
        return self.save() if self.save is not None else self.read()

    def put_back(self, saved: Any) -> None:
        if self.restore is not None:
            self.restore(saved)
        elif self.write is not None and self.read() != saved:
            self.write(saved)

    def can_be_put_back(self) -> bool:
        return self.available() and (self.write is not None or self.restore is not None)

    def holds(self, policy: Policy) -> bool:
        """Whether this switch has a value to put in force from inside, here and now."""
        return self.write is not None and self.available() and self.wanted(policy) is not None


def set_variables(variables: tuple[Variable, ...]) -> Callable[[], Value]:
    """What `read` gives for a switch that is variables only: its value, or those that are set."""

    def read() -> Value:
        found = {each.name: each.read() for each in variables}
        if len(found) == 1:
            return next(iter(found.values()))
        return {name: value for name, value in found.items() if value is not None}

    return read
