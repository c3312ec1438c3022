"""What members of the table share: how a deterministic operator is declared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

HALF_TYPES = (torch.bfloat16, torch.float16)
"""Types that are upcast to float32 before they are added up, and rounded once at the end."""


def accept_any_arguments(*args: Any, **kwargs: Any) -> Literal[True]:
    return True


@dataclass(frozen=True)
class Kernel:
    """One way to compute, for several overloads of one operator.

    compute: takes what the operator's functional overload takes, plain strided tensors of one device; returns new
        tensors, without touching its arguments.
    overloads: all that go there ("histc", "histc.out"); those that write into an argument follow from it.
    keys: the dispatch keys at which torch refuses, or gives other bits in every run.
    applies: whether `compute` serves these arguments; for others torch's own kernel is called.
    """

    compute: Callable[..., Any]
    overloads: tuple[str, ...]
    keys: tuple[str, ...] = ("CUDA",)
    applies: Callable[..., bool] = accept_any_arguments


@dataclass(frozen=True)
class DeterministicOperator:
    """An operator of which torch has no deterministic algorithm.

    name: for people, and of its section in the documentation.
    listed: how `torch.use_deterministic_algorithms` names it in its documentation; () where it does not.
    what: what of it torch refuses, as one sentence. method: how it is computed here. cost: of time and memory.
    kernels: what is put into torch's dispatcher.
    """

    name: str
    listed: tuple[str, ...]
    what: str
    method: str
    cost: str
    kernels: tuple[Kernel, ...]


def upcast_half_to_float32(values: Tensor) -> Tensor:
    """`values`, or those of a 16-bit type in float32."""
    return values.float() if values.dtype in HALF_TYPES else values
