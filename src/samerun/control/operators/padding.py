"""What the gradients of the padding layers share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from samerun.control.operators.declare import Kernel, widened


def unpadded(gradient: Tensor, dim: int, inputs: int, before: int, after: int) -> Tensor:
    """A new tensor with `inputs` cells along `dim`: those of `gradient` without its edges, 0 where it was cropped.

    before, after: how wide the edges are; less than 0 where the layer cropped.
    """
    shape = list(gradient.shape)
    shape[dim] = inputs
    out = torch.zeros(shape, dtype=gradient.dtype, device=gradient.device)
    start, end = max(-before, 0), inputs - max(-after, 0)
    if end > start:
        out.narrow(dim, start, end - start).copy_(gradient.narrow(dim, max(before, 0), end - start))
    return out


def kernels(layer: str, fold: Callable[[Tensor, Tensor, int, int, int], None]) -> tuple[Kernel, ...]:
    """The gradients of a padding layer of one to three dimensions, one dimension after the other.

    fold(inner, gradient, dim, before, after): add the edges of `gradient` along `dim`, as wide as `before` and
    `after` say (none where that is not above 0), to `inner`, which holds what lies between them.
    """

    def gradient(grad_output: Tensor, self: Tensor, padding: list[int]) -> Tensor:
        out = widened(grad_output)
        for dim, (before, after) in enumerate(zip(padding[::2], padding[1::2], strict=True), start=1):
            inner = unpadded(out, -dim, self.shape[-dim], before, after)
            fold(inner, out, -dim, before, after)
            out = inner
        return out.to(grad_output.dtype)

    names = (f"{layer}{dims}d_backward" for dims in (1, 2, 3))
    return tuple(Kernel(gradient, (name, f"{name}.grad_input")) for name in names)
