"""`samerun.portable()`: plain torch code whose results have the same bits on any machine, or an error.

The bootstrap `sitecustomize` calls `start`, which puts it in force before the program's first line.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from types import ModuleType, TracebackType
from typing import Any, Literal, TypeVar

from samerun.base.errors import SamerunError
from samerun.base.hooks import PostImportHooks

F = TypeVar("F", bound=Callable[..., Any])
UNSUPPORTED = ("error", "warn")
LeaveCallback = Callable[[], None]


class portable(ContextDecorator):
    """Inside, every torch operator of this thread gives the bits of the numerical specification, or raises.

        with samerun.portable():
            loss = model(x).sum()
            loss.backward()
            optimizer.step()

    or `@samerun.portable()` over a function. The backward pass must run inside too. May be nested and used from
    several threads; a thread that is started inside enters for itself. Forked DataLoader workers are inside if
    the loop over the loader is; workers that are spawned enter in `worker_init_fn`.

    Args:
        unsupported: what happens at an operator, type or device without a portable kernel. "error" raises
            NotPortableError; "warn" lets torch's own kernel run and gives a NotPortableWarning for each line,
            which is weaker: the results are then those of this machine.

    Raises:
        SamerunError: for another value of `unsupported`; on entering where torch is not installed, or where
            subnormal numbers are flushed to zero in this thread (`torch.set_flush_denormal(True)`).
    """

    def __init__(self, *, unsupported: Literal["error", "warn"] = "error") -> None:
        if unsupported not in UNSUPPORTED:
            raise SamerunError(
                f"portable(unsupported={unsupported!r}): it is one of {', '.join(map(repr, UNSUPPORTED))}."
            )
        self._unsupported = unsupported
        self._entered = threading.local()

    def __enter__(self) -> portable:
        try:
            from samerun.numerics.dispatch import mode
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise SamerunError("portable(): torch is not installed.", "pip install torch") from None
        leave = mode.enter_portable_mode(self._unsupported)
        self._leave_callbacks_of_thread().append(leave)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave_callbacks_of_thread().pop()()

    def __call__(self, func: F) -> F:
        for is_kind, kind in (
            (inspect.isgeneratorfunction, "a generator"),
            (inspect.iscoroutinefunction, "a coroutine"),
            (inspect.isasyncgenfunction, "an asynchronous generator"),
        ):
            if is_kind(func):
                raise SamerunError(
                    f"@portable(): {func.__qualname__} is {kind}, whose body runs after the call has returned.",
                    "Write `with samerun.portable():` inside it.",
                )
        return super().__call__(func)

    # torch.compile does not look into them (torch.compiler.disable sets this too, but imports the compiler).
    __enter__._torchdynamo_disable = True  # type: ignore[attr-defined]
    __exit__._torchdynamo_disable = True  # type: ignore[attr-defined]

    def _leave_callbacks_of_thread(self) -> list[LeaveCallback]:
        try:
            callbacks: list[LeaveCallback] = self._entered.stack
        except AttributeError:
            callbacks = self._entered.stack = []
        return callbacks


def is_inside_portable() -> bool:
    """Whether this thread is inside `portable()`, as torch's dispatcher has it. Imports nothing."""
    if "torch" not in sys.modules:
        return False
    from samerun.numerics.dispatch import mode

    return mode.current_portable_mode() is not None


PORTABLE_VARIABLE = "SAMERUN_PORTABLE"
"""Set: every Python process of the program is inside `portable()` from the end of its import of torch on."""

_after_import = PostImportHooks()


def start() -> None:
    """Have this process enter `portable()` once torch is imported, for good."""
    _after_import.call_now_or_after_import("torch", _enter_portable_or_exit)
    _after_import.install()


def _enter_portable_or_exit(torch: ModuleType) -> None:
    try:
        portable().__enter__()
    except SamerunError as error:
        sys.stderr.write(f"samerun: {error}\n")
        sys.stderr.flush()
        os._exit(2)
