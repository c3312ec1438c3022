"""Class M: products of matrices. k runs in blocks of 256; a block is an fma chain from +0.0; blocks add up in order.

Also the unfolding that makes a convolution such a product. Arrays are NumPy's, float32 or float64.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

BLOCK = 256


def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c rounded once, elementwise; float32 or float64."""
    if np.result_type(a, b, c) == np.float64:
        return _exact_fma(a, b, c)
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


def _exact_fma(a: Any, b: Any, c: Any) -> Any:
    """float64 has no wider type to work in: fractions, one number at a time."""
    a, b, c = np.broadcast_arrays(a, b, c)
    out = np.empty(a.shape, np.float64)
    for at in np.ndindex(a.shape):
        x, y, z = float(a[at]), float(b[at]), float(c[at])
        if np.isfinite([x, y, z]).all() and x != 0 and y != 0:
            total = Fraction(x) * Fraction(y) + Fraction(z)
            out[at] = _round_to_float(total) if total else 0.0
        else:
            out[at] = x * y + z  # exact product (or none): one rounding at most
    return out


def _round_to_float(value: Fraction) -> float:
    try:
        return float(value)  # CPython divides big integers with one rounding
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def matmul(a: Any, b: Any) -> Any:
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


def _image_index(position: Any) -> tuple[Any, ...]:
    """Index a position in every channel of every image."""
    return (slice(None), slice(None), *position)


def unfold(x: Any, taps: Any, stride: Any, padding: Any, dilation: Any, out: Any) -> Any:
    """[n, c, *in] -> [n, c, *taps, *out]: the value under each tap of each output; zeros outside the image."""
    n, c, *size = x.shape
    shape = (n, c, *taps, *out)
    found = np.zeros(shape, x.dtype)
    for at in np.ndindex(*taps, *out):
        tap, place = at[: len(size)], at[len(size) :]
        where = [p * s + t * d - pad for p, s, t, d, pad in zip(place, stride, tap, dilation, padding, strict=True)]
        if all(0 <= w < extent for w, extent in zip(where, size, strict=True)):
            found[_image_index(at)] = x[_image_index(where)]
    return found


def convolution(x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int, out: Any) -> Any:
    """x [n, c, *in], w [c', c / groups, *taps] -> [n, c', *out]; k runs over (c, taps)."""
    taps, n, c = w.shape[2:], x.shape[0], x.shape[1] // groups
    columns = unfold(x, taps, stride, padding, dilation, out)
    columns = columns.reshape(n, groups, c * int(np.prod(taps)), -1)
    rows = w.reshape(1, groups, w.shape[0] // groups, -1)
    y = matmul(np.broadcast_to(rows, (n, *rows.shape[1:])), columns).reshape(n, w.shape[0], *out)
    return y if bias is None else y + bias.reshape(1, -1, *[1] * len(out))


def gradient_of_input(g: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int, size: Any) -> Any:
    """g [n, c', *out], w [c', c / groups, *taps] -> [n, c, *size]; k runs over (c', taps).

    Also the transposed convolution of g.
    """
    n, out_channels, *out = g.shape
    taps, c = w.shape[2:], w.shape[1]
    columns = np.zeros((n, out_channels, *taps, *size), g.dtype)
    for at in np.ndindex(*taps, *out):
        tap, place = at[: len(out)], at[len(out) :]
        where = [p * s + t * d - pad for p, s, t, d, pad in zip(place, stride, tap, dilation, padding, strict=True)]
        if all(0 <= i < extent for i, extent in zip(where, size, strict=True)):
            columns[_image_index((*tap, *where))] = g[_image_index(place)]
    rows = w.reshape(groups, out_channels // groups, c, -1).transpose(0, 2, 1, 3).reshape(1, groups, c, -1)
    columns = columns.reshape(n, groups, rows.shape[-1], -1)
    return matmul(np.broadcast_to(rows, (n, *rows.shape[1:])), columns).reshape(n, groups * c, *size)


def gradient_of_weight(g: Any, x: Any, stride: Any, padding: Any, dilation: Any, groups: int, taps: Any) -> Any:
    """g [n, c', *out], x [n, c, *in] -> [c', c / groups, *taps]; k runs over (n, out)."""
    n, out_channels, *out = g.shape
    c = x.shape[1] // groups
    columns = unfold(x, taps, stride, padding, dilation, out).reshape(n, groups, c * int(np.prod(taps)), -1)
    columns = columns.transpose(1, 0, 3, 2).reshape(groups, -1, columns.shape[2])
    rows = g.reshape(n, groups, out_channels // groups, -1).transpose(1, 2, 0, 3)
    rows = rows.reshape(groups, out_channels // groups, -1)
    return matmul(rows, columns).reshape(out_channels, c, *taps)
