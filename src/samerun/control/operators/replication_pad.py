"""The gradients of nn.ReplicationPad1d, 2d and 3d."""

from __future__ import annotations

from torch import Tensor

from samerun.control.operators.declare import Kernel, Operator, widened
from samerun.control.operators.padding import unpadded


def gradient(grad_output: Tensor, self: Tensor, padding: list[int]) -> Tensor:
    out = widened(grad_output)
    for dim, (before, after) in enumerate(zip(padding[::2], padding[1::2], strict=True), start=1):
        inputs = self.shape[-dim]
        inner = unpadded(out, -dim, inputs, before, after)
        if before > 0:
            inner.narrow(-dim, 0, 1).add_(out.narrow(-dim, 0, before).sum(-dim, keepdim=True))
        if after > 0:
            edge = out.narrow(-dim, out.shape[-dim] - after, after)
            inner.narrow(-dim, inputs - 1, 1).add_(edge.sum(-dim, keepdim=True))
        out = inner
    return out.to(grad_output.dtype)


def _kernel(dims: int) -> Kernel:
    name = f"replication_pad{dims}d_backward"
    return Kernel(gradient, (name, f"{name}.grad_input"))


OPERATOR = Operator(
    "replication_pad",
    ("torch.nn.ReplicationPad1d", "torch.nn.ReplicationPad2d", "torch.nn.ReplicationPad3d"),
    "The gradients of nn.ReplicationPad1d, 2d and 3d, where they are called without torch.nn.functional (which writes"
    " them otherwise in deterministic mode).",
    "One dimension after the other, the middle is copied, and the sums over both edges are added to its ends.",
    "For each dimension a copy of the gradient and two sums over its edges.",
    (_kernel(1), _kernel(2), _kernel(3)),
)
