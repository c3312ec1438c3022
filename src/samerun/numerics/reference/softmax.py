"""The softmax family: float32 [rows, n] -> the same; one rounding an operation."""

from __future__ import annotations

from typing import Any

import numpy as np

from samerun.numerics.reference.functions import unary
from samerun.numerics.reference.sums import sum


def _largest(x: Any) -> Any:
    return x.max(1, initial=-np.inf)[:, None]


def softmax(x: Any) -> Any:
    with np.errstate(all="ignore"):
        m = _largest(x)
        e = unary("exp", x - m)
        return e / sum(e)[:, None]


def log_softmax(x: Any) -> Any:
    with np.errstate(all="ignore"):
        m = _largest(x)
        d = x - m
        return d - unary("log", sum(unary("exp", d)))[:, None]


def logsumexp(x: Any) -> Any:
    with np.errstate(all="ignore"):
        m = _largest(x)
        m = np.where(np.isinf(m), np.float32(0), m)
        return m[:, 0] + unary("log", sum(unary("exp", x - m)))


def softmax_backward(y: Any, grad: Any) -> Any:
    with np.errstate(all="ignore"):
        return (grad - sum(grad * y)[:, None]) * y


def log_softmax_backward(y: Any, grad: Any) -> Any:
    with np.errstate(all="ignore"):
        return grad - unary("exp", y) * sum(grad)[:, None]
