"""nn.NLLLoss (and nn.CrossEntropyLoss) of images."""

from __future__ import annotations

import torch
from torch import Tensor

from samerun.control.operators.declare import Kernel, Operator, widened

NONE, MEAN = 0, 1


def loss(
    self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """self: [batch, classes, height, width]; target: int[batch, height, width]. Returns the loss and all weight."""
    counted = target != ignore_index
    classes = torch.where(counted, target, 0).to(torch.int64)
    picked = -widened(self).gather(1, classes.unsqueeze(1)).squeeze(1)
    if weight is None:
        weights = counted.to(picked.dtype)
    else:
        weights = widened(weight).index_select(0, classes.reshape(-1)).view(classes.shape)
        weights = torch.where(counted, weights, 0)
    losses = torch.where(counted, picked * weights, 0)
    if reduction == NONE:
        return losses.to(self.dtype), torch.zeros((), dtype=self.dtype, device=self.device)
    total = weights.sum()
    whole = losses.sum()
    return (whole / total if reduction == MEAN else whole).to(self.dtype), total.to(self.dtype)


def _reduces(self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int) -> bool:
    return reduction != NONE and self.dim() == 4 and target.shape == (self.shape[0], *self.shape[2:])


OPERATOR = Operator(
    "nll_loss2d",
    ("torch.nn.NLLLoss",),
    "nn.NLLLoss and nn.CrossEntropyLoss of images, with a mean or a sum.",
    "The losses of all pixels are gathered and weighted, and added by torch's own sum.",
    "Three tensors of the size of the target.",
    (Kernel(loss, ("nll_loss2d_forward", "nll_loss2d_forward.output"), applies=_reduces),),
)
