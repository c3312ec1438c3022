"""Draw without moving the streams outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import ParamSpec, TypeVar, overload

from samerun.control.seeds.derive import checked
from samerun.control.snapshot import RNGState, set_rng_state, take_state
from samerun.control.streams import present_sources, put_in_force, seed_in_force, seed_sources
from samerun.control.turns import in_turns

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Streams:
    """Every stream, where it stands; `put_back_streams` gives them back."""

    state: RNGState
    present: frozenset[str]
    in_force: int | None


class Isolation:
    """What `isolate_rng()` gives: a context manager, entered as often as you like, and a decorator."""

    def __init__(self, seed: int | None, resume: bool = False) -> None:
        self._seed = seed
        self._resume = resume  # go on, when entered again, where the last turn stopped
        self._inside: Streams | None = None
        self._outside: list[Streams] = []

    def __enter__(self) -> None:
        outside = take_streams()
        try:
            if self._inside is not None:
                put_back_streams(self._inside)
            elif self._seed is not None:
                put_in_force(self._seed)
                seed_sources(self._seed, [one for one in present_sources() if one.name in outside.state])
        except BaseException:
            put_back_streams(outside)
            raise
        self._outside.append(outside)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        outside = self._outside.pop()
        try:
            if self._resume:
                self._inside = take_streams()
        finally:
            put_back_streams(outside)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        return in_turns(function, lambda: Isolation(self._seed, resume=True))


@overload
def isolate_rng(seed: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def isolate_rng(seed: int | None = None) -> Isolation: ...
def isolate_rng(seed: Callable[P, R] | int | None = None) -> Callable[P, R] | Isolation:
    """Draw freely inside; outside, every stream goes on as if nothing had been drawn.

    `with isolate_rng():`, `with isolate_rng(seed=3):`, `@isolate_rng`, `@isolate_rng(seed=3)`. Inside, the
    streams start from `seed` (a whole number from 0 to 2**64-1), or, without one, from where they stand
    outside. On leaving, also through an exception, every state is put back: the normal number that Python,
    NumPy and torch keep for the next call too, and those of all devices. May be nested.

    A decorated generator, coroutine or async generator is inside only while it runs; what others draw between
    its turns is theirs. A `with` block that holds a `yield` or an `await` is not: decorate the function
    instead.

    Global generators belong to the process: a thread that draws meanwhile draws inside. A library that gives
    no state (OpenCV, Polars, ...) is neither seeded nor put back; a warning in the log "samerun" says so
    once. A library imported inside is given, on leaving, the seed it would have got outside.

    Raises SeedError for a seed that is none.
    """
    if callable(seed):
        return Isolation(None)(seed)
    return Isolation(None if seed is None else checked(seed, "isolate_rng"))


def take_streams(start_devices: bool = True) -> Streams:
    """`start_devices=False` leaves out devices that have not started and were never seeded."""
    present = frozenset(one.name for one in present_sources())
    return Streams(take_state(start_devices), present, seed_in_force())


def put_back_streams(streams: Streams) -> None:
    put_in_force(streams.in_force)
    try:
        set_rng_state(streams.state, strict=False)
    finally:
        if streams.in_force is not None:
            new = [one for one in present_sources() if one.name not in streams.present]
            seed_sources(streams.in_force, new)
