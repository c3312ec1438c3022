"""Losses that ask for a margin, and their gradients. reduction: 0 none, 1 mean, 2 sum."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from samerun.numerics.kernels import library, sums
from samerun.numerics.kernels.functions import exp, log1p, sigmoid
from samerun.numerics.operators.declare import Members, divide, widen_half_inputs
from samerun.numerics.operators.loss_reduction import MEAN, reduce_terms, spread_gradient


@widen_half_inputs
def soft_margin(x: Tensor, y: Tensor, reduction: int = MEAN) -> Tensor:
    """log1p(exp(-(y * x)))."""
    return reduce_terms(log1p(exp(torch.neg(torch.mul(y, x)))), reduction)


@widen_half_inputs
def soft_margin_backward(g: Tensor, x: Tensor, y: Tensor, reduction: int) -> Tensor:
    """(-y * sigmoid(-(y * x))) * g, g / n for the mean."""
    slope = torch.mul(torch.neg(y), sigmoid(torch.neg(torch.mul(y, x))))
    return torch.mul(slope, spread_gradient(g, slope, reduction))


def _check_and_flatten_classes(
    x: Tensor, target: Tensor, p: Any, margin: Any, w: Tensor | None, reduction: int
) -> tuple[Tensor, Tensor]:
    """Rows [n, c] and their class [n]."""
    fits = x.dim() in (1, 2) and x.is_floating_point() and target.dtype is torch.int64 and p in (1, 2) and (
        target.shape == x.shape[:-1] or (x.dim() == 1 and target.numel() == 1)
    ) and (w is None or w.shape == x.shape[-1:])  # fmt: skip
    inside = ((target >= 0) & (target < x.shape[-1])).all() if fits and x.numel() else None
    if inside is not None and library.is_off_cpu(x):  # the device finds it out when it comes to it
        torch._assert_async(inside, "multi_margin_loss: a target is out of range")
    elif not fits or (inside is not None and not bool(inside)):
        torch.ops.aten.multi_margin_loss(x, target, p, margin, w, reduction)  # torch's own words
        raise RuntimeError("multi_margin_loss: target out of range or of another shape")
    return x.reshape(-1, x.shape[-1]), target.reshape(-1)


def _margin_violations(rows: Tensor, label: Tensor, margin: Any) -> tuple[Tensor, Tensor]:
    """z = (margin - x[y]) + x, and where it counts: above 0, at other classes than y."""
    z = torch.add(torch.rsub(rows.gather(1, label[:, None]), margin), rows)
    is_target = torch.arange(rows.shape[1], device=rows.device) == label[:, None]
    return z, (z > 0) & ~is_target


@widen_half_inputs
def multi_margin(
    x: Tensor, target: Tensor, p: Any = 1, margin: Any = 1, w: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """Class S over the classes but y of max(0, z)^p * w[y], z = (margin - x[y]) + x; / classes."""
    rows, label = _check_and_flatten_classes(x, target, p, margin, w, reduction)
    z, counts = _margin_violations(rows, label, margin)
    terms = z if p == 1 else torch.mul(z, z)
    terms = terms if w is None else torch.mul(terms, w.index_select(0, label)[:, None])
    found = divide(sums.sum(torch.where(counts, terms, torch.zeros_like(terms)), [1]), rows.shape[1])
    return reduce_terms(found.reshape(x.shape[:-1]), reduction)


@widen_half_inputs
def multi_margin_backward(
    g: Tensor, x: Tensor, target: Tensor, p: Any, margin: Any, w: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """u = g / classes (g / n first for the mean), times w[y]; u, or (2z) * u for p = 2, where z counts. At y minus
    the class S sum of those.
    """
    rows, label = _check_and_flatten_classes(x, target, p, margin, w, reduction)
    z, counts = _margin_violations(rows, label, margin)
    unit = divide(spread_gradient(g, label, reduction), rows.shape[1]).reshape(-1, 1)
    unit = unit if w is None else torch.mul(unit, w.index_select(0, label)[:, None])
    terms = unit.expand(rows.shape) if p == 1 else torch.mul(torch.mul(z, 2), unit)
    terms = torch.where(counts, terms, torch.zeros_like(rows))
    is_target = torch.neg(sums.sum(terms, [1]))
    return terms.scatter_(1, label[:, None], is_target[:, None]).reshape(x.shape)


def _check_and_flatten_labels(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor, Tensor]:
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
def multilabel_margin(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Label after label y: class S over the classes that are no label of max(0, (1 - x[y]) + x). Their sum one after
    the other, / classes. Also which classes are labels, as 1.
    """
    rows, labels, kept = _check_and_flatten_labels(x, target, reduction)
    marked = torch.zeros(rows.shape, dtype=torch.int64, device=x.device)
    marked = marked.scatter_add_(1, labels, kept.to(torch.int64)) > 0
    total = rows.new_zeros(rows.shape[0])
    for k in range(_max_labels_per_row(kept)):
        z = torch.add(torch.rsub(rows.gather(1, labels[:, k : k + 1]), 1), rows)
        counts = (z > 0) & ~marked & kept[:, k : k + 1]
        total = torch.add(total, sums.sum(torch.where(counts, z, torch.zeros_like(z)), [1]))
    found = divide(total, max(rows.shape[1], 1))
    return reduce_terms(found.reshape(x.shape[:-1]), reduction), marked.to(rows.dtype).reshape(target.shape)


@widen_half_inputs
def multilabel_margin_backward(g: Tensor, x: Tensor, target: Tensor, reduction: int, marked: Tensor) -> Tensor:
    """u = g / classes (g / n first for the mean), times the number of terms above 0 in which a class stands, which is
    negative for a label.
    """
    rows, labels, kept = _check_and_flatten_labels(x, target, reduction)
    times = torch.zeros(rows.shape, dtype=torch.int64, device=x.device)
    is_label = marked.reshape(rows.shape) > 0
    for k in range(_max_labels_per_row(kept)):
        z = torch.add(torch.rsub(rows.gather(1, labels[:, k : k + 1]), 1), rows)
        counts = ((z > 0) & ~is_label & kept[:, k : k + 1]).to(torch.int64)
        times = torch.add(times, counts)
        times.scatter_add_(1, labels[:, k : k + 1], torch.neg(counts.sum(1, True)))
    each = torch.zeros(rows.shape[0], dtype=torch.bool, device=x.device)
    unit = divide(spread_gradient(g, each, reduction), max(rows.shape[1], 1)).reshape(-1, 1)
    return torch.mul(times.to(rows.dtype), unit).reshape(x.shape)


MEMBERS: Members = {
    "aten::soft_margin_loss": soft_margin,
    "aten::soft_margin_loss_backward": soft_margin_backward,
    "aten::multi_margin_loss": multi_margin,
    "aten::multi_margin_loss_backward": multi_margin_backward,
    "aten::multilabel_margin_loss_forward": multilabel_margin,
    "aten::multilabel_margin_loss_backward": multilabel_margin_backward,
}
