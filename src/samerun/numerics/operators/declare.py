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

HALF_TYPES = (torch.bfloat16, torch.float16)


def split_names(text: str) -> list[str]:
    """Names apart by blanks."""
    return text.split()


class NotInTable(Exception):
    """Raised where an operator has no portable kernel for what it got. `reason`: a sentence; `hint`: what to do."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason, hint)
        self.reason = reason
        self.hint = hint


def divide(x: Tensor, by: Any) -> Tensor:
    """x / by, rounded once. torch's CUDA kernels multiply by the reciprocal of a number; by a tensor they divide."""
    if not library.is_off_cpu(x) or (isinstance(by, Tensor) and (by.dim() or library.is_off_cpu(by))):
        return torch.div(x, by)
    dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    return torch.div(x, torch.full((), float(by), dtype=dtype, device=x.device))


def to_floating(x: Tensor) -> Tensor:
    """x itself, or integers and booleans in the default floating type, as torch's functions take them."""
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


def widen_half_inputs(handler: Handler) -> Handler:
    """bfloat16 and float16 are storage types: the handler sees float32, and its results are rounded once."""

    def wide(*args: Any, **kwargs: Any) -> Any:
        narrow = None
        for given in args:
            if isinstance(given, Tensor) and given.dtype in HALF_TYPES:
                narrow = given.dtype
                break
        if narrow is None:
            return handler(*args, **kwargs)
        if any(isinstance(given, Tensor) and given.dtype in (torch.float32, torch.float64) for given in args):
            narrow = torch.float32  # torch promotes
        out = handler(*map(_widen_tensor, args), **{name: _widen_tensor(given) for name, given in kwargs.items()})
        if isinstance(out, Tensor):
            return _round_tensor(out, narrow)
        return tuple(_round_tensor(item, narrow) for item in out)

    return wide


def _widen_tensor(given: Any) -> Any:
    return given.float() if isinstance(given, Tensor) and given.dtype in HALF_TYPES else given


def _round_tensor(out: Any, narrow: torch.dtype) -> Any:
    return out.to(narrow) if isinstance(out, Tensor) and out.dtype is torch.float32 else out
