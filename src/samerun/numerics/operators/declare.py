"""What members of the table share: how an operator is declared, and how one is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from samerun.numerics.kernels import library

Handler = Callable[..., Any]
"""Takes what the operator's functional overload takes; sees plain tensors, with no mode in force."""
Members = dict[str, Handler]
"""Operator ("aten::exp") or overload ("aten::add.Tensor") -> handler. The forms that write into an argument
(`exp_`, `exp.out`) follow from it."""

NARROW = (torch.bfloat16, torch.float16)


def words(text: str) -> list[str]:
    """Names apart by blanks."""
    return text.split()


class NotInTable(Exception):
    """Raised where an operator has no portable kernel for what it got. `reason`: a sentence; `hint`: what to do."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason, hint)
        self.reason = reason
        self.hint = hint


def divided(x: Tensor, by: Any) -> Tensor:
    """x / by, rounded once. torch's CUDA kernels multiply by the reciprocal of a number; by a tensor they divide."""
    if not library.elsewhere(x) or (isinstance(by, Tensor) and (by.dim() or library.elsewhere(by))):
        return torch.div(x, by)
    dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    return torch.div(x, torch.full((), float(by), dtype=dtype, device=x.device))


def floating(x: Tensor) -> Tensor:
    """x itself, or integers and booleans in the default floating type, as torch's functions take them."""
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


def widened(handler: Handler) -> Handler:
    """bfloat16 and float16 are storage types: the handler sees float32, and its results are rounded once."""

    def wide(*args: Any, **kwargs: Any) -> Any:
        narrow = None
        for given in args:
            if isinstance(given, Tensor) and given.dtype in NARROW:
                narrow = given.dtype
                break
        if narrow is None:
            return handler(*args, **kwargs)
        if any(isinstance(given, Tensor) and given.dtype in (torch.float32, torch.float64) for given in args):
            narrow = torch.float32  # torch promotes
        out = handler(*map(_up, args), **{name: _up(given) for name, given in kwargs.items()})
        if isinstance(out, Tensor):
            return _down(out, narrow)
        return tuple(_down(item, narrow) for item in out)

    return wide


def _up(given: Any) -> Any:
    return given.float() if isinstance(given, Tensor) and given.dtype in NARROW else given


def _down(out: Any, narrow: torch.dtype) -> Any:
    return out.to(narrow) if isinstance(out, Tensor) and out.dtype is torch.float32 else out
