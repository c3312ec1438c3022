"""Draw without moving the streams outside."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar, overload

from samerun.control.moment import Moment, put_back, take
from samerun.control.seed_derivation import checked
from samerun.control.sources import present_sources, put_in_force, seed_sources
from samerun.control.turns import in_turns

P = ParamSpec("P")
R = TypeVar("R")


class Isolation:
    """What `isolate_rng()` gives: a context manager, entered as often as you like, and a decorator."""

    def __init__(self, seed: int | None, resume: bool = False) -> None:
        self._seed = seed
        self._resume = resume  # go on, when entered again, where the last turn stopped
        self._inside: Moment | None = None
        self._outside: list[Moment] = []

    def __enter__(self) -> None:
        outside = take()
        try:
            if self._inside is not None:
                put_back(self._inside)
            elif self._seed is not None:
                put_in_force(self._seed)
                seed_sources(self._seed, [one for one in present_sources() if one.name in outside.state])
        except BaseException:
            put_back(outside)
            raise
        self._outside.append(outside)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        outside = self._outside.pop()
        try:
            if self._resume:
                self._inside = take()
        finally:
            put_back(outside)

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


@overload
def fixed_rng(seed: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def fixed_rng(seed: int = 0) -> Isolation: ...
def fixed_rng(seed: Callable[P, R] | int = 0) -> Callable[P, R] | Isolation:
    """Repeat what draws inside: every time the streams start from the same point; outside none moves.

        with samerun.fixed_rng():
            u, s, v = torch.svd_lowrank(matrix)      # draws, and yet is the same every time

        lowrank = samerun.fixed_rng(torch.svd_lowrank)

    `with fixed_rng(seed=3):`, `@fixed_rng`, `@fixed_rng(seed=3)`; a context manager may be kept and entered
    again, and each call of a decorated function starts from the same point. It is `isolate_rng` with a seed
    that has a default: what that says of generators, coroutines, threads and libraries holds here.

    seed: a whole number from 0 to 2**64-1; 0 if not given, whatever `seed_everything` was given.
    Raises SeedError for a seed that is none.
    """
    if callable(seed):
        return Isolation(0)(seed)
    return Isolation(checked(seed, "fixed_rng"))
