"""What losses share: their terms made one number, and the gradient of each term. 0 none, 1 mean, 2 sum."""

from __future__ import annotations

import torch
from torch import Tensor

from samerun.numerics.kernels import sums

MEAN, SUM = 1, 2


def reduce_terms(terms: Tensor, reduction: int) -> Tensor:
    """The mean or the sum of all terms, by class S, or the terms themselves."""
    if reduction == MEAN:
        return sums.mean(terms)
    return sums.sum(terms) if reduction == SUM else terms


def spread_gradient(g: Tensor, terms: Tensor, reduction: int) -> Tensor:
    """The gradient of each term: g / n for the mean, else g."""
    if reduction == MEAN:
        return torch.div(g, torch.full((), float(terms.numel()), dtype=g.dtype, device=g.device))
    return g
