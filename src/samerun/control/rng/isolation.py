"""Draw without moving the streams outside."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

from samerun.control.random_source import validate_seed
from samerun.control.rng.seeding import available_random_sources, seed_random_sources, set_seed_in_force
from samerun.control.rng.state import RNGSnapshot, restore_snapshot, take_snapshot

P = ParamSpec("P")
R = TypeVar("R")


class Isolation:
    """What `isolate_rng()` gives: a context manager, entered as often as you like, and a decorator."""

    def __init__(self, seed: int | None, resume: bool = False) -> None:
        self._seed = seed
        self._resume = resume  # go on, when entered again, where the last turn stopped
        self._inside: RNGSnapshot | None = None
        self._outside: list[RNGSnapshot] = []

    def __enter__(self) -> None:
        outside = take_snapshot()
        try:
            if self._inside is not None:
                restore_snapshot(self._inside)
            elif self._seed is not None:
                set_seed_in_force(self._seed)
                seed_random_sources(
                    self._seed, [one for one in available_random_sources() if one.name in outside.state]
                )
        except BaseException:
            restore_snapshot(outside)
            raise
        self._outside.append(outside)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        outside = self._outside.pop()
        try:
            if self._resume:
                self._inside = take_snapshot()
        finally:
            restore_snapshot(outside)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        return wrap_in_context(function, lambda: Isolation(self._seed, resume=True))


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
    return Isolation(None if seed is None else validate_seed(seed, "isolate_rng"))


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
    return Isolation(validate_seed(seed, "fixed_rng"))


# --- functions whose every call runs inside a context manager ---
#
# A generator, a coroutine or an async generator leaves the context whenever it yields or awaits, and enters it again
# when it is resumed. So what other code does in between happens outside.


Context = AbstractContextManager[Any]


def wrap_in_context(function: Callable[..., Any], make_context: Callable[[], Context]) -> Callable[..., Any]:
    """Wrap `function` so that each call runs inside a `make_context()` of its own, entered once for every turn."""
    if inspect.iscoroutinefunction(function):

        async def run_coroutine(*args: Any, **kwargs: Any) -> Any:
            return await _run_coroutine_in_context(function(*args, **kwargs), make_context())

        return functools.wraps(function)(run_coroutine)
    if inspect.isasyncgenfunction(function):
        return functools.wraps(function)(_wrap_async_generator(function, make_context))
    if inspect.isgeneratorfunction(function):

        def run_generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            return (yield from _run_generator_reentering_context_manager(function(*args, **kwargs), make_context()))

        return functools.wraps(function)(run_generator)

    def run(*args: Any, **kwargs: Any) -> Any:
        with make_context():
            return function(*args, **kwargs)

    return functools.wraps(function)(run)


def _run_generator_reentering_context_manager(body: Any, context: Context) -> Generator[Any, Any, Any]:
    """Run a generator or a coroutine to its end, inside the context whenever it runs; return what it returns."""
    step, value = body.send, None
    while True:
        try:
            with context:
                item = step(value)
        except StopIteration as end:
            return end.value
        try:
            step, value = body.send, (yield item)
        except GeneratorExit:
            with context:
                body.close()
            raise
        except BaseException as error:
            step, value = body.throw, error


_run_coroutine_in_context = types.coroutine(_run_generator_reentering_context_manager)


def _wrap_async_generator(
    function: Callable[..., AsyncGenerator[Any, Any]], make_context: Callable[[], Context]
) -> Callable[..., AsyncGenerator[Any, Any]]:
    async def run(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        body, turn = function(*args, **kwargs), make_context()
        step: Any = body.__anext__()
        while True:
            try:
                item = await _run_coroutine_in_context(step, turn)
            except StopAsyncIteration:
                return
            try:
                step = body.asend((yield item))
            except GeneratorExit:
                await _run_coroutine_in_context(body.aclose(), turn)
                raise
            except BaseException as error:
                step = body.athrow(error)

    return run
