"""Losses on float32 arrays, one rounding an operation, left to right. Reduction: 0 none, 1 mean, 2 sum.

The elements of a sum are those of the array in row-major order (class S). Targets of `nll_loss_and_weight` and
`cross_entropy` are the classes of the rows of x, [rows, classes]; those of the others have the shape of x, or
broadcast to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from samerun.numerics.reference import Array
from samerun.numerics.reference.elementwise import apply_correctly_rounded
from samerun.numerics.reference.normalizations import log_softmax
from samerun.numerics.reference.sums import sum_rows

F = np.float32
MEAN, SUM = 1, 2


def _ignore_float_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    def quiet(*given: Any, **settings: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*given, **settings)

    return quiet


def sum_all_elements(x: Array) -> Array:
    """The sum of all values, in class S."""
    return sum_rows(x.reshape(1, -1))[0]


def _sign(x: Array) -> Array:
    """1, -1 or +0.0, of two comparisons: that of a NaN is +0.0."""
    return (x > 0).astype(F) - (x < 0).astype(F)


@_ignore_float_errors
def reduce_terms(terms: Array, reduction: int) -> Array:
    if reduction == MEAN:
        return sum_all_elements(terms) / F(terms.size)
    return sum_all_elements(terms) if reduction == SUM else terms


@_ignore_float_errors
def gradient_per_term(grad: Array, num_terms: int, reduction: int) -> Array:
    """The gradient of each of `num_terms` terms."""
    return grad / F(num_terms) if reduction == MEAN else grad


@_ignore_float_errors
def nll_loss_and_weight(
    x: Array, target: Array, weight: Array, reduction: int, ignored_class: int
) -> tuple[Array, Array]:
    """-(x * weight) at the target's class, +0.0 where it is ignored; the mean divides by the sum of the weights.

    Also that sum: the number of targets, where there are no weights. 0 with reduction none.
    """
    terms, weights = np.zeros(len(x), F), np.zeros(len(x), F)
    for row, chosen in enumerate(target):
        if chosen != ignored_class:
            weights[row] = F(1) if weight is None else weight[chosen]
            terms[row] = -(x[row, chosen] * weights[row])
    if reduction == MEAN:
        return sum_all_elements(terms) / sum_all_elements(weights), sum_all_elements(weights)
    return (sum_all_elements(terms), sum_all_elements(weights)) if reduction == SUM else (terms, F(0))


@_ignore_float_errors
def nll_loss_backward(
    grad: Array, x: Array, target: Array, weight: Array, reduction: int, ignored_class: int, weight_sum: Array
) -> Array:
    """-(grad * weight) at the target's class, where the mean has grad / sum of the weights instead; else +0.0."""
    out = np.zeros_like(x)
    for row, chosen in enumerate(target):
        if chosen != ignored_class:
            each = grad / weight_sum if reduction == MEAN else grad if reduction == SUM else grad[row]
            out[row, chosen] = -(each * (F(1) if weight is None else weight[chosen]))
    return out


@_ignore_float_errors
def cross_entropy(
    x: Array, target: Array, weight: Array, reduction: int, ignored_class: int, smoothing: float
) -> Array:
    """nll of log_softmax; smoothed: (1 - s) * nll + rest * (s / classes), rest the sum of -log_softmax * weight."""
    log_p = log_softmax(x)
    loss, weight_sum = nll_loss_and_weight(log_p, target, weight, reduction, ignored_class)
    if smoothing == 0:
        return loss
    rest = -sum_rows(log_p if weight is None else log_p * weight)
    rest[target == ignored_class] = 0
    if reduction == MEAN:
        kept = target[target != ignored_class]
        weight_sum = F(len(kept)) if weight is None else sum_all_elements(weight[kept])
        rest = sum_all_elements(rest) / weight_sum
    elif reduction == SUM:
        rest = sum_all_elements(rest)
    return F(1 - smoothing) * loss + rest * F(smoothing / x.shape[1])


@_ignore_float_errors
def mse_terms(x: Array, y: Array) -> Array:
    d = x - y
    return d * d


@_ignore_float_errors
def mse_backward(grad: Array, x: Array, y: Array) -> Array:
    """`grad` as `gradient_per_term` makes it, here and below."""
    return ((x - y) * F(2)) * grad


@_ignore_float_errors
def l1_terms(x: Array, y: Array) -> Array:
    return np.abs(x - y)


@_ignore_float_errors
def l1_backward(grad: Array, x: Array, y: Array) -> Array:
    return grad * _sign(x - y)


@_ignore_float_errors
def smooth_l1_terms(x: Array, y: Array, beta: float) -> Array:
    """((d*d) * 0.5) / beta below beta, else d - beta/2, of d = |x - y|."""
    d = np.abs(x - y)
    if beta == 0:
        return d
    return np.where(d < F(beta), ((d * d) * F(0.5)) / F(beta), d - F(0.5 * beta))


@_ignore_float_errors
def smooth_l1_backward(grad: Array, x: Array, y: Array, beta: float) -> Array:
    d = x - y
    slope = _sign(d) if beta == 0 else np.where(np.abs(d) >= F(beta), _sign(d), d / F(beta))
    return slope * grad


@_ignore_float_errors
def huber_terms(x: Array, y: Array, delta: float) -> Array:
    """(d*d) * 0.5 up to delta, else (d - delta/2) * delta, of d = |x - y|."""
    d = np.abs(x - y)
    return np.where(d <= F(delta), (d * d) * F(0.5), (d - F(0.5 * delta)) * F(delta))


@_ignore_float_errors
def huber_backward(grad: Array, x: Array, y: Array, delta: float) -> Array:
    return np.clip(x - y, F(-delta), F(delta)) * grad


@_ignore_float_errors
def binary_cross_entropy_terms(x: Array, y: Array, weight: Array) -> Array:
    """((y - 1) * max(log1p(-x), -100) - y * max(log(x), -100)) * weight."""
    no, yes = (
        np.maximum(apply_correctly_rounded("log1p", -x), F(-100)),
        np.maximum(apply_correctly_rounded("log", x), F(-100)),
    )
    terms = (y - F(1)) * no - y * yes
    return terms if weight is None else terms * weight


@_ignore_float_errors
def binary_cross_entropy_backward(grad: Array, x: Array, y: Array, weight: Array) -> Array:
    """(grad * (x - y)) / max(x * (1 - x), 1e-12), times the weight."""
    found = (grad * (x - y)) / np.maximum(x * (F(1) - x), F(1e-12))
    return found if weight is None else found * weight


@_ignore_float_errors
def binary_cross_entropy_with_logits_terms(x: Array, y: Array, weight: Array, positive_weight: Array) -> Array:
    """(1 - y) * x - (min(x, 0) - log1p(exp(-|x|))) * ((positive_weight - 1) * y + 1), times the weight."""
    smooth = np.minimum(x, F(0)) - apply_correctly_rounded("log1p", apply_correctly_rounded("exp", -np.abs(x)))
    if positive_weight is not None:
        smooth = smooth * ((positive_weight - F(1)) * y + F(1))
    terms = (F(1) - y) * x - smooth
    return terms if weight is None else terms * weight


@_ignore_float_errors
def kl_div_terms(x: Array, y: Array, log_target: bool) -> Array:
    """y * log(y) - y * x, where 0 * log(0) is 0; of a target that is a logarithm, exp(y) * (y - x)."""
    if log_target:
        return apply_correctly_rounded("exp", y) * (y - x)
    return np.where(y == 0, F(0), y * apply_correctly_rounded("log", y)) - y * x
