"""The gradients of nn.ReplicationPad1d, 2d and 3d."""

from __future__ import annotations

from torch import Tensor

from samerun.control.operators.declare import Operator
from samerun.control.operators.padding import kernels


def _fold(inner: Tensor, gradient: Tensor, dim: int, before: int, after: int) -> None:
    if before > 0:
        inner.narrow(dim, 0, 1).add_(gradient.narrow(dim, 0, before).sum(dim, keepdim=True))
    if after > 0:
        edge = gradient.narrow(dim, gradient.shape[dim] - after, after)
        inner.narrow(dim, inner.shape[dim] - 1, 1).add_(edge.sum(dim, keepdim=True))


OPERATOR = Operator(
    "replication_pad",
    ("torch.nn.ReplicationPad1d", "torch.nn.ReplicationPad2d", "torch.nn.ReplicationPad3d"),
    "The gradients of nn.ReplicationPad1d, 2d and 3d, where they are called without torch.nn.functional (which writes"
    " them otherwise in deterministic mode).",
    "One dimension after the other, the middle is copied, and the sums over both edges are added to its ends.",
    "For each dimension a copy of the gradient and two sums over its edges.",
    kernels("replication_pad", _fold),
)
