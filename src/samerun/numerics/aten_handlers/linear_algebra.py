"""Products of matrices (class M, sums in the order of k), QR and triangular systems, and distances between rows."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import (
    Members,
    NoPortableKernel,
    Scalar,
    require_cpu_tensors,
    widen_half_inputs,
)
from samerun.numerics.kernels import functions, sums
from samerun.numerics.kernels import linear_algebra as kernels
from samerun.numerics.kernels.linear_algebra import matmul


def _require_same_floating_dtype(operator: str, *tensors: Tensor) -> None:
    for tensor in tensors:
        if not tensor.is_floating_point():
            raise NoPortableKernel(f"{tensor.dtype}.", "Convert it to float32 first: tensor.float().")
        if tensor.dtype is not tensors[0].dtype:
            raise RuntimeError(f"{operator}: expected one type, got {tensors[0].dtype} and {tensor.dtype}")


def _require_matmul_shapes(operator: str, a: Tensor, b: Tensor, ndim: int) -> None:
    """torch's own checks, before any memory is read."""
    if a.dim() != ndim or b.dim() != ndim:
        raise RuntimeError(f"{operator}: expected {ndim}-D tensors, got {tuple(a.shape)} and {tuple(b.shape)}")
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        raise RuntimeError(f"{operator}: shapes cannot be multiplied ({tuple(a.shape)} and {tuple(b.shape)})")


def mm(a: Tensor, b: Tensor) -> Tensor:
    _require_same_floating_dtype("mm", a, b)
    _require_matmul_shapes("mm", a, b, 2)
    return matmul(a, b)


def bmm(a: Tensor, b: Tensor) -> Tensor:
    _require_same_floating_dtype("bmm", a, b)
    _require_matmul_shapes("bmm", a, b, 3)
    return matmul(a, b)


def _alpha_product_plus_beta_x(
    operator: str, ndim: int, x: Tensor, a: Tensor, b: Tensor, beta: Scalar, alpha: Scalar
) -> Tensor:
    """alpha * (a @ b) + beta * x."""
    _require_same_floating_dtype(operator, a, b, x)
    _require_matmul_shapes(operator, a, b, ndim)
    if alpha == 1 and beta == 1:
        shape = (*a.shape[:-1], b.shape[-1])
        return matmul(a, b, x.expand(shape))
    if x.dtype in (torch.bfloat16, torch.float16):
        wide = _alpha_product_plus_beta_x(operator, ndim, x.float(), a.float(), b.float(), beta, alpha)
        return wide.to(x.dtype)
    product = matmul(a, b)
    if alpha != 1:
        product.mul_(alpha)
    if beta == 0:  # what x holds, even NaN, is not looked at
        return product
    return product.add_(x if beta == 1 else x.mul(beta))


def addmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> Tensor:
    return _alpha_product_plus_beta_x("addmm", 2, x, a, b, beta, alpha)


def baddbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> Tensor:
    return _alpha_product_plus_beta_x("baddbmm", 3, x, a, b, beta, alpha)


def addbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> Tensor:
    """The batch is part of k: k runs over (batch, k)."""
    _require_matmul_shapes("addbmm", a, b, 3)
    rows = a.permute(1, 0, 2).reshape(a.shape[1], -1)
    return _alpha_product_plus_beta_x("addbmm", 2, x, rows, b.reshape(-1, b.shape[2]), beta, alpha)


def addmm_activation(
    x: Tensor, a: Tensor, b: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1, use_gelu: bool = False
) -> Tensor:
    if use_gelu:
        raise NoPortableKernel("use_gelu=True.", "Call torch.addmm, then F.gelu.")
    return torch.threshold(addmm(x, a, b, beta=beta, alpha=alpha), 0, 0)  # as `relu`: every zero is +0.0


def int_mm(a: Tensor, b: Tensor) -> Tensor:
    """int32 [m, n] of int8 [m, k] and [k, n]; sums wrap around. (oneDNN's may saturate on processors without VNNI.)"""
    if a.dtype is not torch.int8 or b.dtype is not torch.int8:
        raise RuntimeError(f"_int_mm: expected two int8 matrices, got {a.dtype} and {b.dtype}")
    _require_matmul_shapes("_int_mm", a, b, 2)
    return torch.mm(a.to(torch.int32), b.to(torch.int32))


def mv(a: Tensor, x: Tensor) -> Tensor:
    _require_same_floating_dtype("mv", a, x)
    _require_matmul_shapes("mv", a, x[:, None] if x.dim() == 1 else x, 2)
    return matmul(a, x[:, None])[:, 0]


def addmv(x: Tensor, a: Tensor, b: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> Tensor:
    return _alpha_product_plus_beta_x("addmv", 2, x.reshape(-1, 1), a, b[:, None], beta, alpha)[:, 0]


def dot(a: Tensor, b: Tensor) -> Tensor:
    _require_same_floating_dtype("dot", a, b)
    if a.dim() != 1 or a.shape != b.shape:
        raise RuntimeError(f"dot: expected two 1-D tensors of one size, got {tuple(a.shape)} and {tuple(b.shape)}")
    return matmul(a[None, :], b[:, None]).reshape(())


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    _require_same_floating_dtype("linear", x, weight, *([] if bias is None else [bias]))
    rows = x.reshape(-1, x.shape[-1])
    _require_matmul_shapes("linear", rows, weight.t(), 2)
    plus = None if bias is None else bias.expand(rows.shape[0], -1)
    return matmul(rows, weight.t(), plus).reshape(*x.shape[:-1], weight.shape[0])


PRODUCTS: Members = {
    "aten::mm": mm,
    "aten::bmm": bmm,
    "aten::addmm": addmm,
    "aten::baddbmm": baddbmm,
    "aten::addbmm": addbmm,
    "aten::_addmm_activation": addmm_activation,
    "aten::mv": mv,
    "aten::addmv": widen_half_inputs(addmv),
    "aten::dot": dot,
    "aten::vdot": dot,
    "aten::linear": linear,
}


def _require_and_flatten_matrix_batches(operator: str, name: str, a: Tensor) -> Tensor:
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
    rows = _require_and_flatten_matrix_batches("linalg.qr", "A", a)
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
    packed, tau = kernels.householder_qr(_require_and_flatten_matrix_batches("torch.geqrf", "A", a))
    return packed.reshape(a.shape), tau.reshape(*a.shape[:-2], tau.shape[1])


def householder_product(v: Tensor, tau: Tensor) -> Tensor:
    rows = _require_and_flatten_matrix_batches("torch.linalg.householder_product", "input", v)
    m, n, k = *v.shape[-2:], tau.shape[-1]
    if m < n or n < k or tau.shape[:-1] != v.shape[:-2] or tau.dtype is not v.dtype:
        raise RuntimeError(f"torch.linalg.householder_product: got input {tuple(v.shape)} and tau {tuple(tau.shape)}")
    return kernels.multiply_reflectors(rows, tau.detach().reshape(len(rows), k), n).reshape(v.shape)


def solve_triangular(a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    if not left:
        found: Tensor = solve_triangular(a.mT, b.mT, upper=not upper, unitriangular=unitriangular)
        return found.mT
    _require_and_flatten_matrix_batches("linalg.solve_triangular", "A", a)
    _require_and_flatten_matrix_batches("linalg.solve_triangular", "B", b)
    n = a.shape[-1]
    if a.shape[-2] != n or b.shape[-2] != n or a.dtype is not b.dtype:
        raise RuntimeError(f"linalg.solve_triangular: Incompatible A {tuple(a.shape)} and B {tuple(b.shape)}")
    shape: Any = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]
    wide_a = _require_and_flatten_matrix_batches("", "", a.expand(*shape, n, n))
    wide_b = _require_and_flatten_matrix_batches("", "", b.expand(*shape, *b.shape[-2:]))
    return kernels.solve_triangular(wide_a, wide_b, upper, unitriangular).reshape(*shape, *b.shape[-2:])


def ormqr(v: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """Q C, C Q, or with Q transposed: Q is the product of all m reflections."""
    m = v.shape[-2]
    square = torch.cat([v, v.new_zeros(*v.shape[:-1], max(0, m - v.shape[-1]))], -1)[..., :m]
    q = householder_product(square, tau)
    q = q.mT if transpose else q
    return matmul(q.contiguous(), other) if left else matmul(other, q.contiguous())


def triangular_solve(
    b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    shape: Any = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]
    matrix = (a.mT if transpose else a).expand(*shape, *a.shape[-2:])
    right = b.expand(*shape, *b.shape[-2:]).reshape(math.prod(shape), *b.shape[-2:]).contiguous()
    flat = matrix.reshape(math.prod(shape), *a.shape[-2:]).contiguous()
    x = kernels.solve_triangular(flat, right, upper != transpose, unitriangular)
    return x.reshape(*shape, *b.shape[-2:]), a.expand(*shape, *a.shape[-2:]).clone()


def matrix_exp(a: Tensor) -> Tensor:
    """The series up to x^18 / 18! of A / 2^s, whose rows sum to at most 1/2, squared s times."""
    if a.dtype not in (torch.float32, torch.float64):
        raise NoPortableKernel(f"{a.dtype}.", "It has one for float32 and float64.")
    x = _require_and_flatten_matrix_batches("linalg.matrix_exp", "A", a).double()
    n = x.shape[1]
    norm = sums.sum(x.abs(), 2).amax(1) if n else x.new_zeros(x.shape[0])
    squarings = torch.clamp(torch.frexp(norm).exponent + 1, min=0)
    x = torch.ldexp(x, -squarings[:, None, None])
    identity = torch.eye(n, dtype=torch.float64).expand(x.shape)
    total = identity
    for k in range(18, 0, -1):
        total = identity + torch.div(matmul(x, total), float(k))
    for step in range(int(squarings.max()) if squarings.numel() else 0):
        total = torch.where((squarings > step)[:, None, None], matmul(total, total), total)
    return total.reshape(a.shape).to(a.dtype)


def grouped_mm(
    a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> Tensor:
    """Products of groups (of a mixture of experts). Group g ends at offs[g] along the rows of a [rows, k], for b
    [g, k, n], along the columns of b [k, columns] for a [g, m, k], or along k where both have two dimensions.
    """
    _require_same_floating_dtype("_grouped_mm", a, b)
    if bias is not None:
        raise NoPortableKernel("a bias.", "Add it afterwards.")
    if a.dim() == 3 and b.dim() == 3:
        return bmm(a, b).to(out_dtype or a.dtype)
    if offs is None or a.dim() not in (2, 3) or b.dim() not in (2, 3):
        raise RuntimeError(f"_grouped_mm: got {tuple(a.shape)} and {tuple(b.shape)}, offs {offs}")
    ends = [int(end) for end in offs]
    spans = list(zip([0, *ends[:-1]], ends, strict=True))
    if a.dim() == 2 and b.dim() == 2:
        return torch.stack([matmul(a[:, i:j], b[i:j]) for i, j in spans]).to(out_dtype or a.dtype)
    if a.dim() == 2:
        out = a.new_zeros(a.shape[0], b.shape[2])
        for g, (i, j) in enumerate(spans):
            out[i:j] = matmul(a[i:j], b[g])
    else:
        out = a.new_zeros(a.shape[1], b.shape[1])
        for g, (i, j) in enumerate(spans):
            out[:, i:j] = matmul(a[g], b[:, i:j])
    return out.to(out_dtype or a.dtype)


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
        differences = _pairwise_differences(a[..., part, :], b)
        norms = sums.vector_norm(differences, p, [a.dim()])
        if p == 0:  # of which a NaN would be one that is not 0
            norms = torch.where(torch.isnan(differences).any(-1), torch.nan, norms)
        out[..., part, :] = norms
    return out


@widen_half_inputs
def cdist_backward(grad: Tensor, a: Tensor, b: Tensor, p: float, distances: Tensor) -> Tensor:
    """The gradient of a: class S over the rows of b of, with x = a - b and f the distance (0 where f is 0):

    p = 2: x * (grad / f). p = 1: sign(x) * grad. p = inf: sign(x) * grad where |x| = f. Others:
    (sign(x) * |x|^(p - 1)) * (grad / f^(p - 1)), 0 where x is 0. p = 0: 0.
    """
    a, b = _broadcast_batches(a, b)
    out = torch.zeros(a.shape, dtype=a.dtype, device=a.device)
    if p == 0 or out.numel() == 0 or b.shape[-2] == 0:
        return out
    nothing = torch.zeros((), dtype=a.dtype, device=a.device)
    step = _rows_per_chunk(a, b)
    for at in range(0, a.shape[-2], step):
        part = slice(at, at + step)
        x, far, of = _pairwise_differences(a[..., part, :], b), distances[..., part, :, None], grad[..., part, :, None]
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
def pdist_backward(grad: Tensor, a: Tensor, p: float, distances: Tensor) -> Tensor:
    """torch.pdist: the distances of all pairs of rows, of which each takes the gradient of both its places."""
    n = a.shape[0]
    rows, columns = torch.triu_indices(n, n, 1, device=a.device)
    square, far = (torch.zeros(n, n, dtype=a.dtype, device=a.device) for _ in range(2))
    for place in (rows * n + columns, columns * n + rows):
        square.view(-1).scatter_(0, place, grad)
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
    **PRODUCTS,
    "aten::_int_mm": require_cpu_tensors(int_mm),
    "aten::linalg_qr": qr,
    "aten::geqrf": geqrf,
    "aten::linalg_householder_product": householder_product,
    "aten::linalg_solve_triangular": solve_triangular,
    "aten::linalg_matrix_exp": require_cpu_tensors(matrix_exp),
    "aten::ormqr": ormqr,
    "aten::triangular_solve": triangular_solve,
    "aten::_grouped_mm": grouped_mm,
    "aten::_cdist_forward": cdist,
    "aten::_cdist_backward": cdist_backward,
    "aten::_euclidean_dist": cdist_euclidean,
    "aten::_pdist_forward": pdist,
    "aten::_pdist_backward": pdist_backward,
}
