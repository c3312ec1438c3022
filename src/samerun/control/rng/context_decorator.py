"""Run every call of a function inside a context manager.

A generator, a coroutine or an async generator leaves the context whenever it yields or awaits, and enters it again
when it is resumed. So what other code does in between happens outside.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any

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
            return (yield from _run_generator_in_context(function(*args, **kwargs), make_context()))

        return functools.wraps(function)(run_generator)

    def run(*args: Any, **kwargs: Any) -> Any:
        with make_context():
            return function(*args, **kwargs)

    return functools.wraps(function)(run)


def _run_generator_in_context(body: Any, context: Context) -> Generator[Any, Any, Any]:
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


_run_coroutine_in_context = types.coroutine(_run_generator_in_context)


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
