"""Losses and their gradients inside `portable()` have the bits of their slow references, at every level."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as nnf
from portable_values import NATIVE, assert_same_bits, at_level, values
from torch import Tensor

import samerun
from samerun.numerics.reference import losses as reference

REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
pytestmark = pytest.mark.filterwarnings("ignore:reduction. .mean. divides:UserWarning")


def torch_of(x: Any) -> Tensor:
    return torch.from_numpy(np.asarray(x, np.float32))


def check(run: Callable[[], list[Tensor]], *wanted: Any) -> None:
    for name in NATIVE:
        with at_level(name), samerun.portable():
            found = run()
        for number, (got, want) in enumerate(zip(found, wanted, strict=True)):
            assert_same_bits(got.detach(), torch_of(want), (name, number))


def forward_and_gradient(loss: Callable[[Tensor], Tensor], x: Tensor, g: Tensor) -> Callable[[], list[Tensor]]:
    def run() -> list[Tensor]:
        leaf = x.clone().requires_grad_()
        found = loss(leaf)
        found.backward(g if found.dim() else g.reshape(-1)[0])
        assert leaf.grad is not None
        return [found, leaf.grad]

    return run


Case = tuple[Callable[..., Tensor], dict[str, Any], Callable[..., Any], Callable[..., Any]]
X, Y = values(70, 61, special=True) * 2, values(70, 61, seed=1, special=True)
P, Q = values(70, 61).sigmoid(), values(70, 61, seed=1).sigmoid()
P[0, :3], Q[0, :2] = torch.tensor([0.0, 1.0, 1e-30]), torch.tensor([0.0, 1.0])
W = values(70, 61, seed=2).abs()
PLAIN: list[tuple[str, Tensor, Tensor, Case]] = [
    ("mse", X, Y, (nnf.mse_loss, {}, reference.mse_terms, reference.mse_backward)),
    ("l1", X, Y, (nnf.l1_loss, {}, reference.l1_terms, reference.l1_backward)),
    *(
        (f"smooth l1 {beta}", X, Y, (nnf.smooth_l1_loss, {"beta": beta},
         lambda x, y, beta=beta: reference.smooth_l1_terms(x, y, beta),
         lambda g, x, y, beta=beta: reference.smooth_l1_backward(g, x, y, beta)))
        for beta in (1.0, 0.3, 0.0)
    ),
    *(
        (f"huber {delta}", X, Y, (nnf.huber_loss, {"delta": delta},
         lambda x, y, delta=delta: reference.huber_terms(x, y, delta),
         lambda g, x, y, delta=delta: reference.huber_backward(g, x, y, delta)))
        for delta in (1.0, 0.3)
    ),
    *(
        (f"bce {weight is not None}", P, Q, (nnf.binary_cross_entropy, {"weight": weight},
         lambda x, y, w=weight: reference.binary_cross_entropy_terms(x, y, None if w is None else w.numpy()),
         lambda g, x, y, w=weight: reference.binary_cross_entropy_backward(g, x, y, None if w is None else w.numpy())))
        for weight in (None, W)
    ),
]  # fmt: skip


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case[0])
def test_losses_of_two_tensors(case: tuple[str, Tensor, Tensor, Case], reduction: str) -> None:
    _, x, y, (loss, more, terms, backward) = case
    g = values(70, 61, seed=5)
    number = REDUCTIONS[reduction]
    of_term = reference.gradient_per_term(g.numpy() if number == 0 else g.numpy()[0, 0], x.numel(), number)
    check(
        forward_and_gradient(lambda leaf: loss(leaf, y, reduction=reduction, **more), x, g),
        reference.reduce_terms(terms(x.numpy(), y.numpy()), number),
        backward(of_term, x.numpy(), y.numpy()),
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_losses_whose_gradients_torch_composes(reduction: str) -> None:
    number = REDUCTIONS[reduction]
    for more in ({}, {"weight": W}, {"pos_weight": W[0]}):
        w, of_positives = (None if more.get(k) is None else more[k].numpy() for k in ("weight", "pos_weight"))
        terms = reference.binary_cross_entropy_with_logits_terms(X.numpy(), Q.numpy(), w, of_positives)
        check(lambda: [nnf.binary_cross_entropy_with_logits(X, Q, reduction=reduction, **more)],  # noqa: B023
              reference.reduce_terms(terms, number))  # fmt: skip
    for log_target in (False, True):
        y = Q.log().clamp_min(-80) if log_target else Q
        check(lambda: [nnf.kl_div(X, y, reduction=reduction, log_target=log_target)],  # noqa: B023
              reference.reduce_terms(reference.kl_div_terms(X.numpy(), y.numpy(), log_target), number))  # fmt: skip


ROWS = [(1, 5), (33, 11), (300, 7), (4100, 3)]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("rows", "classes"), ROWS)
@pytest.mark.parametrize(("special", "some_ignored"), [(False, True), (True, True), (True, False)])
def test_nll_and_cross_entropy(
    rows: int, classes: int, weighted: bool, special: bool, some_ignored: bool, reduction: str
) -> None:
    x = values(rows, classes, seed=7, special=special)
    target = torch.arange(rows) * 5 % classes
    if some_ignored:
        target[2::7] = -100
    weight = values(classes, seed=3).abs() if weighted else None
    w = None if weight is None else weight.numpy()
    number, g = REDUCTIONS[reduction], values(rows, seed=4)
    given = (target.numpy(), w, number, -100)
    loss, total = reference.nll_loss_and_weight(x.numpy(), *given)
    of_row = g.numpy() if number == 0 else g.numpy()[0]
    check(
        forward_and_gradient(lambda leaf: nnf.nll_loss(leaf, target, weight, reduction=reduction), x, g),
        loss,
        reference.nll_loss_backward(of_row, x.numpy(), *given, total),
    )
    for smoothing in (0.0, 0.1):
        check(
            lambda: [nnf.cross_entropy(x, target, weight, reduction=reduction, label_smoothing=smoothing)],  # noqa: B023
            reference.cross_entropy(x.numpy(), *given, smoothing),
        )


def test_classes_before_positions() -> None:
    """[n, classes, height, width]: the rows are the positions, row-major, after each other for each of n."""
    x, target = values(2, 5, 6, 7).log_softmax(1), torch.arange(84).reshape(2, 6, 7) % 5
    target[1, 3] = 2
    rows = x.movedim(1, -1).reshape(-1, 5).numpy()
    given = (target.reshape(-1).numpy(), None, reference.MEAN, 2)
    loss, total = reference.nll_loss_and_weight(rows, *given)
    grad = reference.nll_loss_backward(np.float32(3), rows, *given, total)
    wanted = torch_of(grad).reshape(2, 6, 7, 5).movedim(-1, 1)
    check(
        forward_and_gradient(lambda leaf: nnf.nll_loss(leaf, target, ignore_index=2), x, torch.full((), 3.0)),
        loss,
        wanted.contiguous().numpy(),
    )
