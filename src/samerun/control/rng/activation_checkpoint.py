"""Activation checkpointing that draws the same numbers in the recomputation, whoever draws them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from samerun.base.errors import SamerunError
from samerun.control.rng.state import RNGSnapshot, restore_snapshot, take_snapshot


def checkpoint(function: Callable[..., Any], *args: Any, preserve_rng_state: bool = True, **kwargs: Any) -> Any:
    """`torch.utils.checkpoint.checkpoint`, with the random numbers of Python, NumPy and all others preserved.

        hidden = samerun.checkpoint(block, hidden, use_reentrant=False)

    Torch puts back its own generators when it computes `function` again for the backward pass, and no others:
    with `random.random()` or `numpy.random.rand()` inside, the second computation draws other numbers and the
    gradient is wrong, silently. Here every generator is put back that `seed_everything` knows: those of
    Python, NumPy, torch on every device, registered ones (`register_rng`) and named streams (`stream`).
    Outside, no stream moves through the recomputation, nor through an exception in it. May be nested.

    The parameters are those of the installed torch, and are handed to it: `use_reentrant`, `context_fn`,
    `determinism_check`, `debug`, `early_stop`, and for `use_reentrant=False` keyword arguments of `function`.
    preserve_rng_state: False puts nothing back, neither here nor in torch.

    Not put back: `random.Random`, `numpy.random.Generator` and `torch.Generator` objects of your own (use
    `stream`), and generators of libraries that give no state. Under `torch.compile` the graph breaks here.

    Returns what `function` returns; raises what it and torch raise.
    """
    import torch.utils.checkpoint

    call = _exclude_from_compile(torch.utils.checkpoint.checkpoint)
    if preserve_rng_state and torch.is_grad_enabled():  # without gradients nothing is computed again
        function = _FunctionWithRepeatedDraws(function)
    return call(function, *args, preserve_rng_state=preserve_rng_state, **kwargs)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """`torch.utils.checkpoint.checkpoint_sequential`, with all random numbers preserved as by `checkpoint`.

    functions: a `torch.nn.Sequential` or a list of functions, run one after the other on `input`. segments:
    into how many parts they are cut, from 1 to their number; the last part is not checkpointed. The other
    parameters are those of the installed torch, and are handed to it.

    Returns what the last function returns. Raises SamerunError if `segments` is out of range.
    """
    import torch.utils.checkpoint

    steps = list(functions.children() if isinstance(functions, torch.nn.Sequential) else functions)
    if isinstance(segments, bool) or not isinstance(segments, int) or not 1 <= segments <= len(steps):
        raise SamerunError(
            f"checkpoint_sequential(segments={segments!r}): a whole number from 1 to {len(steps)},"
            " the number of functions.",
            "The more segments, the less is kept for the backward pass, and the more is computed again.",
        )
    size = len(steps) // segments
    parts: list[Any] = [_FunctionChain(steps[index * size : (index + 1) * size]) for index in range(segments - 1)]
    if kwargs.get("preserve_rng_state", True) and torch.is_grad_enabled():
        parts = [_FunctionWithRepeatedDraws(part) for part in parts]
    parts.append(_FunctionChain(steps[(segments - 1) * size :]))
    call = _exclude_from_compile(torch.utils.checkpoint.checkpoint_sequential)
    return call(parts, segments, input, use_reentrant=use_reentrant, **kwargs)


def _exclude_from_compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, not traced by `torch.compile`: taking and putting back states cannot be in a graph."""
    import torch

    disable: Any = torch.compiler.disable
    call: Callable[..., Any] = disable(function)
    return call


class _FunctionWithRepeatedDraws:
    """Calls a function; from the second call on, it draws the random numbers of the first."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._start: RNGSnapshot | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._start is None:
            self._start = take_snapshot(start_devices=False)
            return self._function(*args, **kwargs)
        outside = take_snapshot(start_devices=False)
        try:
            restore_snapshot(self._start)
            return self._function(*args, **kwargs)
        finally:
            restore_snapshot(outside)


class _FunctionChain:
    """Functions, one after the other."""

    def __init__(self, functions: Sequence[Callable[[Any], Any]]) -> None:
        self._functions = functions

    def __call__(self, value: Any) -> Any:
        for function in self._functions:
            value = function(value)
        return value
