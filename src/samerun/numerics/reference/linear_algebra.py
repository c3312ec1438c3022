"""Class M: products of matrices. k runs in blocks of 256; a block is an fma chain from +0.0; blocks add up in order.

Also the unfolding that makes a convolution such a product. Arrays are NumPy's, float32 or float64.

Factorizations take one matrix at a time, [m, n], one rounding an operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from samerun.numerics.reference import Array
from samerun.numerics.reference.sums import tree_reduce_term_rows

BLOCK = 256


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c rounded once, elementwise; float32 or float64."""
    if np.result_type(a, b, c) == np.float64:
        return _fma_by_fractions(a, b, c)
    product = a.astype(np.float64) * b.astype(np.float64)  # exact: 24 and 24 bits fit in 53
    addend = c.astype(np.float64)
    total = product + addend
    # What the addition lost. Where it lost something, the last bit is made odd ("rounding to odd"), after which
    # the rounding to float32 is as if nothing had been lost.
    back = total - product
    lost = (product - (total - back)) + (addend - back)
    odd = np.where(np.isfinite(total) & (lost != 0) & (total.view(np.int64) % 2 == 0), 1, 0)
    toward = np.where((lost > 0) == (total > 0), 1, -1)
    return (total.view(np.int64) + odd * toward).view(np.float64).astype(np.float32)


def _fma_by_fractions(a: Array, b: Array, c: Array) -> Array:
    """float64 has no wider type to work in: fractions, one number at a time."""
    a, b, c = np.broadcast_arrays(a, b, c)
    out = np.empty(a.shape, np.float64)
    for at in np.ndindex(a.shape):
        x, y, z = float(a[at]), float(b[at]), float(c[at])
        if np.isfinite([x, y, z]).all() and x != 0 and y != 0:
            total = Fraction(x) * Fraction(y) + Fraction(z)
            out[at] = _round_fraction_to_float64(total) if total else 0.0
        else:
            out[at] = x * y + z  # exact product (or none): one rounding at most
    return out


def _round_fraction_to_float64(value: Fraction) -> float:
    try:
        return float(value)  # CPython divides big integers with one rounding
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def matmul(a: Array, b: Array) -> Array:
    """[m, k] @ [k, n] -> [m, n]; leading dimensions are batches, alike in both."""
    k = a.shape[-1]
    shape = (*a.shape[:-1], b.shape[-1])
    total = np.zeros(shape, a.dtype)
    with np.errstate(all="ignore"):
        for start in range(0, k, BLOCK):
            block = np.zeros(shape, a.dtype)
            for i in range(start, min(start + BLOCK, k)):
                block = fma(a[..., :, i, None], b[..., None, i, :], block)
            total = block if start == 0 else total + block
    return total


def _index_all_channels(position: Sequence[int]) -> tuple[Any, ...]:
    """Index a position in every channel of every image."""
    return (slice(None), slice(None), *position)


def im2col(
    x: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_size: Sequence[int],
) -> Array:
    """[n, c, *in] -> [n, c, *kernel_size, *output_size]: the value under each tap;
    zeros outside the image.
    """
    n, c, *size = x.shape
    shape = (n, c, *kernel_size, *output_size)
    found = np.zeros(shape, x.dtype)
    for at in np.ndindex(*kernel_size, *output_size):
        tap, place = at[: len(size)], at[len(size) :]
        where = [p * s + t * d - pad for p, s, t, d, pad in zip(place, stride, tap, dilation, padding, strict=True)]
        if all(0 <= w < extent for w, extent in zip(where, size, strict=True)):
            found[_index_all_channels(at)] = x[_index_all_channels(where)]
    return found


def convolution(
    x: Array,
    weight: Array,
    bias: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    output_size: Sequence[int],
) -> Array:
    """x [n, c, *in], weight [c', c / groups, *taps] -> [n, c', *output_size]; k runs over (c, taps)."""
    taps, n, c = weight.shape[2:], x.shape[0], x.shape[1] // groups
    columns = im2col(x, taps, stride, padding, dilation, output_size)
    columns = columns.reshape(n, groups, c * int(np.prod(taps)), -1)
    rows = weight.reshape(1, groups, weight.shape[0] // groups, -1)
    y = matmul(np.broadcast_to(rows, (n, *rows.shape[1:])), columns).reshape(n, weight.shape[0], *output_size)
    return y if bias is None else y + bias.reshape(1, -1, *[1] * len(output_size))


def convolution_input_gradient(
    grad: Array,
    weight: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    input_size: Sequence[int],
) -> Array:
    """grad [n, c', *out], weight [c', c / groups, *taps] -> [n, c, *input_size]; k runs over (c', taps).

    Also the transposed convolution of grad.
    """
    n, out_channels, *out = grad.shape
    taps, c = weight.shape[2:], weight.shape[1]
    columns = np.zeros((n, out_channels, *taps, *input_size), grad.dtype)
    for at in np.ndindex(*taps, *out):
        tap, place = at[: len(out)], at[len(out) :]
        where = [p * s + t * d - pad for p, s, t, d, pad in zip(place, stride, tap, dilation, padding, strict=True)]
        if all(0 <= i < extent for i, extent in zip(where, input_size, strict=True)):
            columns[_index_all_channels((*tap, *where))] = grad[_index_all_channels(place)]
    rows = weight.reshape(groups, out_channels // groups, c, -1).transpose(0, 2, 1, 3).reshape(1, groups, c, -1)
    columns = columns.reshape(n, groups, rows.shape[-1], -1)
    return matmul(np.broadcast_to(rows, (n, *rows.shape[1:])), columns).reshape(n, groups * c, *input_size)


def convolution_weight_gradient(
    grad: Array,
    x: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    kernel_size: Sequence[int],
) -> Array:
    """grad [n, c', *out], x [n, c, *in] -> [c', c / groups, *kernel_size]; k runs over (n, out)."""
    n, out_channels, *out = grad.shape
    c = x.shape[1] // groups
    columns = im2col(x, kernel_size, stride, padding, dilation, out).reshape(
        n, groups, c * int(np.prod(kernel_size)), -1
    )
    columns = columns.transpose(1, 0, 3, 2).reshape(groups, -1, columns.shape[2])
    rows = grad.reshape(n, groups, out_channels // groups, -1).transpose(1, 2, 0, 3)
    rows = rows.reshape(groups, out_channels // groups, -1)
    return matmul(rows, columns).reshape(out_channels, c, *kernel_size)


def exponents_of_column_maxima(a: Array) -> Array:
    """int64 [n]: 2^e of a column is above its largest size, and at most twice it; e from -1000 to 1000, 0 if there is
    no finite size but 0.
    """
    largest = np.abs(a.astype(np.float64)).max(0, initial=0.0)
    usable = np.isfinite(largest) & (largest > 0)
    return np.clip(np.where(usable, np.frexp(np.where(usable, largest, 1.0))[1], 0), -1000, 1000).astype(np.int64)


def scale_columns_by_power_of_two(a: Array, exponents: Array) -> Array:
    """Each column times 2^exponents; rounded once, where it is not exact."""
    return (a.astype(np.float64) * np.ldexp(1.0, exponents)).astype(a.dtype)


def householder_qr(a: Array) -> tuple[Array, Array]:
    """Householder's reflections I - tau v v' that make a triangular (Golub and Van Loan, 5.1 and 5.2; the signs are
    LAPACK's). The triangle on and above the diagonal; below it each v without its first 1; and tau [min(m, n)].
    """
    m, n = a.shape
    e = exponents_of_column_maxima(a)
    r, tau = scale_columns_by_power_of_two(a, -e), np.zeros(min(m, n), a.dtype)
    with np.errstate(all="ignore"):
        for j in range(min(m, n)):
            first, below = r[j, j], r[j + 1 :, j].copy()
            squares = tree_reduce_term_rows("square", below[None])[0]
            v, last = np.concatenate([np.ones(1, a.dtype), below]), first
            if squares != 0:
                last = -np.copysign(np.sqrt(first * first + squares), first)
                tau[j] = (last - first) / last
                v[1:] = below / (first - last)
            r[j:, j + 1 :] = apply_reflection(r[j:, j + 1 :], v, tau[j])
            r[j, j], r[j + 1 :, j] = last, v[1:]
        above = np.arange(m)[:, None] <= np.arange(n)
        return np.where(above, scale_columns_by_power_of_two(r, e), r), tau


def apply_reflection(a: Array, v: Array, tau: Array) -> Array:
    """a - v (tau (v' a)), the products of v and a of class M."""
    row = tau * matmul(v[None], a)
    return a - v[:, None] * row


def multiply_reflectors(v: Array, tau: Array, num_columns: int) -> Array:
    """The first num_columns of the product of the reflections, the last one applied first."""
    m = v.shape[0]
    q = np.eye(m, num_columns, dtype=v.dtype)
    with np.errstate(all="ignore"):
        for j in reversed(range(len(tau))):
            one = np.concatenate([np.ones(1, v.dtype), v[j + 1 :, j]])
            q[j:, j:] = apply_reflection(q[j:, j:], one, tau[j])
    return q


def solve_triangular(a: Array, b: Array, upper: bool, unit_diagonal: bool) -> Array:
    """x of a x = b, a triangular [n, n], b [n, k]: each row (b - (its row of a) x) / (its diagonal)."""
    n = a.shape[0]
    x = np.zeros_like(b)
    with np.errstate(all="ignore"):
        for i in reversed(range(n)) if upper else range(n):
            known = slice(i + 1, n) if upper else slice(0, i)
            x[i] = b[i] - matmul(a[None, i, known], x[known])[0]
            if not unit_diagonal:
                x[i] = x[i] / a[i, i]
    return x
