"""Losses of float32 and float64: exact steps on single values, then sums of class S. Left to right as written.

`reduction`: "none", "sum" or "mean" (sum / n, one rounding each). Gradients are those of the value before it is
reduced, times `grad`, which for "mean" is divided by n first: `spread`.
"""

from __future__ import annotations

import torch

from samerun.base.errors import SamerunError
from samerun.numerics import functions, softmax, sums
from samerun.numerics.tensors import compute_type


def reduced(values: torch.Tensor, reduction: str) -> torch.Tensor:
    """The values, their sum, or sum / n."""
    if reduction == "none":
        return values
    if reduction not in ("sum", "mean"):
        raise SamerunError(f"a loss with reduction={reduction!r}: it is 'none', 'sum' or 'mean'.")
    return sums.sum(values) if reduction == "sum" else sums.mean(values)


def spread(grad: torch.Tensor, like: torch.Tensor, reduction: str) -> torch.Tensor:
    """The gradient of each value from that of the reduced loss: itself, or grad / n."""
    if reduction == "mean":
        grad = grad / torch.full_like(grad, like.numel())
    return grad.expand_as(like)


def _of_type(operator: str, *tensors: torch.Tensor) -> list[torch.Tensor]:
    dtype = compute_type(operator, *tensors)
    return [each.detach().to(dtype) for each in tensors]


def mse_loss(x: torch.Tensor, target: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """d = x - target, d*d."""
    wide, wanted = _of_type("mse_loss", x, target)
    d = wide - wanted
    return reduced(d * d, reduction).to(x.dtype)


def mse_loss_backward(grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: str) -> torch.Tensor:
    """(2*d) * grad."""
    wide, wanted = _of_type("mse_loss", x, target)
    return (2 * (wide - wanted) * spread(grad.to(wide.dtype), wide, reduction)).to(x.dtype)


def l1_loss(x: torch.Tensor, target: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """|x - target|."""
    wide, wanted = _of_type("l1_loss", x, target)
    return reduced((wide - wanted).abs(), reduction).to(x.dtype)


def smooth_l1_loss(x: torch.Tensor, target: torch.Tensor, reduction: str = "mean", beta: float = 1.0) -> torch.Tensor:
    """d = |x - target|; d < beta: ((0.5*d)*d) / beta, else d - 0.5*beta."""
    wide, wanted = _of_type("smooth_l1_loss", x, target)
    d = (wide - wanted).abs()
    bend = torch.full_like(d, beta)
    return reduced(torch.where(d < bend, 0.5 * d * d / bend, d - 0.5 * bend), reduction).to(x.dtype)


def smooth_l1_loss_backward(
    grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: str, beta: float = 1.0
) -> torch.Tensor:
    """d = x - target; |d| < beta: (d / beta) * grad, else sign(d) * grad."""
    wide, wanted = _of_type("smooth_l1_loss", x, target)
    d = wide - wanted
    bend = torch.full_like(d, beta)
    return (torch.where(d.abs() < bend, d / bend, d.sign()) * spread(grad.to(wide.dtype), wide, reduction)).to(x.dtype)


def _chosen(target: torch.Tensor, classes: int, ignore_index: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Which rows count, and the class of each, 0 for the others. Raises IndexError in torch's words."""
    counted = target != ignore_index
    wanted = torch.where(counted, target, torch.zeros_like(target))
    if target.numel() and not (int(wanted.min()) >= 0 and int(wanted.max()) < classes):
        outside = wanted[(wanted < 0) | (wanted >= classes)][0]
        raise IndexError(f"Target {int(outside)} is out of bounds.")
    return counted, wanted


def nll_loss(
    log_probabilities: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None,
    reduction: str = "mean", ignore_index: int = -100,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Of [rows, classes] and int64 [rows]: the loss, and the sum of the weights of the rows that count.

    -(x[i, target]) * weight[target], 0 for the rows to ignore; "mean" divides their sum by that of the weights.
    """
    (wide,) = _of_type("nll_loss", log_probabilities)
    counted, wanted = _chosen(target, wide.shape[1], ignore_index)
    weights = _weights(weight, wanted, counted, wide)
    picked = -wide.gather(1, wanted[:, None])[:, 0]
    values = torch.where(counted, picked if weight is None else picked * weights, torch.zeros_like(picked))
    total = sums.sum(weights)
    loss = values if reduction == "none" else sums.sum(values)
    if reduction == "mean":
        loss = loss / total
    return loss.to(log_probabilities.dtype), total.to(log_probabilities.dtype)


def _weights(
    weight: torch.Tensor | None, wanted: torch.Tensor, counted: torch.Tensor, like: torch.Tensor
) -> torch.Tensor:
    of_row = like.new_ones(wanted.shape) if weight is None else weight.detach().to(like.dtype)[wanted]
    return torch.where(counted, of_row, torch.zeros_like(of_row))


def nll_loss_backward(
    grad: torch.Tensor, log_probabilities: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None,
    reduction: str, ignore_index: int, total_weight: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """-(weight[target]) * grad at the target's place, and 0 elsewhere; for "mean", grad / total_weight first."""
    (wide,) = _of_type("nll_loss", log_probabilities)
    counted, wanted = _chosen(target, wide.shape[1], ignore_index)
    g = grad.to(wide.dtype)
    if reduction == "mean":
        g = g / total_weight.to(wide.dtype)
    terms = -_weights(weight, wanted, counted, wide) * g
    terms = torch.where(counted, terms, torch.zeros_like(terms))
    return torch.zeros_like(wide).scatter(1, wanted[:, None], terms[:, None]).to(log_probabilities.dtype)


def cross_entropy(
    x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None, reduction: str = "mean",
    ignore_index: int = -100, smoothing: float = 0.0,
) -> torch.Tensor:  # fmt: skip
    """log_softmax, then nll_loss. Of [rows, classes] float32 and int64 [rows].

    With smoothing s: (1 - s)*nll + (s / classes)*u, where u is, of each row, the sum over classes of
    -(log p) * weight, then reduced as nll is.
    """
    log_p = softmax.log_softmax(x, 1)
    loss, total = nll_loss(log_p, target, weight, reduction, ignore_index)
    if smoothing == 0:
        return loss
    terms = -log_p if weight is None else -log_p * weight
    rows = sums.sum(terms, 1)
    rows = torch.where(target != ignore_index, rows, torch.zeros_like(rows))
    smooth = rows if reduction == "none" else sums.sum(rows)
    if reduction == "mean":
        smooth = smooth / total
    share = torch.full_like(smooth, smoothing / x.shape[1])
    return torch.full_like(loss, 1 - smoothing) * loss + share * smooth


def binary_cross_entropy_with_logits(
    x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None, reduction: str = "mean"
) -> torch.Tensor:
    """((max(x, 0) - x*target) + log1p(exp(-|x|))) * weight; float32."""
    wide, wanted = _of_type("binary_cross_entropy_with_logits", x, target)
    values = (wide.clamp_min(0) - wide * wanted) + functions.log1p(functions.exp(-wide.abs()))
    return reduced(values if weight is None else values * weight, reduction).to(x.dtype)


def binary_cross_entropy(
    p: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None, reduction: str = "mean"
) -> torch.Tensor:
    """(target - 1) * max(log1p(-p), -100) - target * max(log(p), -100), times weight; float32."""
    wide, wanted = _of_type("binary_cross_entropy", p, target)
    no, yes = functions.log1p(-wide).clamp_min(-100), functions.log(wide).clamp_min(-100)
    values = (wanted - 1) * no - wanted * yes
    return reduced(values if weight is None else values * weight, reduction).to(p.dtype)


def kl_div(x: torch.Tensor, target: torch.Tensor, reduction: str = "mean", log_target: bool = False) -> torch.Tensor:
    """target * (log(target) - x), 0 where target is 0; with `log_target`, exp(target) * (target - x). float32."""
    wide, wanted = _of_type("kl_div", x, target)
    if log_target:
        values = functions.exp(wanted) * (wanted - wide)
    else:
        values = wanted * (functions.log(wanted) - wide)
        values = torch.where(wanted == 0, torch.zeros_like(values), values)
    return reduced(values, reduction).to(x.dtype)
