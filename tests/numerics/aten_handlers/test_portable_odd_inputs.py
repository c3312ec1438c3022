"""Operators of the table that are compositions: which of equal values, odd and empty inputs, torch's own errors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import odd_operator_inputs
import portable_operators
import pytest
import torch
import torch.nn.functional as F
from portable_cases import BAGS, INDICES, SEVERAL, VOLUME
from portable_values import values
from torch import Tensor

import samerun

NAN, INF = float("nan"), float("inf")
aten = torch.ops.aten


def signed(x: Tensor) -> list[float]:
    """The values, with zeros as their signs times 0.5."""
    return [math.copysign(0.5, value) if value == 0 else value for value in x.reshape(-1).tolist()]


# --- which of equal ones ---------------------------------------------------------------------------------------
def test_the_first_of_equal_values_is_meant() -> None:
    x = torch.tensor([[3.0, 1.0, 2.0, 2.0, 2.0], [NAN, 1.0, NAN, 0.0, 5.0], [-0.0, 0.0, 0.0, -0.0, 1.0]])
    with samerun.portable():
        assert x.median(1)[1].tolist() == [2, 0, 0]
        assert x.nanmedian(1)[1].tolist() == [2, 1, 0]
        assert x.kthvalue(3, 1)[1].tolist() == [2, 4, 0]
        assert x.kthvalue(5, 1)[1].tolist() == [0, 0, 4]
        assert signed(x.kthvalue(2, 1)[0]) == [2.0, 1.0, -0.5]
        assert x.mode(1)[1].tolist() == [2, 3, 0]
        assert torch.tensor([3, 1, 2, 1, 3]).mode().indices == 1
        assert torch.tensor([[1], [2]]).median(0, keepdim=True)[1].tolist() == [[0]]
        assert math.isnan(float(x.median())) and float(x.nanmedian()) == 1.0
        assert math.isnan(float(torch.full((3,), NAN).nanmedian()))
        assert torch.tensor(2.5).median(0)[1].shape == torch.tensor(2.5).mode()[0].shape == ()
        assert torch.tensor([True, False, True]).mode()[0]
        given = torch.tensor([1.0, 3.0, 3.0, 7.0], requires_grad=True)
        given.kthvalue(3)[0].backward()
        assert given.grad is not None and given.grad.tolist() == [0, 1, 0, 0]


def test_the_first_of_the_largest_in_a_bag() -> None:
    table = torch.tensor([[0.0, NAN], [-0.0, 1.0], [-INF, NAN], [0.0, 2.0]], requires_grad=True)
    with samerun.portable():
        found = F.embedding_bag(torch.tensor([[1, 0, 3], [2, 2, 2], [3, 1, 0]]), table, mode="max")
        assert signed(found[0].detach()[:1]) == [-0.5] and bool(found[:, 1].isnan().all())
        assert float(found[1, 0].detach()) == -INF
        found.sum().backward()
        assert table.grad is not None
        assert table.grad.tolist() == [[0, 2], [1, 0], [1, 1], [1, 0]]


def test_the_last_of_several_is_unpooled() -> None:
    with samerun.portable():
        found = F.max_unpool2d(torch.arange(4.0).reshape(1, 1, 2, 2) + 1, torch.tensor([[[[0, 5], [5, 0]]]]), 2)
    assert found.reshape(-1).tolist() == [4, 0, 0, 0, 0, 3, *[0] * 10]


# --- odd inputs -------------------------------------------------------------------------------------------------
def test_shrinking_odd_values() -> None:
    x = torch.tensor([NAN, -0.0, 0.0, 0.2, -0.2, 0.5, -0.5, 1.0, -1.0, INF, -INF])
    with samerun.portable():
        soft, hard = F.softshrink(x), F.hardshrink(x)
        slopes = aten.hardshrink_backward(-torch.ones(11), x, 0.5)
    assert math.isnan(soft[0]) and math.isnan(hard[0])
    assert signed(soft[1:]) == [0.5] * 6 + [0.5, -0.5, INF, -INF]
    assert signed(hard[1:]) == [0.5] * 6 + [1.0, -1.0, INF, -INF]
    assert signed(slopes) == [-1.0] + [0.5] * 6 + [-1.0] * 4


def test_gradients_at_nan_are_nan() -> None:
    for function in (F.hardswish, lambda x: F.smooth_l1_loss(x, torch.zeros(2)), lambda x: F.huber_loss(x, x * 0)):
        x = torch.tensor([NAN, 1.0], requires_grad=True)
        with samerun.portable():
            function(x).sum().backward()
        assert x.grad is not None and math.isnan(x.grad[0]) and math.isfinite(x.grad[1])


def test_grids_that_lead_nowhere() -> None:
    """A NaN is outside, or at 0 where there is no outside; a place however far is outside, or at the border."""
    x = torch.arange(1.0, 17).reshape(1, 1, 4, 4)
    grid = torch.tensor([NAN, INF, -INF, 1e30]).repeat_interleave(2).reshape(1, 1, 4, 2)
    grid[..., 1] = -1 + 1 / 4
    with samerun.portable():
        for mode in ("bilinear", "nearest", "bicubic"):
            for padding, want in (("zeros", [0, 0, 0, 0]), ("border", [1, 4, 1, 4])):
                found = F.grid_sample(x, grid, mode, padding, False)
                assert found.reshape(-1).tolist() == want, (mode, padding)
            assert bool(F.grid_sample(x, grid, mode, "reflection", False).isfinite().all())
        out = F.grid_sample(torch.full((1, 1, 4, 4), NAN), torch.full((1, 1, 1, 2), 9.0), align_corners=False)
        assert out.reshape(-1).tolist() == [0]


def test_logarithms_of_sums_of_odd_values() -> None:
    x = torch.tensor([-INF, -INF, 1.0, -INF, INF, INF, 0.0, NAN, 1.0])
    with samerun.portable():
        found = x.logcumsumexp(0)
    assert found[:7].tolist() == [-INF, -INF, 1.0, 1.0, INF, INF, INF] and bool(found[7:].isnan().all())


def test_sinc_at_odd_values() -> None:
    with samerun.portable():
        found = torch.sinc(torch.tensor([0.0, -0.0, 1e-45, 1e-30, INF, NAN]))
        assert torch.sinc(torch.tensor([0, 2])).dtype is torch.float32
    assert found[:4].tolist() == [1, 1, 1, 1] and bool(found[4:].isnan().all())


def test_counting_odd_values() -> None:
    x = torch.tensor([NAN, -INF, INF, 0.0, 1.0, 2.0, 2.0000002])
    with samerun.portable():
        assert x.histc(4, 0, 2).tolist() == [1, 0, 1, 1]
        assert torch.ones(3).histc(4).tolist() == [0, 0, 3, 0]
        assert torch.zeros(0).histc(3).tolist() == [0, 0, 0]


def test_an_infinite_ctc_loss() -> None:
    x = values(3, 2, 4).log_softmax(-1)
    for forgive, want in ((False, INF), (True, 0.0)):
        given = x.clone().requires_grad_()
        with samerun.portable():
            loss = F.ctc_loss(given, torch.tensor([[1, 1, 2], [1, 2, 3]]), [3, 3], [3, 3], reduction="none",
                              zero_infinity=forgive)  # fmt: skip
            loss.sum().backward()
        loss = loss.detach()
        assert float(loss[0]) == want and math.isfinite(loss[1])
        assert given.grad is not None
        assert bool(given.grad[:, 0].isnan().any()) is not forgive and bool(given.grad[:, 1].isfinite().all())


def test_weights_of_nothing() -> None:
    with samerun.portable():
        v, g = torch.zeros(2, 3), torch.ones(2, 1)
        assert bool(torch._weight_norm(v, g).isnan().all())
        assert torch._weight_norm(torch.zeros(0, 3), torch.ones(0, 1)).shape == (0, 3)


def test_empty_tensors() -> None:
    empty: list[tuple[Callable[[], Tensor], tuple[int, ...]]] = [
        (lambda: torch.cdist(torch.zeros(0, 3), torch.zeros(4, 3)), (0, 4)),
        (lambda: torch.cdist(torch.zeros(2, 0), torch.zeros(4, 0)), (2, 4)),
        (lambda: F.embedding_bag(torch.zeros(0, dtype=torch.int64), torch.zeros(4, 3), torch.tensor([0, 0])), (2, 3)),
        (lambda: F.embedding_bag(torch.zeros(0, dtype=torch.int64), torch.zeros(4, 3),
                                 torch.tensor([0, 0]), mode="max"), (2, 3)),
        (lambda: F.embedding_bag(INDICES, torch.zeros(4, 3), INDICES[:0]), (0, 3)),
        (lambda: F.grid_sample(torch.zeros(2, 3, 4, 4), torch.zeros(2, 0, 5, 2), align_corners=False), (2, 3, 0, 5)),
        (lambda: F.grid_sample(torch.zeros(0, 3, 4, 4), torch.zeros(0, 2, 5, 2), align_corners=False), (0, 3, 2, 5)),
        (lambda: torch.zeros(0, 4).logcumsumexp(0), (0, 4)),
        (lambda: torch.tensor(1.5).logcumsumexp(0), ()),
        (lambda: torch.zeros(2, 0).median(0)[0], (0,)),
        (lambda: torch.linalg.cross(torch.zeros(0, 3), torch.zeros(0, 3)), (0, 3)),
        (lambda: F.bilinear(torch.zeros(0, 3), torch.zeros(0, 4), torch.zeros(2, 3, 4)), (0, 2)),
        (lambda: F.interpolate(torch.zeros(0, 3, 4, 4), 7, mode="bicubic"), (0, 3, 7, 7)),
        (lambda: torch.hann_window(0), (0,)),
        (lambda: torch.logspace(0, 1, 0), (0,)),
        (lambda: F.soft_margin_loss(torch.zeros(0, 3), torch.zeros(0, 3), reduction="none"), (0, 3)),
        (lambda: F.multilabel_margin_loss(torch.zeros(0, 3), torch.zeros(0, 3, dtype=torch.int64),
                                          reduction="none"), (0,)),
        (lambda: torch.zeros(3).masked_scatter(torch.zeros(3, dtype=torch.bool), torch.zeros(0)), (3,)),
    ]  # fmt: skip
    for function, shape in empty:
        with samerun.portable():
            found = function()
        assert found.shape == shape and not bool(found[found != 1.5].abs().sum())


def test_comparing() -> None:
    x = values(20)
    with samerun.portable():
        assert torch.allclose(x, x + 1e-7) and not torch.allclose(x, x + 1)
        assert not torch.allclose(x / 0, x / 0 * NAN) and torch.allclose(x * NAN, x * NAN, equal_nan=True)


# --- torch's own errors -----------------------------------------------------------------------------------------
WRONG: list[tuple[str, Callable[[], Any]]] = [
    ("bag offset", lambda: F.embedding_bag(INDICES, torch.zeros(4, 3), torch.tensor([1, 2]))),
    ("bag offset beyond", lambda: F.embedding_bag(INDICES, torch.zeros(4, 3), torch.tensor([0, 99]))),
    ("bag index", lambda: F.embedding_bag(INDICES + 4, torch.zeros(4, 3), BAGS)),
    ("grid batch", lambda: F.grid_sample(torch.zeros(2, 3, 4, 4), torch.zeros(1, 4, 4, 2), align_corners=False)),
    ("grid cubic 3d", lambda: F.grid_sample(VOLUME, torch.zeros(2, 1, 1, 1, 3).double(), "bicubic", "zeros", True)),
    ("grid of nothing", lambda: F.grid_sample(torch.zeros(2, 3, 0, 4), torch.zeros(2, 4, 4, 2), align_corners=False)),
    ("cdist columns", lambda: torch.cdist(torch.zeros(2, 3), torch.zeros(2, 4))),
    ("cdist order", lambda: torch.cdist(torch.zeros(2, 3), torch.zeros(2, 3), -1.0)),
    ("median dim", lambda: torch.zeros(2, 0).median(1)),
    ("median of no dim", lambda: torch.zeros(2, 3).median(5)),
    ("median of flags", lambda: torch.tensor([True, False]).median()),
    ("kthvalue", lambda: torch.zeros(3).kthvalue(4)),
    ("mode", lambda: torch.zeros(3, 0).mode(1)),
    ("histc bins", lambda: torch.zeros(3).histc(0)),
    ("histc range", lambda: torch.zeros(3).histc(3, 2, 1)),
    ("histc nan", lambda: torch.full((3,), NAN).histc(3)),
    ("multi_margin target", lambda: F.multi_margin_loss(torch.zeros(2, 3), torch.tensor([0, 3]))),
    ("multi_margin p", lambda: F.multi_margin_loss(torch.zeros(2, 3), torch.tensor([0, 1]), p=3)),
    ("multilabel target", lambda: F.multilabel_margin_loss(torch.zeros(3, 7), SEVERAL + 2)),
    ("multilabel shape", lambda: F.multilabel_margin_loss(torch.zeros(3, 6), SEVERAL)),
    ("ctc length", lambda: F.ctc_loss(torch.zeros(3, 1, 4), torch.tensor([[1, 2]]), [9], [2])),
    ("ctc blank", lambda: F.ctc_loss(torch.zeros(3, 1, 4), torch.tensor([[1, 2]]), [3], [2], blank=4)),
    ("logcumsumexp", lambda: torch.tensor([1, 2]).logcumsumexp(0)),
    ("logcumsumexp dim", lambda: torch.zeros(3).logcumsumexp(2)),
    ("cross", lambda: torch.linalg.cross(torch.zeros(2, 4), torch.zeros(2, 4))),
    ("window", lambda: torch.hann_window(-1)),
    ("window of integers", lambda: torch.hann_window(5, dtype=torch.int64)),
    ("logspace", lambda: torch.logspace(0, 1, -1)),
    ("bicubic", lambda: F.interpolate(torch.zeros(1, 1, 0, 4), 3, mode="bicubic")),
    ("smooth", lambda: F.interpolate(torch.zeros(1, 1, 4, 4), 0, mode="bicubic", antialias=True)),
    ("unpool", lambda: F.max_unpool2d(torch.ones(1, 1, 2, 2), torch.full((1, 1, 2, 2), 99), 2)),
    ("unpool shape", lambda: F.max_unpool2d(torch.ones(1, 1, 2, 2), torch.zeros(1, 1, 2, 3).long(), 2)),
    ("fractional", lambda: F.fractional_max_pool2d(torch.ones(1, 1, 2, 2), 3, 1,
                                                   _random_samples=torch.zeros(1, 1, 2))),
    ("affine", lambda: aten.affine_grid_generator(torch.zeros(1, 2, 3), [1, 1, 4], False)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "function"), WRONG, ids=[name for name, _ in WRONG])
def test_wrong_arguments_are_torchs_own_errors(name: str, function: Callable[[], Any]) -> None:
    with pytest.raises((RuntimeError, IndexError, ValueError, NotImplementedError)) as theirs:
        function()
    with samerun.portable(), pytest.raises(type(theirs.value)) as ours:
        function()
    assert not isinstance(ours.value, samerun.SamerunError)
    first = str(theirs.value).splitlines()[0]
    if name not in ("bag index", "histc nan"):
        assert str(ours.value).splitlines()[0] == first


def test_types_outside_the_specification_are_refused() -> None:
    with samerun.portable(), pytest.raises(samerun.NotPortableError):
        F.interpolate(torch.zeros(1, 1, 4, 4, dtype=torch.uint8), 3, mode="bicubic", antialias=True)


# --- generated: every operator with odd values, layouts and types
def find_wrong_odd_results(start: int, step: int) -> list[str]:
    every = [*odd_operator_inputs.VALUES, *odd_operator_inputs.TYPES]
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for operator in portable_operators.select_operators((), torch.float32)[start::step]:
            crashes = operator.name in odd_operator_inputs.TORCH_CRASHES
            kinds = [kind for kind in every if not crashes or kind not in ("inf", "huge", "nan")]
            for kind, sample in odd_operator_inputs.iterate_odd_samples(operator, kinds, 2):
                verdict = odd_operator_inputs.judge_odd_sample(operator, kind, sample)
                if verdict.kind not in ("right", "refused"):
                    wrong.append(f"{portable_operators.full_name(operator)}, {kind}: {verdict.kind}: {verdict.why}")
    return wrong


@pytest.mark.slow
def test_some_operators_with_odd_values() -> None:
    assert find_wrong_odd_results(7, 60) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("start", range(8))
def test_every_operator_with_odd_values(start: int) -> None:
    assert find_wrong_odd_results(start, 8) == []


def test_odd_values_that_were_wrong() -> None:
    x = torch.tensor([-0.0, 0.0, 1.0], requires_grad=True)
    half = torch.tensor(1.0, dtype=torch.float16)
    with samerun.portable():
        torch.logit(x).sum().backward()
        assert torch.linspace(half, 2.0, 3).dtype is torch.float32
        assert torch.erfinv(torch.tensor([3e38, -1.5, 1.0, NAN])).isnan().tolist() == [True, True, False, True]
        found = torch.linalg.lstsq(
            torch.tensor([[[1.0, INF], [1.0, 2.0]], [[2.0, 0.0], [0.0, 1.0]]]), torch.ones(2, 2, 1)
        )
        for function in (
            lambda: torch.normal(torch.zeros(2), torch.tensor([1.0, NAN])),
            lambda: torch.zeros(2).normal_(0, NAN),
            lambda: torch.randint_like(torch.zeros(3, dtype=torch.bool), 5),
            lambda: torch.randint(0, 300, (3,), dtype=torch.uint8),
        ):
            with pytest.raises(RuntimeError, match=r"std >= 0\.0|out of bounds"):
                function()
    assert x.grad is not None and x.grad.tolist() == [INF, INF, INF]
    assert bool(found[0][0].isnan().all()) and found[0][1].reshape(-1).tolist() == [0.5, 1.0]
