"""Losses and average pooling: the same bits at every level, and torch's values about."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as nnf
from portable import NATIVE, assert_same_bits, at_level, values

from samerun.base.errors import SamerunError
from samerun.numerics import losses, pooling


def check(compute: Callable[[], torch.Tensor]) -> torch.Tensor:
    with at_level("reference"):
        want = compute()
    for name in NATIVE:
        with at_level(name):
            assert_same_bits(compute(), want, name)
    return want


X, T = values(40, 11), values(40, 11, seed=1)
P, Q = X.sigmoid(), T.sigmoid()
W = values(40, 11, seed=2).abs()


@pytest.mark.filterwarnings("ignore:reduction. .mean. divides:UserWarning")
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize(
    ("ours", "theirs", "given"),
    [
        (losses.mse_loss, nnf.mse_loss, (X, T)),
        (losses.l1_loss, nnf.l1_loss, (X, T)),
        (losses.smooth_l1_loss, nnf.smooth_l1_loss, (X, T)),
        (losses.binary_cross_entropy_with_logits, nnf.binary_cross_entropy_with_logits, (X, Q)),
        (losses.binary_cross_entropy, nnf.binary_cross_entropy, (P, Q)),
        (losses.kl_div, nnf.kl_div, (P.log(), Q)),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_losses(
    ours: Callable[..., torch.Tensor], theirs: Callable[..., torch.Tensor], given: tuple[torch.Tensor, ...],
    reduction: str,
) -> None:  # fmt: skip
    got = check(lambda: ours(*given, reduction=reduction))
    want = theirs(*(each.double() for each in given), reduction=reduction)
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-6)


def test_more_of_them() -> None:
    torch.testing.assert_close(losses.smooth_l1_loss(X, T, beta=0.3), nnf.smooth_l1_loss(X, T, beta=0.3))
    torch.testing.assert_close(
        losses.kl_div(P.log(), Q.log(), "sum", log_target=True), nnf.kl_div(P.log(), Q, reduction="sum")
    )
    torch.testing.assert_close(
        losses.binary_cross_entropy_with_logits(X, Q, W), nnf.binary_cross_entropy_with_logits(X, Q, W)
    )
    for backward, forward in (
        (losses.mse_loss_backward, nnf.mse_loss),
        (losses.smooth_l1_loss_backward, nnf.smooth_l1_loss),
    ):
        for reduction in ("sum", "mean"):
            leaf = X.clone().requires_grad_()
            forward(leaf, T, reduction=reduction).backward(torch.tensor(3.0))
            got = check(lambda: backward(torch.tensor(3.0), X, T, reduction))  # noqa: B023
            torch.testing.assert_close(got, leaf.grad)
    with pytest.raises(SamerunError, match="reduction='some'"):
        losses.mse_loss(X, T, "some")


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(reduction: str, weighted: bool, smoothing: float) -> None:
    target = torch.arange(40) % 11
    target[3] = target[17] = -100
    weight = values(11, seed=3).abs() if weighted else None
    got = check(lambda: losses.cross_entropy(X, target, weight, reduction, smoothing=smoothing))
    want = nnf.cross_entropy(X, target, weight, reduction=reduction, label_smoothing=smoothing)
    torch.testing.assert_close(got, want)
    if smoothing == 0:
        log_p = X.log_softmax(1)
        loss, total = losses.nll_loss(log_p, target, weight, reduction)
        leaf = log_p.clone().requires_grad_()
        grad = torch.full_like(loss, 2.0)
        nnf.nll_loss(leaf, target, weight, reduction=reduction).backward(grad)
        got = check(lambda: losses.nll_loss_backward(grad, log_p, target, weight, reduction, -100, total))
        torch.testing.assert_close(got, leaf.grad)


def test_odd_targets() -> None:
    with pytest.raises(IndexError, match=r"Target 11 is out of bounds."):
        losses.cross_entropy(X, torch.full((40,), 11))
    ignored = torch.full((40,), -100)
    assert losses.cross_entropy(X, ignored).isnan() and nnf.cross_entropy(X, ignored).isnan()
    assert losses.cross_entropy(X[:0], ignored[:0]).isnan()


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [((2, 2), (2, 2), (0, 0)), ((3, 2), (2, 1), (1, 1)), ((5, 3), (1, 4), (2, 0))]
)
def test_avg_pool2d(
    kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int], include: bool, ceil_mode: bool
) -> None:
    x = values(2, 3, 13, 11)
    got = check(lambda: pooling.avg_pool(x, kernel, stride, padding, ceil_mode, include))
    leaf = x.double().requires_grad_()
    want = nnf.avg_pool2d(leaf, kernel, stride, padding, ceil_mode, include)
    torch.testing.assert_close(got.double(), want.detach(), rtol=1e-5, atol=1e-6)
    grad = values(*got.shape, seed=1)
    want.backward(grad.double())
    assert leaf.grad is not None
    back = pooling.avg_pool_backward(grad, x, kernel, stride, padding, include)
    torch.testing.assert_close(back.double(), leaf.grad, rtol=1e-5, atol=1e-6)


def test_other_pools() -> None:
    x = values(2, 3, 12)
    torch.testing.assert_close(pooling.avg_pool(x, [3]), nnf.avg_pool1d(x, 3))
    y = values(2, 3, 5, 6, 7)
    torch.testing.assert_close(
        pooling.avg_pool(y, [2, 3, 2], divisor=5), nnf.avg_pool3d(y, [2, 3, 2], divisor_override=5)
    )
    for outs in itertools.product([1, 3, 5], [1, 4, 6]):
        got = check(lambda: pooling.adaptive_avg_pool(y, outs))  # noqa: B023
        want = nnf.adaptive_avg_pool2d(y.reshape(30, 6, 7), outs).reshape(2, 3, 5, *outs)
        torch.testing.assert_close(got, want)
