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
    """The names in a text, which blanks and line ends separate."""
    return text.split()


class NotInTable(Exception):
    """Raised where an operator has no portable kernel for what it got. `reason`: a sentence; `hint`: what to do."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason, hint)
        self.reason = reason
        self.hint = hint


def divide(x: Tensor, divisor: Any) -> Tensor:
    """x / divisor, rounded once.

    torch's CUDA kernels multiply by the reciprocal of a number; by a tensor they divide.
    """
    if not library.is_off_cpu(x) or (isinstance(divisor, Tensor) and (divisor.dim() or library.is_off_cpu(divisor))):
        return torch.div(x, divisor)
    dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    return torch.div(x, torch.full((), float(divisor), dtype=dtype, device=x.device))


def to_floating(x: Tensor) -> Tensor:
    """x itself, or integers and booleans in the default floating type, as torch's functions take them."""
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


# Half types are for storage: handlers are written once, for float32 and float64, and round to half once, at the end.
# So a result in half precision is the float32 result rounded, whatever steps the handler takes.
def widen_half_inputs(handler: Handler) -> Handler:
    """bfloat16 and float16 are storage types: the handler sees float32, and its results are rounded once."""

    def widened_handler(*args: Any, **kwargs: Any) -> Any:
        half_type = None
        for value in args:
            if isinstance(value, Tensor) and value.dtype in HALF_TYPES:
                half_type = value.dtype
                break
        if half_type is None:
            return handler(*args, **kwargs)
        if any(isinstance(value, Tensor) and value.dtype in (torch.float32, torch.float64) for value in args):
            half_type = torch.float32  # torch promotes
        out = handler(*map(_widen_tensor, args), **{name: _widen_tensor(value) for name, value in kwargs.items()})
        if isinstance(out, Tensor):
            return _round_tensor(out, half_type)
        return tuple(_round_tensor(item, half_type) for item in out)

    return widened_handler


def _widen_tensor(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype in HALF_TYPES else value


def _round_tensor(out: Any, half_type: torch.dtype) -> Any:
    return out.to(half_type) if isinstance(out, Tensor) and out.dtype is torch.float32 else out
