"""What samerun raises. Every error says what happened and what to do next."""

from __future__ import annotations

from samerun.base.text import escape_and_truncate_for_terminal


class SamerunError(Exception):
    """The base of every error of samerun.

    `message`: one sentence that carries the user's own call and its numbers. `hint`: the next step, or None.
    `str()` is the message, then the hint on a line of its own, indented by two spaces.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        message, hint = (
            escape_and_truncate_for_terminal(message),
            None if hint is None else escape_and_truncate_for_terminal(hint),
        )
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"


class SeedError(SamerunError, ValueError):
    """A seed, a state of random generators or the registration of one that samerun cannot use."""


class SwitchError(SamerunError, ValueError):
    """A setting with which a run cannot be held still: an argument, or a value in the environment."""


class TooLateError(SamerunError, RuntimeError):
    """A setting had to be made before the interpreter, torch, CUDA or a library started, and was not."""


class UnseededError(SamerunError, RuntimeError):
    """Strict mode: the program's own code made a generator without a seed, or drew from the system's entropy."""


class DataError(SamerunError, ValueError):
    """A dataset, an order, a loader or a loader's state that samerun cannot use."""


class CheckpointError(SamerunError):
    """A training checkpoint that cannot be written, is damaged, or does not fit what it is loaded into."""


class UnfitStateError(CheckpointError, DataError, SeedError):
    """A part of a checkpoint, or the random generators, did not take their state."""


class OwnGeneratorWarning(UserWarning):
    """A dataset or a transform draws from a generator of its own, which no key reaches."""


class CudaError(SamerunError, RuntimeError):
    """The CUDA driver refuses a call, or reports what an earlier kernel did: after most errors the process is lost."""


class NotPortableError(SamerunError):
    """Inside `samerun.portable()`: an operator whose bits nothing promises to be the same elsewhere."""


class NotPortableWarning(UserWarning):
    """The same inside `samerun.portable(unsupported="warn")`."""


class WrongResultError(SamerunError):
    """`samerun.guard`: one of several computations of a step gave other bits. `record`: what was written of it."""

    def __init__(self, message: str, hint: str | None = None, record: dict[str, object] | None = None) -> None:
        super().__init__(message, hint)
        self.record = record or {}


class WrongResultWarning(UserWarning):
    """The same with `samerun.guard(..., on_mismatch="warn")`."""


class StepNotRepeatableError(SamerunError):
    """`samerun.guard`: a step that is computed again computes something else, so that nothing can be compared."""
