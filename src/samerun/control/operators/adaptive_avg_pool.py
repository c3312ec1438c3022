"""The gradients of nn.AdaptiveAvgPool1d, 2d and 3d."""

from __future__ import annotations

from torch import Tensor

from samerun.control.operators.declare import Kernel, Operator, widened
from samerun.control.operators.pooling_windows import adaptive
from samerun.control.operators.windows import gathered


def gradient(grad_output: Tensor, self: Tensor, dims: int) -> Tensor:
    out = widened(grad_output)
    for dim in range(-1, -1 - dims, -1):
        table, sizes = adaptive(self.shape[dim], out.shape[dim], self.device)
        out = gathered(out / sizes.view(-1, *(1,) * (-1 - dim)), dim, table)
    return out.to(grad_output.dtype)


def gradient_2d(grad_output: Tensor, self: Tensor) -> Tensor:
    return gradient(grad_output, self, 2)


def gradient_3d(grad_output: Tensor, self: Tensor) -> Tensor:
    return gradient(grad_output, self, 3)


OPERATOR = Operator(
    "adaptive_avg_pool",
    ("torch.nn.AdaptiveAvgPool2d", "torch.nn.AdaptiveAvgPool3d"),
    "The gradients of nn.AdaptiveAvgPool1d, 2d and 3d.",
    "One dimension after the other, each input gathers the outputs that averaged over it, in ascending order.",
    "For each dimension a gather, a division and a sum over the gradient; its size again in memory.",
    (
        Kernel(gradient_2d, ("_adaptive_avg_pool2d_backward",)),
        Kernel(gradient_3d, ("_adaptive_avg_pool3d_backward", "adaptive_avg_pool3d_backward.grad_input")),
    ),
)
