"""What the gradients of the padding layers share."""

from __future__ import annotations

import torch
from torch import Tensor


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
