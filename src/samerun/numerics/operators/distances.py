"""Distances between rows: torch.cdist, always by differences, so that a distance does not depend on the other rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from samerun.numerics.kernels import functions, sums
from samerun.numerics.operators.declare import Members, widen_half_inputs

CHUNK_VALUES = 1 << 18
"""Differences that are held in memory together: what the cache holds."""


def _rows_per_chunk(rows: Tensor, others: Tensor) -> int:
    """How many rows are taken together."""
    each = math.prod(rows.shape[:-2]) * others.shape[-2] * rows.shape[-1]
    return max(1, CHUNK_VALUES // max(each, 1))


def _pairwise_differences(rows: Tensor, others: Tensor) -> Tensor:
    """[..., r, d] and [..., s, d] -> [..., r, s, d]."""
    return torch.sub(rows[..., :, None, :], others[..., None, :, :])


def _broadcast_batches(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]
    return a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])


@widen_half_inputs
def cdist(a: Tensor, b: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    """a [..., r, d], b [..., s, d] -> [..., r, s]: the norm of order p over d of a - b, as `linalg.vector_norm`."""
    fits = min(a.dim(), b.dim()) >= 2 and a.dtype is b.dtype and a.shape[-1] == b.shape[-1]
    if not fits or p < 0 or not a.is_floating_point():
        torch.ops.aten._cdist_forward(a, b, p, compute_mode)  # torch's own words
        raise RuntimeError(f"cdist: {tuple(a.shape)} and {tuple(b.shape)} have no distances of order {p}")
    a, b = _broadcast_batches(a, b)
    out = a.new_zeros(*a.shape[:-1], b.shape[-2])
    if out.numel() == 0 or a.shape[-1] == 0:
        return out
    step = _rows_per_chunk(a, b)
    for at in range(0, a.shape[-2], step):
        part = slice(at, at + step)
        out[..., part, :] = sums.norm(_pairwise_differences(a[..., part, :], b), p, [a.dim()])
    return out


@widen_half_inputs
def cdist_backward(g: Tensor, a: Tensor, b: Tensor, p: float, distances: Tensor) -> Tensor:
    """The gradient of a: class S over the rows of b of, with x = a - b and f the distance (0 where f is 0):

    p = 2: x * (g / f). p = 1: sign(x) * g. p = inf: sign(x) * g where |x| = f. Others:
    (sign(x) * |x|^(p - 1)) * (g / f^(p - 1)), 0 where x is 0. p = 0: 0.
    """
    a, b = _broadcast_batches(a, b)
    out = torch.zeros(a.shape, dtype=a.dtype, device=a.device)
    if p == 0 or out.numel() == 0 or b.shape[-2] == 0:
        return out
    nothing = torch.zeros((), dtype=a.dtype, device=a.device)
    step = _rows_per_chunk(a, b)
    for at in range(0, a.shape[-2], step):
        part = slice(at, at + step)
        x, far, of = _pairwise_differences(a[..., part, :], b), distances[..., part, :, None], g[..., part, :, None]
        if p == 2:
            terms = torch.mul(x, torch.where(far == 0, nothing, torch.div(of, far)))
        elif p == 1:
            terms = torch.mul(torch.sign(x), torch.where(far == 0, nothing, of))
        elif math.isinf(p):
            terms = torch.mul(torch.sign(x), torch.where(far == 0, nothing, of))
            terms = torch.where(x.abs() == far, terms, nothing)
        else:
            less = torch.full((), p - 1, dtype=a.dtype, device=a.device)
            slope = torch.mul(torch.sign(x), functions.pow(x.abs(), less))
            terms = torch.mul(slope, torch.where(far == 0, nothing, torch.div(of, functions.pow(far, less))))
            terms = torch.where(x == 0, nothing, terms)
        out[..., part, :] = sums.sum(terms, [a.dim() - 1])
    return out


@widen_half_inputs
def pdist_backward(g: Tensor, a: Tensor, p: float, distances: Tensor) -> Tensor:
    """torch.pdist: the distances of all pairs of rows, of which each takes the gradient of both its places."""
    n = a.shape[0]
    rows, columns = torch.triu_indices(n, n, 1, device=a.device)
    square, far = (torch.zeros(n, n, dtype=a.dtype, device=a.device) for _ in range(2))
    for place in (rows * n + columns, columns * n + rows):
        square.view(-1).scatter_(0, place, g)
        far.view(-1).scatter_(0, place, distances)
    out: Tensor = cdist_backward(square, a, a, p, far)
    return out


@widen_half_inputs
def pdist(a: Tensor, p: float = 2.0) -> Tensor:
    """The distances of row 0 from 1, 2, ..., of row 1 from 2, ..., as `cdist` gives them."""
    n = a.shape[0]
    rows, columns = torch.triu_indices(n, n, 1, device=a.device)
    out: Tensor = cdist(a, a, p)
    return out[rows, columns]


def cdist_euclidean(a: Tensor, b: Tensor) -> Tensor:
    """What torch.cdist calls where there are more than 25 rows: the same."""
    out: Tensor = cdist(a, b, 2.0)
    return out


MEMBERS: Members = {
    "aten::_cdist_forward": cdist,
    "aten::_cdist_backward": cdist_backward,
    "aten::_euclidean_dist": cdist_euclidean,
    "aten::_pdist_forward": pdist,
    "aten::_pdist_backward": pdist_backward,
}
