"""The gradients of nn.ReflectionPad1d, 2d and 3d."""

from __future__ import annotations

from torch import Tensor

from samerun.control.operators.declare import Operator
from samerun.control.operators.padding import kernels


def _fold(inner: Tensor, gradient: Tensor, dim: int, before: int, after: int) -> None:
    if before > 0:  # position before - k mirrors input k
        inner.narrow(dim, 1, before).add_(gradient.narrow(dim, 0, before).flip(dim))
    if after > 0:
        mirrored = gradient.narrow(dim, gradient.shape[dim] - after, after).flip(dim)
        inner.narrow(dim, inner.shape[dim] - 1 - after, after).add_(mirrored)


OPERATOR = Operator(
    "reflection_pad",
    ("torch.nn.ReflectionPad1d", "torch.nn.ReflectionPad2d", "torch.nn.ReflectionPad3d"),
    "The gradients of nn.ReflectionPad1d, 2d and 3d.",
    "One dimension after the other, the middle is copied, then the mirrored edge before it is added, then the one"
    " after it.",
    "For each dimension a copy of the gradient and two sums over its edges.",
    kernels("reflection_pad", _fold),
)
