"""Normalizations of the rows of float32 or float64 [rows, n]: the softmax family, layer norm and rms norm.

One rounding an operation. The weight and bias of a norm are [rows, n] or None.
"""

from __future__ import annotations

import numpy as np

from samerun.numerics.reference import Array
from samerun.numerics.reference.elementwise import apply_correctly_rounded
from samerun.numerics.reference.sums import sum_rows


def _row_max(x: Array) -> Array:
    return x.max(1, initial=-np.inf)[:, None]


def softmax(x: Array) -> Array:
    with np.errstate(all="ignore"):
        m = _row_max(x)
        e = apply_correctly_rounded("exp", x - m)
        return e / sum_rows(e)[:, None]


def log_softmax(x: Array) -> Array:
    with np.errstate(all="ignore"):
        m = _row_max(x)
        d = x - m
        return d - apply_correctly_rounded("log", sum_rows(apply_correctly_rounded("exp", d)))[:, None]


def logsumexp(x: Array) -> Array:
    with np.errstate(all="ignore"):
        m = _row_max(x)
        m = np.where(np.isinf(m), x.dtype.type(0), m)
        return m[:, 0] + apply_correctly_rounded("log", sum_rows(apply_correctly_rounded("exp", x - m)))


def softmax_backward(output: Array, grad_output: Array) -> Array:
    with np.errstate(all="ignore"):
        return (grad_output - sum_rows(grad_output * output)[:, None]) * output


def log_softmax_backward(output: Array, grad_output: Array) -> Array:
    with np.errstate(all="ignore"):
        return grad_output - apply_correctly_rounded("exp", output) * sum_rows(grad_output)[:, None]


def normalize_rows(is_rms: bool, eps: float, x: Array, weight: Array, bias: Array) -> tuple[Array, Array, Array]:
    """y, and the mean and 1/sqrt(v + eps) of each row."""
    with np.errstate(all="ignore"):
        n = x.dtype.type(x.shape[1])
        mean = np.zeros(x.shape[0], x.dtype) if is_rms else sum_rows(x) / n
        d = x if is_rms else x - mean[:, None]
        v = sum_rows(d * d) / n
        rstd = x.dtype.type(1) / np.sqrt(v + x.dtype.type(eps))
        y = d * rstd[:, None]
        if weight is not None:
            y = y * weight
        if bias is not None:
            y = y + bias
        return y, mean, rstd


def normalize_rows_backward(
    is_rms: bool, x: Array, grad_output: Array, weight: Array, mean: Array, rstd: Array
) -> tuple[Array, Array]:
    """The gradient of x, and the terms that sum to the gradient of the weight."""
    with np.errstate(all="ignore"):
        n = x.dtype.type(x.shape[1])
        y = (x if is_rms else x - mean[:, None]) * rstd[:, None]
        h = grad_output if weight is None else grad_output * weight
        if not is_rms:
            center = sum_rows(h) / n
        slope = sum_rows(h * y) / n
        left = h if is_rms else h - center[:, None]
        return (left - y * slope[:, None]) * rstd[:, None], grad_output * y
