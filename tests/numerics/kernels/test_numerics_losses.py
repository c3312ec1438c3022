"""Losses, as `portable()` calls them: the same bits at every level, and torch's values about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as nnf
from portable_values import NATIVE, assert_same_bits, at_level, values

import samerun
from samerun.numerics.aten_handlers import losses


def check(compute: Callable[[], torch.Tensor]) -> torch.Tensor:
    """What it gives by the reference, which every level gives too."""
    with at_level("reference"), samerun.portable():
        want = compute()
    for name in NATIVE:
        with at_level(name), samerun.portable():
            assert_same_bits(compute(), want, name)
    return want


X, T = values(40, 11), values(40, 11, seed=1)
P, Q = X.sigmoid(), T.sigmoid()
W = values(40, 11, seed=2).abs()


@pytest.mark.filterwarnings("ignore:reduction. .mean. divides:UserWarning")
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize(
    ("loss", "given"),
    [
        (nnf.mse_loss, (X, T)),
        (nnf.l1_loss, (X, T)),
        (nnf.smooth_l1_loss, (X, T)),
        (nnf.huber_loss, (X, T)),
        (nnf.binary_cross_entropy_with_logits, (X, Q)),
        (nnf.binary_cross_entropy, (P, Q)),
        (nnf.kl_div, (P.log(), Q)),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_losses_and_their_gradients(
    loss: Callable[..., torch.Tensor], given: tuple[torch.Tensor, ...], reduction: str
) -> None:
    def run(x: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        leaf = x.clone().requires_grad_()
        found = loss(leaf, *others, reduction=reduction)
        found.backward(torch.full_like(found, 3))
        assert leaf.grad is not None
        return found.detach(), leaf.grad

    wanted = run(*(each.double() for each in given))
    for number, want in enumerate(wanted):
        got = check(lambda: run(*given)[number])  # noqa: B023
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


def test_a_tiny_probability_is_not_lost() -> None:
    """-log(1 - p) of p = 2^-30 is 2^-30, though 1 - p is 1."""
    with samerun.portable():
        got = nnf.binary_cross_entropy(torch.tensor([2.0**-30]), torch.zeros(1))
    assert got == 2.0**-30


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(reduction: str, weighted: bool, smoothing: float) -> None:
    target = torch.arange(40) % 11
    target[3] = target[17] = -100
    weight = values(11, seed=3).abs() if weighted else None

    def run(x: torch.Tensor) -> list[torch.Tensor]:
        leaf = x.clone().requires_grad_()
        w = None if weight is None else weight.to(x.dtype)
        found = nnf.cross_entropy(leaf, target, w, reduction=reduction, label_smoothing=smoothing)
        found.backward(torch.full_like(found, 2))
        assert leaf.grad is not None
        return [found.detach(), leaf.grad]

    for number, want in enumerate(run(X.double())):
        got = check(lambda: run(X)[number])  # noqa: B023
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-6)


def test_odd_targets() -> None:
    ignored = torch.full((40,), -100)
    with samerun.portable():
        with pytest.raises(IndexError, match=r"Target 11 is out of bounds."):
            nnf.cross_entropy(X, torch.full((40,), 11))
        assert nnf.cross_entropy(X, ignored).isnan()
        assert nnf.cross_entropy(X[:0], ignored[:0]).isnan()


@pytest.mark.parametrize("loss", [losses.mse_loss, losses.smooth_l1, losses.binary_cross_entropy_with_logits])
def test_a_mean_is_the_sum_divided_once(loss: Callable[..., Any]) -> None:
    terms, total = loss(X, T, reduction=0), loss(X, T, reduction=losses.SUM)
    assert terms.shape == X.shape
    assert_same_bits(loss(X, T, reduction=losses.MEAN), total / torch.full_like(total, X.numel()))
