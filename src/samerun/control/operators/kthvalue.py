"""torch.kthvalue, whose index is any of several equal values."""

from __future__ import annotations

import torch
from torch import Tensor

from samerun.control.operators.declare import Kernel, Operator


def kth(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The k-th smallest along `dim` and its index: of equal values, those that come first count first."""
    if self.dim() == 0:
        return self.clone(), torch.zeros((), dtype=torch.int64, device=self.device)
    size = self.shape[dim]
    if not 1 <= k <= size:
        raise RuntimeError(f"kthvalue(): k={k} is out of range for dimension {dim}, which has {size} values.")
    values, indices = torch.sort(self, dim=dim, stable=True)
    values, indices = values.narrow(dim, k - 1, 1), indices.narrow(dim, k - 1, 1)
    return (values.clone(), indices.clone()) if keepdim else (values.squeeze(dim).clone(), indices.squeeze(dim).clone())


OPERATOR = Operator(
    "kthvalue",
    (),
    "torch.kthvalue (torch's list leaves it out).",
    "A stable sort; of equal values, those that come first count first.",
    "A sort of the whole tensor, with its indices.",
    (Kernel(kth, ("kthvalue", "kthvalue.values")),),
)
