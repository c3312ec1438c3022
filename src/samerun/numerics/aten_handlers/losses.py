"""Losses and their gradients; losses that ask for a margin are the last. reduction: 0 none, 1 mean, 2 sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import Members, Scalar, divide_correctly_rounded, widen_half_inputs
from samerun.numerics.kernels import library, sums
from samerun.numerics.kernels.functions import exp, log, log1p, sigmoid

NONE, MEAN, SUM = 0, 1, 2


def reduce_terms(terms: Tensor, reduction: int) -> Tensor:
    """The mean or the sum of all terms, by class S, or the terms themselves."""
    if reduction == MEAN:
        return sums.mean(terms)
    return sums.sum(terms) if reduction == SUM else terms


def divide_gradient_for_mean(grad: Tensor, terms: Tensor, reduction: int) -> Tensor:
    """The gradient of each term: grad / n for the mean, else grad."""
    if reduction == MEAN:
        return torch.div(grad, torch.full((), float(terms.numel()), dtype=grad.dtype, device=grad.device))
    return grad


def _flatten_to_rows_of_classes(x: Tensor) -> Tensor:
    """[n, c, ...] or [c] -> [n', c], in row-major order of the positions."""
    return x.reshape(1, -1) if x.dim() == 1 else x.movedim(1, -1).reshape(-1, x.shape[1])


class _ClassesAndWeights(NamedTuple):
    """Of each target. Class and weight are 0 where it is ignored."""

    is_counted: Tensor
    classes: Tensor
    weights: Tensor


def _find_classes_and_weights(
    target: Tensor, class_weight: Tensor | None, ignore_index: int, dtype: torch.dtype
) -> _ClassesAndWeights:
    flat = target.reshape(-1)
    kept = flat != ignore_index
    place = torch.where(kept, flat, torch.zeros_like(flat))
    weight = (
        torch.ones(flat.shape, dtype=dtype, device=flat.device)
        if class_weight is None
        else class_weight.index_select(0, place)
    )
    return _ClassesAndWeights(kept, place, torch.where(kept, weight, torch.zeros_like(weight)))


def _require_targets_in_bounds(target: Tensor, ignore_index: int, classes: int) -> None:
    """Raises IndexError. On CUDA the device finds it out when it comes to it, as torch's own kernel does."""
    is_out_of_bounds = (target != ignore_index) & ((target < 0) | (target >= classes))
    if library.is_off_cpu(target):
        torch._assert_async(is_out_of_bounds.logical_not().all(), "nll_loss: a target is out of bounds")
    elif target.numel() and bool(is_out_of_bounds.any()):
        raise IndexError(f"Target {int(target[is_out_of_bounds][0])} is out of bounds.")


_MOST_EXACT_COUNT = 1 << 24
"""Ones are added up to this number without a rounding, in any order and type."""


def _counts_every_target(target: Tensor, class_weight: Tensor | None, ignore_index: int, classes: int) -> bool:
    """Whether every target is a class that is neither ignored nor weighted: found in one pass over them."""
    if class_weight is not None or library.is_off_cpu(target) or not 0 < target.numel() <= _MOST_EXACT_COUNT:
        return False
    lowest, highest = (int(each) for each in torch.aminmax(target))
    return lowest >= 0 and highest < classes and not lowest <= ignore_index <= highest


@widen_half_inputs
def nll_loss(
    x: Tensor, target: Tensor, class_weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """-(class_weight * x) at the target's class; the mean divides by the sum of the weights. Also that sum."""
    rows = _flatten_to_rows_of_classes(x)
    if target.shape != (x.shape[:1] + x.shape[2:] if x.dim() > 1 else ()) and (x.dim() > 1 or target.numel() != 1):
        raise RuntimeError(f"size mismatch (got input: {list(x.shape)} , target: {list(target.shape)}")
    if _counts_every_target(target, class_weight, ignore_index, rows.shape[1]):
        # The same terms and the same sums in a third of the operators: losses of small models are called each step.
        terms = torch.neg(rows.gather(1, target.reshape(-1, 1)).reshape(-1))
        if reduction == NONE:
            return terms.reshape(target.shape), x.new_zeros(())
        total = x.new_full((), float(target.numel()))
        return torch.div(sums.sum(terms), total) if reduction == MEAN else sums.sum(terms), total
    _require_targets_in_bounds(target, ignore_index, rows.shape[1])
    kept, place, weight = _find_classes_and_weights(target, class_weight, ignore_index, x.dtype)
    value = rows.gather(1, place[:, None])[:, 0]
    terms = torch.neg(torch.mul(value, weight) if class_weight is not None else value)
    terms = torch.where(kept, terms, torch.zeros_like(terms))
    total = sums.sum(weight)
    if reduction == MEAN:
        return torch.div(sums.sum(terms), total), total
    if reduction == SUM:
        return sums.sum(terms), total
    return terms.reshape(target.shape), x.new_zeros(())


@widen_half_inputs
def nll_loss_backward(
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    class_weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """-(grad * class_weight) at the target's class, or -((grad / total_weight) * class_weight) for the mean; else 0."""
    if reduction == MEAN:
        grad = torch.div(grad, total_weight)
    if grad.dim():
        grad = grad.reshape(-1)
    classes = x.shape[1] if x.dim() > 1 else x.shape[0]
    if _counts_every_target(target, class_weight, ignore_index, classes):
        place, value = target.reshape(-1), torch.neg(grad).expand(target.numel())
    else:
        kept, place, weight = _find_classes_and_weights(target, class_weight, ignore_index, x.dtype)
        value = torch.neg(torch.mul(grad, weight))
        value = torch.where(kept, value, torch.zeros_like(value))
    rows = x.new_zeros(place.shape[0], classes).scatter_(1, place[:, None], value[:, None])
    if x.dim() <= 2:
        return rows.reshape(x.shape)
    return rows.reshape(x.shape[0], *x.shape[2:], x.shape[1]).movedim(-1, 1).contiguous()


@widen_half_inputs
def mse_loss(x: Tensor, target: Tensor, reduction: int = MEAN) -> Tensor:
    """(x - target) * (x - target)."""
    d = torch.sub(x, target)
    return reduce_terms(torch.mul(d, d), reduction)


@widen_half_inputs
def mse_loss_backward(grad: Tensor, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    """(2 * (x - target)) * grad, grad / n for the mean."""
    return torch.mul(torch.mul(torch.sub(x, target), 2), divide_gradient_for_mean(grad, x, reduction))


def _make_smooth_l1_handlers(is_huber: bool) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """smooth_l1 divides by beta inside; huber multiplies by delta outside."""

    @widen_half_inputs
    def loss(x: Tensor, target: Tensor, reduction: int = MEAN, beta_or_delta: float = 1.0) -> Tensor:
        d = torch.sub(x, target).abs()
        half = torch.mul(torch.mul(d, d), 0.5)
        if is_huber:
            terms = torch.where(d <= beta_or_delta, half, torch.mul(torch.sub(d, 0.5 * beta_or_delta), beta_or_delta))
        else:
            terms = (
                d
                if beta_or_delta == 0
                else torch.where(
                    d < beta_or_delta, divide_correctly_rounded(half, beta_or_delta), torch.sub(d, 0.5 * beta_or_delta)
                )
            )
        return reduce_terms(terms, reduction)

    @widen_half_inputs
    def backward(grad: Tensor, x: Tensor, target: Tensor, reduction: int, beta_or_delta: float) -> Tensor:
        d = torch.sub(x, target)
        if is_huber:
            slope = torch.clamp(d, -beta_or_delta, beta_or_delta)
        else:
            slope = (
                torch.sign(d)
                if beta_or_delta == 0
                else torch.where(d.abs() >= beta_or_delta, torch.sign(d), divide_correctly_rounded(d, beta_or_delta))
            )
        return torch.mul(slope, divide_gradient_for_mean(grad, x, reduction))

    return loss, backward


@widen_half_inputs
def binary_cross_entropy(x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = MEAN) -> Tensor:
    """((target - 1) * max(log1p(-x), -100) - target * max(log(x), -100)) * weight.

    log1p(-x) is one rounding, log(1 - x) two.
    """
    inside = ((x >= 0) & (x <= 1)).all()
    if library.is_off_cpu(x):
        torch._assert_async(inside, "binary_cross_entropy: an input is not between 0 and 1")
    elif x.numel() and not bool(inside):
        raise RuntimeError("all elements of input should be between 0 and 1")
    no, yes = torch.clamp(log1p(torch.neg(x)), min=-100), torch.clamp(log(x), min=-100)
    terms = torch.sub(torch.mul(torch.sub(target, 1), no), torch.mul(target, yes))
    return reduce_terms(terms if weight is None else torch.mul(terms, weight), reduction)


@widen_half_inputs
def binary_cross_entropy_backward(
    grad: Tensor, x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """(grad * (x - target)) / max(x * (1 - x), 1e-12), times weight."""
    grad = divide_gradient_for_mean(grad, x, reduction)
    below = torch.clamp(torch.mul(x, torch.rsub(x, 1)), min=1e-12)
    found = torch.div(torch.mul(grad, torch.sub(x, target)), below)
    return found if weight is None else torch.mul(found, weight)


@widen_half_inputs
def binary_cross_entropy_with_logits(
    x: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """(1 - target) * x - logsigmoid(x) * (1 + (pos_weight - 1) * target), times weight."""
    smooth = torch.sub(torch.clamp(x, max=0), log1p(exp(torch.neg(torch.abs(x)))))
    if pos_weight is not None:
        smooth = torch.mul(smooth, torch.add(torch.mul(torch.sub(pos_weight, 1), target), 1))
    terms = torch.sub(torch.mul(torch.rsub(target, 1), x), smooth)
    return reduce_terms(terms if weight is None else torch.mul(terms, weight), reduction)


smooth_l1, smooth_l1_backward = _make_smooth_l1_handlers(False)
huber, huber_backward = _make_smooth_l1_handlers(True)


@widen_half_inputs
def soft_margin_loss(x: Tensor, target: Tensor, reduction: int = MEAN) -> Tensor:
    """log1p(exp(-(target * x)))."""
    return reduce_terms(log1p(exp(torch.neg(torch.mul(target, x)))), reduction)


@widen_half_inputs
def soft_margin_loss_backward(grad: Tensor, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    """(-target * sigmoid(-(target * x))) * grad, grad / n for the mean."""
    slope = torch.mul(torch.neg(target), sigmoid(torch.neg(torch.mul(target, x))))
    return torch.mul(slope, divide_gradient_for_mean(grad, slope, reduction))


def _require_multi_margin_inputs_and_flatten(
    x: Tensor, target: Tensor, p: Any, margin: Scalar, weight: Tensor | None, reduction: int
) -> tuple[Tensor, Tensor]:
    """Rows [n, c] and their class [n]."""
    x = x.reshape(1) if x.dim() == 0 else x
    fits = x.dim() in (1, 2) and x.is_floating_point() and target.dtype is torch.int64 and p in (1, 2) and (
        target.shape == x.shape[:-1] or (x.dim() == 1 and target.numel() == 1)
    ) and (weight is None or weight.shape == x.shape[-1:])  # fmt: skip
    inside = ((target >= 0) & (target < x.shape[-1])).all() if fits and x.numel() else None
    if inside is not None and library.is_off_cpu(x):  # the device finds it out when it comes to it
        torch._assert_async(inside, "multi_margin_loss: a target is out of range")
    elif not fits or (inside is not None and not bool(inside)):
        torch.ops.aten.multi_margin_loss(x, target, p, margin, weight, reduction)  # torch's own words
        raise RuntimeError("multi_margin_loss: target out of range or of another shape")
    return x.reshape(-1, x.shape[-1]), target.reshape(-1)


def _margin_violations(rows: Tensor, label: Tensor, margin: Scalar) -> tuple[Tensor, Tensor]:
    """z = (margin - x[y]) + x, and where it counts: above 0, at other classes than y."""
    z = torch.add(torch.rsub(rows.gather(1, label[:, None]), margin), rows)
    is_target = torch.arange(rows.shape[1], device=rows.device) == label[:, None]
    return z, (z > 0) & ~is_target


@widen_half_inputs
def multi_margin_loss(
    x: Tensor, target: Tensor, p: Any = 1, margin: Scalar = 1, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """Class S over the classes but target of max(0, z)^p * weight[target], z = (margin - x[target]) + x; / classes."""
    rows, label = _require_multi_margin_inputs_and_flatten(x, target, p, margin, weight, reduction)
    z, counts = _margin_violations(rows, label, margin)
    terms = z if p == 1 else torch.mul(z, z)
    terms = terms if weight is None else torch.mul(terms, weight.index_select(0, label)[:, None])
    found = divide_correctly_rounded(sums.sum(torch.where(counts, terms, torch.zeros_like(terms)), [1]), rows.shape[1])
    return reduce_terms(found.reshape(target.shape if x.dim() else ()), reduction)


@widen_half_inputs
def multi_margin_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, p: Any, margin: Scalar, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """u = grad / classes (grad / n first for the mean), times weight[target].

    Where z counts: u, or (2z) * u for p = 2. At the target minus the class S sum of those.
    """
    rows, label = _require_multi_margin_inputs_and_flatten(x, target, p, margin, weight, reduction)
    z, counts = _margin_violations(rows, label, margin)
    unit = divide_correctly_rounded(divide_gradient_for_mean(grad, label, reduction), rows.shape[1]).reshape(-1, 1)
    unit = unit if weight is None else torch.mul(unit, weight.index_select(0, label)[:, None])
    terms = unit.expand(rows.shape) if p == 1 else torch.mul(torch.mul(z, 2), unit)
    terms = torch.where(counts, terms, torch.zeros_like(rows))
    is_target = torch.neg(sums.sum(terms, [1]))
    return terms.scatter_(1, label[:, None], is_target[:, None]).reshape(x.shape)


def _require_multilabel_inputs_and_flatten(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows [n, c], their labels [n, c] (0 behind the first negative one), and which of these count."""
    if x.dim() > 2 or target.shape != x.shape or target.dtype is not torch.int64 or not x.is_floating_point():
        torch.ops.aten.multilabel_margin_loss_forward(x, target, reduction)  # torch's own words
        raise RuntimeError("multilabel_margin_loss: inconsistent target size")
    rows, labels = ((each.reshape(-1, x.shape[-1]) if x.dim() else each.reshape(1, 1)) for each in (x, target))
    if labels.numel() and not bool(((labels >= -1) & (labels < rows.shape[1])).all()):
        raise RuntimeError("argument #2 'target' is out of range")
    kept = torch.cumsum((labels < 0).to(torch.int64), 1) == 0
    return rows, torch.where(kept, labels, 0), kept


def _max_labels_per_row(kept: Tensor) -> int:
    return int(kept.to(torch.int64).sum(1).max()) if kept.numel() else 0


@widen_half_inputs
def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Label after label y: class S over the classes that are no label of max(0, (1 - x[y]) + x).

    Their sum one after the other, / classes. Also which classes are labels, as 1.
    """
    rows, labels, kept = _require_multilabel_inputs_and_flatten(x, target, reduction)
    marked = torch.zeros(rows.shape, dtype=torch.int64, device=x.device)
    marked = marked.scatter_add_(1, labels, kept.to(torch.int64)) > 0
    total = rows.new_zeros(rows.shape[0])
    for k in range(_max_labels_per_row(kept)):
        z = torch.add(torch.rsub(rows.gather(1, labels[:, k : k + 1]), 1), rows)
        counts = (z > 0) & ~marked & kept[:, k : k + 1]
        total = torch.add(total, sums.sum(torch.where(counts, z, torch.zeros_like(z)), [1]))
    found = divide_correctly_rounded(total, max(rows.shape[1], 1))
    return reduce_terms(found.reshape(x.shape[:-1]), reduction), marked.to(rows.dtype).reshape(target.shape)


@widen_half_inputs
def multilabel_margin_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, reduction: int, is_target: Tensor
) -> Tensor:
    """u = grad / classes (grad / n first for the mean), times the number of terms above 0 in which a class stands.

    That number is negative for a label.
    """
    rows, labels, kept = _require_multilabel_inputs_and_flatten(x, target, reduction)
    times = torch.zeros(rows.shape, dtype=torch.int64, device=x.device)
    is_label = is_target.reshape(rows.shape) > 0
    for k in range(_max_labels_per_row(kept)):
        z = torch.add(torch.rsub(rows.gather(1, labels[:, k : k + 1]), 1), rows)
        counts = ((z > 0) & ~is_label & kept[:, k : k + 1]).to(torch.int64)
        times = torch.add(times, counts)
        times.scatter_add_(1, labels[:, k : k + 1], torch.neg(counts.sum(1, True)))
    each = torch.zeros(rows.shape[0], dtype=torch.bool, device=x.device)
    unit = divide_correctly_rounded(divide_gradient_for_mean(grad, each, reduction), max(rows.shape[1], 1)).reshape(
        -1, 1
    )
    return torch.mul(times.to(rows.dtype), unit).reshape(x.shape)


MEMBERS: Members = {
    "aten::nll_loss_forward": nll_loss,
    "aten::nll_loss_backward": nll_loss_backward,
    "aten::nll_loss2d_forward": nll_loss,
    "aten::nll_loss2d_backward": nll_loss_backward,
    "aten::mse_loss": mse_loss,
    "aten::mse_loss_backward": mse_loss_backward,
    "aten::smooth_l1_loss": smooth_l1,
    "aten::smooth_l1_loss_backward": smooth_l1_backward,
    "aten::huber_loss": huber,
    "aten::huber_loss_backward": huber_backward,
    "aten::binary_cross_entropy": binary_cross_entropy,
    "aten::binary_cross_entropy_backward": binary_cross_entropy_backward,
    "aten::binary_cross_entropy_with_logits": binary_cross_entropy_with_logits,
    "aten::soft_margin_loss": soft_margin_loss,
    "aten::soft_margin_loss_backward": soft_margin_loss_backward,
    "aten::multi_margin_loss": multi_margin_loss,
    "aten::multi_margin_loss_backward": multi_margin_loss_backward,
    "aten::multilabel_margin_loss_forward": multilabel_margin_loss,
    "aten::multilabel_margin_loss_backward": multilabel_margin_loss_backward,
}
