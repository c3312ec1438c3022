"""Losses and their gradients. reduction: 0 none, 1 mean, 2 sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from samerun.numerics.kernels import library, sums
from samerun.numerics.kernels.functions import exp, log, log1p
from samerun.numerics.operators.declare import Members, divide, widen_half_inputs
from samerun.numerics.operators.loss_reduction import MEAN, SUM, reduce_terms, spread_gradient


def _classes_last(x: Tensor) -> Tensor:
    """[n, c, ...] or [c] -> [n', c], in row-major order of the positions."""
    return x.reshape(1, -1) if x.dim() == 1 else x.movedim(1, -1).reshape(-1, x.shape[1])


class _ClassesAndWeights(NamedTuple):
    """Of each target. Class and weight are 0 where it is ignored."""

    is_counted: Tensor
    classes: Tensor
    weights: Tensor


def _find_classes_and_weights(
    target: Tensor, w: Tensor | None, ignore_index: int, dtype: torch.dtype
) -> _ClassesAndWeights:
    flat = target.reshape(-1)
    kept = flat != ignore_index
    place = torch.where(kept, flat, torch.zeros_like(flat))
    weight = torch.ones(flat.shape, dtype=dtype, device=flat.device) if w is None else w.index_select(0, place)
    return _ClassesAndWeights(kept, place, torch.where(kept, weight, torch.zeros_like(weight)))


def _require_targets_in_bounds(target: Tensor, ignore_index: int, classes: int) -> None:
    """Raises IndexError. On CUDA the device finds it out when it comes to it, as torch's own kernel does."""
    is_out_of_bounds = (target != ignore_index) & ((target < 0) | (target >= classes))
    if library.is_off_cpu(target):
        torch._assert_async(is_out_of_bounds.logical_not().all(), "nll_loss: a target is out of bounds")
    elif target.numel() and bool(is_out_of_bounds.any()):
        raise IndexError(f"Target {int(target[is_out_of_bounds][0])} is out of bounds.")


@widen_half_inputs
def nll_loss(x: Tensor, target: Tensor, w: Tensor | None, reduction: int, ignore_index: int) -> tuple[Tensor, Tensor]:
    """-(w * x) at the target's class; the mean divides by the sum of the weights. Also that sum."""
    rows = _classes_last(x)
    if target.shape != (x.shape[:1] + x.shape[2:] if x.dim() > 1 else ()) and (x.dim() > 1 or target.numel() != 1):
        raise RuntimeError(f"size mismatch (got input: {list(x.shape)} , target: {list(target.shape)}")
    _require_targets_in_bounds(target, ignore_index, rows.shape[1])
    kept, place, weight = _find_classes_and_weights(target, w, ignore_index, x.dtype)
    value = rows.gather(1, place[:, None])[:, 0]
    terms = torch.neg(torch.mul(value, weight) if w is not None else value)
    terms = torch.where(kept, terms, torch.zeros_like(terms))
    total = sums.sum(weight)
    if reduction == MEAN:
        return torch.div(sums.sum(terms), total), total
    if reduction == SUM:
        return sums.sum(terms), total
    return terms.reshape(target.shape), x.new_zeros(())


@widen_half_inputs
def nll_loss_backward(
    g: Tensor, x: Tensor, target: Tensor, w: Tensor | None, reduction: int, ignore_index: int, total: Tensor
) -> Tensor:
    """-(g * w) at the target's class, or -((g / total) * w) for the mean; else 0."""
    kept, place, weight = _find_classes_and_weights(target, w, ignore_index, x.dtype)
    if reduction == MEAN:
        g = torch.div(g, total)
    value = torch.neg(torch.mul(g.reshape(-1) if g.dim() else g, weight))
    value = torch.where(kept, value, torch.zeros_like(value))
    rows = x.new_zeros(place.shape[0], _classes_last(x).shape[1]).scatter_(1, place[:, None], value[:, None])
    if x.dim() <= 2:
        return rows.reshape(x.shape)
    return rows.reshape(x.shape[0], *x.shape[2:], x.shape[1]).movedim(-1, 1).contiguous()


@widen_half_inputs
def mse_loss(x: Tensor, y: Tensor, reduction: int = MEAN) -> Tensor:
    """(x - y) * (x - y)."""
    d = torch.sub(x, y)
    return reduce_terms(torch.mul(d, d), reduction)


@widen_half_inputs
def mse_loss_backward(g: Tensor, x: Tensor, y: Tensor, reduction: int) -> Tensor:
    """(2 * (x - y)) * g, g / n for the mean."""
    return torch.mul(torch.mul(torch.sub(x, y), 2), spread_gradient(g, x, reduction))


def _make_smooth_l1(strict: bool) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """smooth_l1 divides by beta inside; huber multiplies by delta outside."""

    @widen_half_inputs
    def loss(x: Tensor, y: Tensor, reduction: int = MEAN, limit: float = 1.0) -> Tensor:
        d = torch.sub(x, y).abs()
        half = torch.mul(torch.mul(d, d), 0.5)
        if strict:
            terms = torch.where(d <= limit, half, torch.mul(torch.sub(d, 0.5 * limit), limit))
        else:
            terms = d if limit == 0 else torch.where(d < limit, divide(half, limit), torch.sub(d, 0.5 * limit))
        return reduce_terms(terms, reduction)

    @widen_half_inputs
    def backward(g: Tensor, x: Tensor, y: Tensor, reduction: int, limit: float) -> Tensor:
        d = torch.sub(x, y)
        if strict:
            slope = torch.clamp(d, -limit, limit)
        else:
            slope = torch.sign(d) if limit == 0 else torch.where(d.abs() < limit, divide(d, limit), torch.sign(d))
        return torch.mul(slope, spread_gradient(g, x, reduction))

    return loss, backward


@widen_half_inputs
def binary_cross_entropy(x: Tensor, y: Tensor, w: Tensor | None = None, reduction: int = MEAN) -> Tensor:
    """((y - 1) * max(log1p(-x), -100) - y * max(log(x), -100)) * w. (log1p(-x) is one rounding, log(1 - x) two.)"""
    inside = ((x >= 0) & (x <= 1)).all()
    if library.is_off_cpu(x):
        torch._assert_async(inside, "binary_cross_entropy: an input is not between 0 and 1")
    elif x.numel() and not bool(inside):
        raise RuntimeError("all elements of input should be between 0 and 1")
    no, yes = torch.clamp(log1p(torch.neg(x)), min=-100), torch.clamp(log(x), min=-100)
    terms = torch.sub(torch.mul(torch.sub(y, 1), no), torch.mul(y, yes))
    return reduce_terms(terms if w is None else torch.mul(terms, w), reduction)


@widen_half_inputs
def binary_cross_entropy_backward(
    g: Tensor, x: Tensor, y: Tensor, w: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """(g * (x - y)) / max(x * (1 - x), 1e-12), times w."""
    g = spread_gradient(g, x, reduction)
    below = torch.clamp(torch.mul(x, torch.rsub(x, 1)), min=1e-12)
    found = torch.div(torch.mul(g, torch.sub(x, y)), below)
    return found if w is None else torch.mul(found, w)


@widen_half_inputs
def binary_cross_entropy_with_logits(
    x: Tensor, y: Tensor, w: Tensor | None = None, pos_weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """(1 - y) * x - logsigmoid(x) * (1 + (pos_weight - 1) * y), times w."""
    smooth = torch.sub(torch.clamp(x, max=0), log1p(exp(torch.neg(torch.abs(x)))))
    if pos_weight is not None:
        smooth = torch.mul(smooth, torch.add(torch.mul(torch.sub(pos_weight, 1), y), 1))
    terms = torch.sub(torch.mul(torch.rsub(y, 1), x), smooth)
    return reduce_terms(terms if w is None else torch.mul(terms, w), reduction)


smooth_l1, smooth_l1_backward = _make_smooth_l1(False)
huber, huber_backward = _make_smooth_l1(True)

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
}
