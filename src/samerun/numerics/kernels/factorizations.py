"""Orthogonal and triangular matrices, in batches: the steps of `reference.factorizations`.

Tensors are [batch, m, n] of float32 or float64, on any device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from samerun.numerics.kernels import sums
from samerun.numerics.kernels.elementwise import sqrt
from samerun.numerics.kernels.products import matmul


def _column_exponents(a: Tensor) -> Tensor:
    """int64 [batch, 1, n]."""
    if a.shape[1] == 0:
        return torch.zeros(a.shape[0], 1, a.shape[2], dtype=torch.int64, device=a.device)
    largest = torch.amax(torch.abs(a).to(torch.float64), 1, keepdim=True)
    usable = torch.isfinite(largest) & (largest > 0)
    found = torch.frexp(torch.where(usable, largest, 1.0))[1].to(torch.int64)
    return torch.clamp(torch.where(usable, found, 0), -1000, 1000)


def _scale_by_power_of_two(a: Tensor, e: Tensor) -> Tensor:
    return torch.mul(a.to(torch.float64), ((e + 1023) << 52).view(torch.float64)).to(a.dtype)


def _apply_reflection(a: Tensor, v: Tensor, tau: Tensor) -> None:
    """a - v (tau (v' a)), in place; v [batch, m], tau [batch]."""
    row = torch.mul(matmul(v[:, None, :], a), tau[:, None, None])
    a.sub_(torch.mul(v[:, :, None], row))


def householder_qr(a: Tensor) -> tuple[Tensor, Tensor]:
    """The triangle on and above the diagonal, below it the vectors of the reflections; and tau [batch, min(m, n)]."""
    batch, m, n = a.shape
    e = _column_exponents(a)
    r, k = _scale_by_power_of_two(a, torch.neg(e)), min(m, n)
    tau = torch.zeros(batch, k, dtype=a.dtype, device=a.device)
    for j in range(k):
        first, below = r[:, j, j].clone(), r[:, j + 1 :, j].contiguous()
        squares = sums.tree_sum("square", below, [1])
        moves = squares != 0  # also of NaN; where nothing is to be made 0, tau is 0
        last = torch.neg(torch.copysign(sqrt(torch.add(torch.mul(first, first), squares)), first))
        one = torch.where(moves, torch.div(torch.sub(last, first), last), 0.0)
        v = torch.ones(batch, m - j, dtype=a.dtype, device=a.device)
        v[:, 1:] = torch.where(moves[:, None], torch.div(below, torch.sub(first, last)[:, None]), below)
        _apply_reflection(r[:, j:, j + 1 :], v, one)
        r[:, j, j] = torch.where(moves, last, first)
        r[:, j + 1 :, j] = v[:, 1:]
        tau[:, j] = one
    above = torch.arange(m, device=a.device)[:, None] <= torch.arange(n, device=a.device)
    return torch.where(above, _scale_by_power_of_two(r, e), r), tau


def multiply_reflectors(v: Tensor, tau: Tensor, columns: int) -> Tensor:
    """The first columns of the product of the reflections."""
    batch, m = v.shape[:2]
    q = torch.eye(m, columns, dtype=v.dtype, device=v.device).repeat(batch, 1, 1)
    for j in reversed(range(tau.shape[1])):
        one = torch.ones(batch, m - j, dtype=v.dtype, device=v.device)
        one[:, 1:] = v[:, j + 1 :, j]
        _apply_reflection(q[:, j:, j:], one, tau[:, j])
    return q


def solve_triangular(a: Tensor, b: Tensor, upper: bool, unit: bool) -> Tensor:
    """x of a x = b, a triangular [batch, n, n], b [batch, n, k]."""
    n = a.shape[1]
    x = torch.zeros_like(b, memory_format=torch.contiguous_format)
    for i in reversed(range(n)) if upper else range(n):
        known = slice(i + 1, n) if upper else slice(0, i)
        row = torch.sub(b[:, i], matmul(a[:, i : i + 1, known], x[:, known])[:, 0])
        x[:, i] = row if unit else torch.div(row, a[:, i, i, None])
    return x
