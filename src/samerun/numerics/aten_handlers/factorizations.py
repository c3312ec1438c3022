"""LU, Cholesky, eigenvalues of symmetric matrices, singular values, and what is solved with them.

All are written for batches [batch, m, n] of float64: float32 is widened, and each result is rounded once. Every step
is an operation of one rounding, or a product of class M, in an order that depends on no other matrix of the batch. LU
and Cholesky eliminate column by column. Eigenvalues and singular values come from Jacobi's rotations, in rounds of
pairs that have no index in common (Brent and Luk, 1985), until no rotation is larger than a rounding; eigenvectors and
singular vectors have the signs that this gives. Errors are those of backward stable methods in float64: some 1e-15 of
the norm of the matrix.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import Members, NoPortableKernel, require_cpu_tensors
from samerun.numerics.kernels import linear_algebra as kernels
from samerun.numerics.kernels import sums
from samerun.numerics.kernels.elementwise import sqrt
from samerun.numerics.kernels.functions import log

MOST_SWEEPS = 40
NEGLIGIBLE = 2.0**-53


def _copy_to_float64_batch(operator: str, a: Tensor, square: bool = True) -> Tensor:
    """[batch, m, n] in float64, in memory of its own. torch's own checks come before."""
    if a.dtype not in (torch.float32, torch.float64):
        raise NoPortableKernel(f"{a.dtype}.", "It has one for float32 and float64.")
    if a.dim() < 2 or (square and a.shape[-1] != a.shape[-2]):
        raise RuntimeError(f"{operator}: A must be batches of {'square ' if square else ''}matrices, got {a.shape}")
    return a.detach().to(torch.float64, copy=True).reshape(math.prod(a.shape[:-2]), *a.shape[-2:]).contiguous()


def _restore(found: Tensor, like: Tensor, *matrix_shape: int) -> Tensor:
    """[batch, *tail] as the batches and type of `like`."""
    return found.reshape((*like.shape[:-2], *matrix_shape)).to(like.dtype)


def _raise_if_asked(check_errors: bool, info: Tensor, a: Tensor, operator: str) -> None:
    """torch's own error for a matrix that has no factor or inverse."""
    if check_errors and bool(info.any()):
        torch.ops.aten._linalg_check_errors(info.reshape(a.shape[:-2]), operator, is_matrix=a.dim() == 2)


def _lu_in_place(a: Tensor, pivot: bool) -> tuple[Tensor, Tensor, Tensor]:
    """A = P L U: L below the diagonal of the first result and U above; the row (from 1) that each row was swapped with;
    the first column (from 1) whose pivot is 0, else 0. The largest pivot is taken, of equal ones the first.
    """
    batch, m, n = a.shape
    k = min(m, n)
    pivots = torch.arange(1, k + 1, dtype=torch.int32).expand(batch, k).clone()
    info = torch.zeros(batch, dtype=torch.int32)
    every = torch.arange(batch)
    for j in range(k):
        if pivot:
            place = torch.argmax(torch.nan_to_num(a[:, j:, j].abs(), nan=math.inf), 1) + j
            pivots[:, j] = place.to(torch.int32) + 1
            row, other = a[:, j].clone(), a[every, place]
            a[:, j], a[every, place] = other, row
        top = a[:, j, j]
        info = torch.where((info == 0) & (top == 0), j + 1, info)
        factors = torch.where(top[:, None] == 0, a[:, j + 1 :, j], torch.div(a[:, j + 1 :, j], top[:, None]))
        a[:, j + 1 :, j] = factors
        a[:, j + 1 :, j + 1 :] -= torch.mul(factors[:, :, None], a[:, j, None, j + 1 :])
    return a, pivots, info


def _row_order_from_pivots(pivots: Tensor, m: int) -> Tensor:
    """[batch, m]: which row of A each row of L U is."""
    order = torch.arange(m).expand(pivots.shape[0], m).clone()
    every = torch.arange(pivots.shape[0])
    for j in range(pivots.shape[1]):
        place = pivots[:, j].to(torch.int64) - 1
        here, there = order[:, j].clone(), order[every, place]
        order[:, j], order[every, place] = there, here
    return order


def lu_factor_ex(a: Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    lu, pivots, info = _lu_in_place(_copy_to_float64_batch("torch.lu_factor_ex", a, square=False), pivot)
    _raise_if_asked(check_errors, info, a, "torch.linalg.lu_factor_ex")
    k = min(a.shape[-2:])
    return (_restore(lu, a, *a.shape[-2:]), pivots.reshape(*a.shape[:-2], k), info.reshape(a.shape[:-2]))


def _unpack(lu: Tensor) -> tuple[Tensor, Tensor]:
    """L with ones on its diagonal, and U, of [..., m, n]."""
    k = min(lu.shape[-2:])
    lower = torch.tril(lu[..., :k], -1) + torch.eye(lu.shape[-2], k, dtype=lu.dtype)
    return lower, torch.triu(lu[..., :k, :])


def lu_unpack(
    lu: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    lower, upper = _unpack(lu) if unpack_data else (lu.new_empty(0), lu.new_empty(0))
    if not unpack_pivots:
        return lu.new_empty(0), lower, upper
    m = lu.shape[-2]
    order = _row_order_from_pivots(pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1]), m)
    rows = torch.zeros(order.shape[0], m, m, dtype=lu.dtype).scatter_(1, order[:, None, :], 1.0)
    return rows.reshape(*lu.shape[:-2], m, m), lower, upper


def lu(a: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    packed, pivots, _ = lu_factor_ex(a, pivot=pivot)
    rows, lower, upper = lu_unpack(packed, pivots, True, pivot)
    return rows, lower, upper


def _solve_with_lu(lu: Tensor, pivots: Tensor, b: Tensor, transposed: bool = False) -> Tensor:
    """[batch, n, n], [batch, n], [batch, n, k]: rows exchanged, then L, then U."""
    order = _row_order_from_pivots(pivots, lu.shape[1])[:, :, None].expand(-1, -1, b.shape[2])
    if transposed:
        y = kernels.solve_triangular(lu.mT.contiguous(), b, False, False)
        z = kernels.solve_triangular(lu.mT.contiguous(), y, True, True)
        return torch.zeros_like(z).scatter_(1, order, z)
    y = kernels.solve_triangular(lu, b.gather(1, order), False, True)
    return kernels.solve_triangular(lu, y, True, False)


def lu_solve(lu: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    given = b if left else b.mT
    shape: Any = torch.broadcast_shapes(lu.shape[:-2], given.shape[:-2])  # type: ignore[no-untyped-call]
    n, k = given.shape[-2:]
    wide = _copy_to_float64_batch("linalg.lu_solve", lu.expand(*shape, n, n))
    rows = pivots.expand(*shape, n).reshape(math.prod(shape), n)
    right = _copy_to_float64_batch("linalg.lu_solve", given.expand(*shape, n, k), square=False)
    found = _solve_with_lu(wide, rows, right, adjoint if left else not adjoint)
    found = found.reshape(*shape, n, k).to(b.dtype)
    return found if left else found.mT


def solve_ex(
    a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    wide, pivots, info = _lu_in_place(_copy_to_float64_batch("linalg.solve", a), True)
    n = a.shape[-1]
    is_vector = b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1])
    given = b[..., None] if is_vector else (b if left else b.mT)
    shape: Any = torch.broadcast_shapes(a.shape[:-2], given.shape[:-2])  # type: ignore[no-untyped-call]
    right = given.expand(*shape, *given.shape[-2:]).to(torch.float64).reshape(math.prod(shape), *given.shape[-2:])
    every = wide.reshape(*a.shape[:-2], n, n).expand(*shape, n, n).reshape(math.prod(shape), n, n)
    rows = pivots.reshape(*a.shape[:-2], n).expand(*shape, n).reshape(math.prod(shape), n)
    x = _solve_with_lu(every, rows, right, not is_vector and not left).reshape(*shape, *given.shape[-2:]).to(a.dtype)
    x = x[..., 0] if is_vector else (x if left else x.mT)
    _raise_if_asked(check_errors, info, a, "torch.linalg.solve_ex")
    return (x, _restore(wide, a, n, n), pivots.reshape(*a.shape[:-2], n), info.reshape(a.shape[:-2]))


def inverse_ex(a: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    wide, pivots, info = _lu_in_place(_copy_to_float64_batch("linalg.inv", a), True)
    _raise_if_asked(check_errors, info, a, "torch.linalg.inv_ex")
    n = a.shape[-1]
    identity = torch.eye(n, dtype=torch.float64).expand(wide.shape[0], n, n)
    return _restore(_solve_with_lu(wide, pivots, identity), a, n, n), info.reshape(a.shape[:-2])


def _sign_of_permutation(pivots: Tensor) -> Tensor:
    swaps = (pivots != torch.arange(1, pivots.shape[-1] + 1, dtype=torch.int32)).sum(-1)
    return torch.where(swaps % 2 == 0, 1.0, -1.0).to(torch.float64)


def _lu_of_transpose_if_contiguous(operator: str, a: Tensor) -> tuple[Tensor, Tensor]:
    """LU and pivots of A, or of its transpose where A is contiguous: torch chooses so, and its gradients know."""
    lu, pivots, _ = _lu_in_place(_copy_to_float64_batch(operator, a.mT if a.is_contiguous() else a), True)
    return lu, pivots


def det(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The class S product of U's diagonal, times the sign of the permutation."""
    wide, pivots = _lu_of_transpose_if_contiguous("linalg.det", a)
    found = sums.prod(wide.diagonal(dim1=-2, dim2=-1).contiguous(), 1) * _sign_of_permutation(pivots)
    return (_restore(found, a), _restore(wide, a, *a.shape[-2:]), pivots.reshape(a.shape[:-1]))


def slogdet(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The class S sum of the logarithms of U's diagonal; the product of its signs."""
    wide, pivots = _lu_of_transpose_if_contiguous("linalg.slogdet", a)
    diagonal = wide.diagonal(dim1=-2, dim2=-1).contiguous()
    sign = sums.prod(torch.sign(diagonal), 1) * _sign_of_permutation(pivots)
    size = sums.sum(log(diagonal.abs()), 1)
    return (_restore(sign, a), _restore(size, a), _restore(wide, a, *a.shape[-2:]), pivots.reshape(a.shape[:-1]))


def cholesky_ex(a: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """Column by column: l = sqrt(d), the column / l, and its products taken from what is left."""
    rest = _copy_to_float64_batch("linalg.cholesky", a.mT if upper else a)
    batch, n = rest.shape[:2]
    out, info = torch.zeros_like(rest), torch.zeros(batch, dtype=torch.int32)
    for j in range(n):
        d = rest[:, j, j]
        info = torch.where((info == 0) & ~(d > 0), j + 1, info)
        root = sqrt(torch.clamp(d, min=0))
        column = torch.div(rest[:, j + 1 :, j], root[:, None])
        out[:, j, j], out[:, j + 1 :, j] = root, column
        rest[:, j + 1 :, j + 1 :] -= torch.mul(column[:, :, None], column[:, None, :])
    _raise_if_asked(check_errors, info, a, "torch.linalg.cholesky_ex")
    found = _restore(out, a, n, n)
    return (found.mT if upper else found), info.reshape(a.shape[:-2])


def cholesky(a: Tensor, upper: bool = False) -> Tensor:
    found, info = cholesky_ex(a, upper=upper)
    _raise_if_asked(True, info, a, "cholesky")
    return found


def cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    """L y = b, L' x = y."""
    shape: Any = torch.broadcast_shapes(b.shape[:-2], factor.shape[:-2])  # type: ignore[no-untyped-call]
    n, k = b.shape[-2:]
    lower = _copy_to_float64_batch("cholesky_solve", (factor.mT if upper else factor).expand(*shape, n, n))
    right = _copy_to_float64_batch("cholesky_solve", b.expand(*shape, n, k), square=False)
    y = kernels.solve_triangular(lower, right, False, False)
    return kernels.solve_triangular(lower.mT.contiguous(), y, True, False).reshape(*shape, n, k).to(b.dtype)


def cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    return cholesky_solve(torch.eye(factor.shape[-1], dtype=factor.dtype).expand(factor.shape), factor, upper)


# --- Jacobi's rotations
def _jacobi_rounds(n: int) -> list[tuple[Tensor, Tensor]]:
    """Each pair p < q once, in rounds of pairs that have no index in common."""
    players = list(range(n + n % 2))
    found = []
    for _ in range(len(players) - 1):
        half = len(players) // 2
        pairs = [tuple(sorted((players[i], players[-1 - i]))) for i in range(half)]
        pairs = sorted(pair for pair in pairs if pair[1] < n)
        if pairs:
            found.append((torch.tensor([p for p, _ in pairs]), torch.tensor([q for _, q in pairs])))
        players = [players[0], players[-1], *players[1:-1]]
    return found


def _jacobi_rotation(app: Tensor, aqq: Tensor, apq: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine that make apq 0: t = sign / (|theta| + sqrt(theta^2 + 1)), theta = (aqq - app) / (2 apq)."""
    theta = torch.div(aqq - app, 2 * torch.where(wanted, apq, 1.0))
    size = theta.abs()
    t = torch.reciprocal(size + sqrt(size * size + 1))
    t = torch.where(theta < 0, -t, t)
    c = torch.reciprocal(sqrt(t * t + 1))
    return torch.where(wanted, c, 1.0), torch.where(wanted, t * c, 0.0)


def _rotate_columns(x: Tensor, p: Tensor, q: Tensor, c: Tensor, s: Tensor) -> None:
    """Columns p and q become c xp - s xq and s xp + c xq."""
    xp, xq = x[:, :, p], x[:, :, q]
    c, s = c[:, None], s[:, None]
    x[:, :, p], x[:, :, q] = c * xp - s * xq, s * xp + c * xq


def eigh(a: Tensor, uplo: str = "L", compute_v: bool = True) -> tuple[Tensor, Tensor]:
    """Eigenvalues, ascending, and their vectors, as columns."""
    x = _copy_to_float64_batch("linalg.eigh", a)
    n = x.shape[1]
    x = torch.tril(x) + torch.tril(x, -1).mT if uplo.upper() == "L" else torch.triu(x) + torch.triu(x, 1).mT
    if not bool(torch.isfinite(x).all()):
        torch.linalg.eigh(a, uplo)  # torch's own words
    v = torch.eye(n, dtype=torch.float64).expand(x.shape).clone()
    rounds = _jacobi_rounds(n)
    for _ in range(MOST_SWEEPS):
        rotated = False
        for p, q in rounds:
            app, aqq, apq = x[:, p, p], x[:, q, q], x[:, p, q]
            wanted = apq.abs() > NEGLIGIBLE * torch.minimum(app.abs(), aqq.abs())
            wanted = wanted & (apq.abs() > 2.0**-60 * torch.maximum(app.abs(), aqq.abs()))
            if not bool(wanted.any()):
                continue
            rotated = True
            c, s = _jacobi_rotation(app, aqq, apq, wanted)
            _rotate_columns(x, p, q, c, s)
            turned = x.mT.contiguous()
            _rotate_columns(turned, p, q, c, s)
            x = turned.mT.contiguous()
            x[:, p, q] = torch.where(wanted, 0.0, x[:, p, q])
            x[:, q, p] = x[:, p, q]
            _rotate_columns(v, p, q, c, s)
        if not rotated:
            break
    values, order = torch.sort(x.diagonal(dim1=-2, dim2=-1), stable=True)
    vectors = v.gather(2, order[:, None, :].expand(v.shape))
    return _restore(values, a, n), _restore(vectors, a, n, n) if compute_v else a.new_empty(0)


def _complete_basis(u: Tensor, present: Tensor, columns: int) -> Tensor:
    """u [batch, m, k], whose columns are orthonormal where `present`, and more such columns by Householder's QR."""
    if u.shape[2] == columns and bool(present.all()):
        return u
    basis = kernels.multiply_reflectors(*kernels.householder_qr(torch.where(present[:, None, :], u, 0.0)), columns)
    basis[..., : u.shape[2]] = torch.where(present[:, None, :], u, basis[..., : u.shape[2]])
    return basis


def svd(
    a: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Columns are turned until they are orthogonal (Hestenes, 1958): their lengths are the singular values."""
    x = _copy_to_float64_batch("linalg.svd", a, square=False)
    if not bool(torch.isfinite(x).all()):
        torch.linalg.svd(a, full_matrices)  # torch's own words
    is_wide = x.shape[1] < x.shape[2]
    x = x.mT.contiguous() if is_wide else x
    batch, m, n = x.shape
    v = torch.eye(n, dtype=torch.float64).expand(batch, n, n).clone()
    rounds = _jacobi_rounds(n)
    for _ in range(MOST_SWEEPS):
        rotated = False
        for p, q in rounds:
            xp, xq = x[:, :, p], x[:, :, q]
            app, aqq, apq = (sums.sum(y * z, 1) for y, z in ((xp, xp), (xq, xq), (xp, xq)))
            wanted = apq.abs() > 2.0**-52 * sqrt(app * aqq)
            if not bool(wanted.any()):
                continue
            rotated = True
            c, s = _jacobi_rotation(app, aqq, apq, wanted)
            _rotate_columns(x, p, q, c, s)
            _rotate_columns(v, p, q, c, s)
        if not rotated:
            break
    values, order = torch.sort(sqrt(sums.sum(x * x, 1)), descending=True, stable=True)
    if not compute_uv:
        return a.new_empty(0), _restore(values, a, n), a.new_empty(0)
    x, v = (each.gather(2, order[:, None, :].expand(each.shape)) for each in (x, v))
    present = values > 2.0**-52 * values[:, :1]
    u = torch.where(present[:, None, :], torch.div(x, torch.where(present, values, 1.0)[:, None, :]), 0.0)
    u = _complete_basis(u, present, m if full_matrices else n)
    u, v = (v, u) if is_wide else (u, v)
    return (_restore(u, a, *u.shape[1:]), _restore(values, a, n), _restore(v.mT, a, v.shape[2], v.shape[1]))


def pinv(a: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False) -> Tensor:
    """V (U / s)', singular values of at most max(atol, rtol * the largest) left out; NaN where a is not finite."""
    if a.numel() == 0:
        return a.new_zeros(*a.shape[:-2], a.shape[-1], a.shape[-2])
    given = (torch.tril(a) + torch.tril(a, -1).mT) if hermitian else a
    u, s, vh = svd(given.double())
    least = torch.zeros((), dtype=torch.float64) if atol is None else atol.double()
    if rtol is None:
        rtol = torch.tensor(
            torch.finfo(a.dtype).eps * max(a.shape[-2:]) if atol is None or not bool((atol > 0).any()) else 0.0
        )
    bound = torch.maximum(least[..., None], rtol.double()[..., None] * s[..., :1])
    inverse = torch.where(s > bound, torch.reciprocal(s), 0.0)
    inverse = torch.where(torch.isfinite(given).flatten(-2).all(-1, keepdim=True), inverse, math.nan)
    return kernels.matmul(vh.mT, (u * inverse[..., None, :]).mT).to(a.dtype)


def lstsq(
    a: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x = V (U / s)' b, of singular values above rcond times the largest; NaN where a or b is not finite."""
    m, n = a.shape[-2:]
    is_vector = b.dim() == a.dim() - 1
    right = (b[..., None] if is_vector else b).double()
    u, s, vh = svd(a.double())
    least = torch.finfo(a.dtype).eps * max(m, n) if rcond is None else rcond
    kept = s > least * s[..., :1]
    scaled = torch.where(
        kept[..., None], torch.div(kernels.matmul(u.mT, right), torch.where(kept, s, 1.0)[..., None]), 0.0
    )
    finite = torch.isfinite(a).flatten(-2).all(-1) & torch.isfinite(right).flatten(-2).all(-1)
    x = torch.where(finite[..., None, None], kernels.matmul(vh.mT, scaled), math.nan)
    rank, full = kept.sum(-1), bool(kept.all())
    rest = right - kernels.matmul(a.double(), x)
    wants_residuals = m > n and full and driver not in (None, "gelsy")
    residuals = sums.sum(rest * rest, rest.dim() - 2).to(a.dtype) if wants_residuals else a.new_empty(0)
    rank = rank if driver != "gels" else torch.empty(0, dtype=torch.int64)
    values = s.to(a.dtype) if driver in ("gelsd", "gelss") else a.new_empty(0)
    found = x.to(a.dtype)
    return (found[..., 0] if is_vector else found), residuals, rank, values


_HANDLERS: Members = {
        "linalg_lu_factor_ex": lu_factor_ex, "lu_unpack": lu_unpack, "linalg_lu": lu, "linalg_lu_solve": lu_solve,
        "_linalg_solve_ex": solve_ex, "linalg_inv_ex": inverse_ex, "_linalg_det": det, "_linalg_slogdet": slogdet,
        "linalg_cholesky_ex": cholesky_ex, "cholesky": cholesky, "cholesky_solve": cholesky_solve,
        "cholesky_inverse": cholesky_inverse, "_linalg_eigh": eigh, "_linalg_svd": svd,
        "linalg_pinv.atol_rtol_tensor": pinv, "linalg_lstsq": lstsq,
    }  # fmt: skip
MEMBERS: Members = {f"aten::{name}": require_cpu_tensors(handler) for name, handler in _HANDLERS.items()}
