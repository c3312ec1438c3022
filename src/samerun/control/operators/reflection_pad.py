"""The gradients of nn.ReflectionPad1d, 2d and 3d."""

from __future__ import annotations

from torch import Tensor

from samerun.control.operators.declare import Kernel, Operator, widened
from samerun.control.operators.padding import unpadded


def gradient(grad_output: Tensor, self: Tensor, padding: list[int]) -> Tensor:
    out = widened(grad_output)
    for dim, (before, after) in enumerate(zip(padding[::2], padding[1::2], strict=True), start=1):
        inputs = self.shape[-dim]
        inner = unpadded(out, -dim, inputs, before, after)
        if before > 0:  # position before - k mirrors input k
            inner.narrow(-dim, 1, before).add_(out.narrow(-dim, 0, before).flip(-dim))
        if after > 0:
            mirrored = out.narrow(-dim, out.shape[-dim] - after, after).flip(-dim)
            inner.narrow(-dim, inputs - 1 - after, after).add_(mirrored)
        out = inner
    return out.to(grad_output.dtype)


def _kernel(dims: int) -> Kernel:
    name = f"reflection_pad{dims}d_backward"
    return Kernel(gradient, (name, f"{name}.grad_input"))


OPERATOR = Operator(
    "reflection_pad",
    ("torch.nn.ReflectionPad1d", "torch.nn.ReflectionPad2d", "torch.nn.ReflectionPad3d"),
    "The gradients of nn.ReflectionPad1d, 2d and 3d.",
    "One dimension after the other, the middle is copied, then the mirrored edge before it is added, then the one"
    " after it.",
    "For each dimension a copy of the gradient and two sums over its edges.",
    (_kernel(1), _kernel(2), _kernel(3)),
)
