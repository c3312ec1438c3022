"""Class S: sums and what is made of them. Arrays are [kept, n]; each row is reduced. float32 or float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from samerun.numerics.reference import Array

BLOCK, LANES = 4096, 32


def tree_reduce_rows(x: Array, combine: Callable[[Any, Any], Any], identity: float) -> Array:
    """Reduce the last dimension of [kept, n], n > 0, in the order of class S."""
    kept, n = x.shape
    parts = []
    for start in range(0, n, BLOCK):
        block = x[:, start : start + BLOCK]
        lanes = np.full((kept, LANES), identity, x.dtype)
        for i in range(0, block.shape[1], LANES):
            part = block[:, i : i + LANES]
            width = part.shape[1]
            lanes[:, :width] = combine(lanes[:, :width], part)
        half = LANES // 2
        while half:
            lanes[:, :half] = combine(lanes[:, :half], lanes[:, half : 2 * half])
            half //= 2
        parts.append(lanes[:, 0].copy())
    while len(parts) > 1:
        pairs = [combine(parts[i], parts[i + 1]) for i in range(0, len(parts) - 1, 2)]
        parts = pairs + parts[len(parts) - len(parts) % 2 :]
    return parts[0]


def sum_rows(x: Array) -> Array:
    """[kept, n] -> [kept]. Nothing sums to +0.0."""
    if x.shape[1] == 0:
        return np.zeros(x.shape[0], x.dtype)
    with np.errstate(all="ignore"):
        return tree_reduce_rows(x, np.add, -0.0)


def prod_rows(x: Array) -> Array:
    """[kept, n] -> [kept]. The product of nothing is 1."""
    if x.shape[1] == 0:
        return np.ones(x.shape[0], x.dtype)
    with np.errstate(all="ignore"):
        return tree_reduce_rows(x, np.multiply, 1.0)


def tree_reduce_term_rows(
    term: Literal["x", "square", "square_from_center", "abs", "product"], x: Array, center: Array = None
) -> Array:
    """[kept, n] -> [kept]. `center`: [kept], for the term `square_from_center`."""
    with np.errstate(all="ignore"):
        if term == "product":
            return prod_rows(x)
        if term == "square":
            return sum_rows(x * x)
        if term == "square_from_center":
            d = x - center[:, None]
            return sum_rows(d * d)
        return sum_rows(np.abs(x) if term == "abs" else x)


def cumulative_sum_or_product_along_dim_1(is_product: bool, x: Array) -> Array:
    """[outer, n, inner], along n."""
    out = x.copy()
    with np.errstate(all="ignore"):
        for i in range(1, x.shape[1]):
            out[:, i] = out[:, i - 1] * x[:, i] if is_product else out[:, i - 1] + x[:, i]
    return out
