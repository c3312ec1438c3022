"""Normalisations on float32 [rows, n]; weight and bias are [rows, n] or None. One rounding an operation."""

from __future__ import annotations

from typing import Any

import numpy as np

from samerun.numerics.reference.sums import sum


def normalize(rms: bool, eps: float, x: Any, weight: Any, bias: Any) -> tuple[Any, Any, Any]:
    """y, and the mean and 1/sqrt(v + eps) of each row."""
    with np.errstate(all="ignore"):
        n = np.float32(x.shape[1])
        mean = np.zeros(x.shape[0], np.float32) if rms else sum(x) / n
        d = x if rms else x - mean[:, None]
        v = sum(d * d) / n
        r = np.float32(1) / np.sqrt(v + np.float32(eps))
        y = d * r[:, None]
        if weight is not None:
            y = y * weight
        if bias is not None:
            y = y + bias
        return y, mean, r


def normalize_backward(rms: bool, x: Any, grad: Any, weight: Any, mean: Any, r: Any) -> tuple[Any, Any]:
    """The gradient of x, and the terms that sum to the gradient of the weight."""
    with np.errstate(all="ignore"):
        n = np.float32(x.shape[1])
        y = (x if rms else x - mean[:, None]) * r[:, None]
        h = grad if weight is None else grad * weight
        if not rms:
            center = sum(h) / n
        slope = sum(h * y) / n
        left = h if rms else h - center[:, None]
        return (left - y * slope[:, None]) * r[:, None], grad * y
