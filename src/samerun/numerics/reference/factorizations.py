"""Orthogonal and triangular matrices, one matrix at a time: [m, n] of float32 or float64, one rounding an operation."""

from __future__ import annotations

from typing import Any

import numpy as np

from samerun.numerics.reference.products import matmul
from samerun.numerics.reference.sums import reduce_rows


def column_exponents(a: Any) -> Any:
    """int64 [n]: 2^e of a column is above its largest size, and at most twice it; e from -1000 to 1000, 0 if there is
    no finite size but 0.
    """
    largest = np.abs(a.astype(np.float64)).max(0, initial=0.0)
    usable = np.isfinite(largest) & (largest > 0)
    return np.clip(np.where(usable, np.frexp(np.where(usable, largest, 1.0))[1], 0), -1000, 1000).astype(np.int64)


def scale_by_power_of_two(a: Any, e: Any) -> Any:
    """Each column times 2^e; rounded once, where it is not exact."""
    return (a.astype(np.float64) * np.ldexp(1.0, e)).astype(a.dtype)


def householder_qr(a: Any) -> tuple[Any, Any]:
    """Householder's reflections I - tau v v' that make a triangular (Golub and Van Loan, 5.1 and 5.2; the signs are
    LAPACK's). The triangle on and above the diagonal; below it each v without its first 1; and tau [min(m, n)].
    """
    m, n = a.shape
    e = column_exponents(a)
    r, tau = scale_by_power_of_two(a, -e), np.zeros(min(m, n), a.dtype)
    with np.errstate(all="ignore"):
        for j in range(min(m, n)):
            first, below = r[j, j], r[j + 1 :, j].copy()
            squares = reduce_rows("square", below[None])[0]
            v, last = np.concatenate([np.ones(1, a.dtype), below]), first
            if squares != 0:
                last = -np.copysign(np.sqrt(first * first + squares), first)
                tau[j] = (last - first) / last
                v[1:] = below / (first - last)
            r[j:, j + 1 :] = apply_reflection(r[j:, j + 1 :], v, tau[j])
            r[j, j], r[j + 1 :, j] = last, v[1:]
        above = np.arange(m)[:, None] <= np.arange(n)
        return np.where(above, scale_by_power_of_two(r, e), r), tau


def apply_reflection(a: Any, v: Any, tau: Any) -> Any:
    """a - v (tau (v' a)), the products of v and a of class M."""
    row = tau * matmul(v[None], a)
    return a - v[:, None] * row


def multiply_reflectors(v: Any, tau: Any, columns: int) -> Any:
    """The first columns of the product of the reflections, the last one applied first."""
    m = v.shape[0]
    q = np.eye(m, columns, dtype=v.dtype)
    with np.errstate(all="ignore"):
        for j in reversed(range(len(tau))):
            one = np.concatenate([np.ones(1, v.dtype), v[j + 1 :, j]])
            q[j:, j:] = apply_reflection(q[j:, j:], one, tau[j])
    return q


def solve_triangular(a: Any, b: Any, upper: bool, unit: bool) -> Any:
    """x of a x = b, a triangular [n, n], b [n, k]: each row (b - (its row of a) x) / (its diagonal)."""
    n = a.shape[0]
    x = np.zeros_like(b)
    with np.errstate(all="ignore"):
        for i in reversed(range(n)) if upper else range(n):
            known = slice(i + 1, n) if upper else slice(0, i)
            x[i] = b[i] - matmul(a[None, i, known], x[known])[0]
            if not unit:
                x[i] = x[i] / a[i, i]
    return x
