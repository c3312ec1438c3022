"""QR, products of reflections and triangular systems. float32 and float64, as torch has them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from samerun.numerics.kernels import linear_algebra as kernels
from samerun.numerics.operators.declare import Members


def _flatten_batches(operator: str, name: str, a: Tensor) -> Tensor:
    """[batch, m, n]. torch's own checks."""
    if a.dim() < 2:
        raise RuntimeError(f"{operator}: The input tensor {name} must have at least 2 dimensions.")
    if not a.is_floating_point():
        raise RuntimeError(f"{operator}: Expected a floating point or complex tensor as input. Got {a.dtype}")
    if a.dtype not in (torch.float32, torch.float64):
        raise NotImplementedError(f'"{operator}" not implemented for {a.dtype}')
    return a.detach().reshape(math.prod(a.shape[:-2]), *a.shape[-2:])


def qr(a: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """Householder's reflections, with LAPACK's signs: the diagonal of R has the sign opposite to what it replaces."""
    rows = _flatten_batches("linalg.qr", "A", a)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    m, n = a.shape[-2:]
    columns = m if mode == "complete" else min(m, n)
    packed, tau = kernels.householder_qr(rows)
    r = torch.triu(packed[:, :columns]).reshape(*a.shape[:-2], columns, n)
    if mode == "r":
        return a.new_empty(0), r
    return kernels.multiply_reflectors(packed, tau, columns).reshape(*a.shape[:-2], m, columns), r


def geqrf(a: Tensor) -> tuple[Tensor, Tensor]:
    packed, tau = kernels.householder_qr(_flatten_batches("torch.geqrf", "A", a))
    return packed.reshape(a.shape), tau.reshape(*a.shape[:-2], tau.shape[1])


def householder_product(v: Tensor, tau: Tensor) -> Tensor:
    rows = _flatten_batches("torch.linalg.householder_product", "input", v)
    m, n, k = *v.shape[-2:], tau.shape[-1]
    if m < n or n < k or tau.shape[:-1] != v.shape[:-2] or tau.dtype is not v.dtype:
        raise RuntimeError(f"torch.linalg.householder_product: got input {tuple(v.shape)} and tau {tuple(tau.shape)}")
    return kernels.multiply_reflectors(rows, tau.detach().reshape(len(rows), k), n).reshape(v.shape)


def solve_triangular(a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    if not left:
        found: Tensor = solve_triangular(a.mT, b.mT, upper=not upper, unitriangular=unitriangular)
        return found.mT
    _flatten_batches("linalg.solve_triangular", "A", a)
    _flatten_batches("linalg.solve_triangular", "B", b)
    n = a.shape[-1]
    if a.shape[-2] != n or b.shape[-2] != n or a.dtype is not b.dtype:
        raise RuntimeError(f"linalg.solve_triangular: Incompatible A {tuple(a.shape)} and B {tuple(b.shape)}")
    shape: Any = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]
    wide_a = _flatten_batches("", "", a.expand(*shape, n, n))
    wide_b = _flatten_batches("", "", b.expand(*shape, *b.shape[-2:]))
    return kernels.solve_triangular(wide_a, wide_b, upper, unitriangular).reshape(*shape, *b.shape[-2:])


MEMBERS: Members = {
    "aten::linalg_qr": qr,
    "aten::geqrf": geqrf,
    "aten::linalg_householder_product": householder_product,
    "aten::linalg_solve_triangular": solve_triangular,
}
