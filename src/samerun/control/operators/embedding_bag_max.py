"""The gradient of nn.EmbeddingBag(mode="max")."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from samerun.control.operators.declare import Kernel, Operator
from samerun.control.operators.segments import summed

MAX = 2


def gradient(
    grad: Tensor, indices: Tensor, offset2bag: Tensor, bag_size: Tensor, maximum_indices: Tensor, num_weights: int,
    *others: Any, **named: Any,
) -> Tensor:  # fmt: skip
    """maximum_indices: int[bags, features], the row that each bag took in each feature."""
    features = grad.shape[1]
    taken = maximum_indices >= 0  # CUDA writes -1 for an empty bag, the CPU 0
    if not grad.is_cuda:
        taken = taken & (bag_size > 0).unsqueeze(1)
    cells = maximum_indices.to(torch.int64) * features + torch.arange(features, device=grad.device)
    rows = taken.reshape(-1).nonzero().flatten()
    keys, values = cells.reshape(-1).index_select(0, rows), grad.reshape(-1).index_select(0, rows)
    return summed(keys, values, num_weights * features).view(num_weights, features)


def _is_max(
    grad: Tensor, indices: Tensor, offset2bag: Tensor, bag_size: Tensor, maximum_indices: Tensor, num_weights: int,
    scale_grad_by_freq: bool, mode: int, *others: Any, **named: Any,
) -> bool:  # fmt: skip
    return mode == MAX


OPERATOR = Operator(
    "embedding_bag_max",
    ("torch.nn.EmbeddingBag",),
    'The gradient of nn.EmbeddingBag(mode="max").',
    "Gradients are sorted by the weight that they belong to, stably, and those of one weight are added in the order"
    " of the bags.",
    "A sort of as many 64-bit numbers as there are outputs; the device is waited for.",
    (Kernel(gradient, ("_embedding_bag_dense_backward",), applies=_is_max),),
)
