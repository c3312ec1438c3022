"""Make a function run inside a context: a plain one whole, others only while they really run.

A generator, a coroutine or an async generator leaves the context whenever it hands over, and enters it again
when it goes on. So what others do in between is outside.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any

Context = AbstractContextManager[Any]


def in_turns(function: Callable[..., Any], context: Callable[[], Context]) -> Callable[..., Any]:
    """`function`, each call of which runs inside a `context()` of its own, entered once for every turn."""
    if inspect.iscoroutinefunction(function):

        async def run_coroutine(*args: Any, **kwargs: Any) -> Any:
            return await _awaited(function(*args, **kwargs), context())

        return functools.wraps(function)(run_coroutine)
    if inspect.isasyncgenfunction(function):
        return functools.wraps(function)(_async_generator(function, context))
    if inspect.isgeneratorfunction(function):

        def run_generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            return (yield from _drive(function(*args, **kwargs), context()))

        return functools.wraps(function)(run_generator)

    def run(*args: Any, **kwargs: Any) -> Any:
        with context():
            return function(*args, **kwargs)

    return functools.wraps(function)(run)


def _drive(body: Any, context: Context) -> Generator[Any, Any, Any]:
    """Run `body`, a generator or a coroutine, to its end; return what it returns."""
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


_awaited = types.coroutine(_drive)


def _async_generator(
    function: Callable[..., AsyncGenerator[Any, Any]], context: Callable[[], Context]
) -> Callable[..., AsyncGenerator[Any, Any]]:
    async def run(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        body, turn = function(*args, **kwargs), context()
        step: Any = body.__anext__()
        while True:
            try:
                item = await _awaited(step, turn)
            except StopAsyncIteration:
                return
            try:
                step = body.asend((yield item))
            except GeneratorExit:
                await _awaited(body.aclose(), turn)
                raise
            except BaseException as error:
                step = body.athrow(error)

    return run
