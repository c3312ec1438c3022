"""Average pooling: the bits of class S over each window, torch's values about, and the operators of `portable()`."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as nnf
from portable_values import NATIVE, assert_same_bits, at_level, values

import samerun
from samerun.numerics.kernels import pooling, sums

SETTINGS = [((2, 2), (2, 2), (0, 0)), ((3, 2), (2, 1), (1, 1)), ((5, 3), (1, 4), (2, 0)), ((7, 9), (1, 1), (3, 4))]


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize(("kernel", "stride", "padding"), SETTINGS)
def test_avg_pool2d(
    kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int], include: bool, ceil_mode: bool
) -> None:
    x = values(2, 3, 13, 11)
    leaf, exact = x.clone().requires_grad_(), x.double().requires_grad_()
    want = nnf.avg_pool2d(exact, kernel, stride, padding, ceil_mode, include)
    grad = values(*want.shape, seed=1)
    want.backward(grad.double())
    with samerun.portable():
        got = nnf.avg_pool2d(leaf, kernel, stride, padding, ceil_mode, include)
        got.backward(grad)
    assert leaf.grad is not None and exact.grad is not None
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(leaf.grad.double(), exact.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kernel", [(2, 2), (3, 3), (4, 8), (5, 7), (8, 8), (13, 19)])
def test_a_window_has_the_bits_of_class_s(kernel: tuple[int, int]) -> None:
    x = values(3, 26, 38, special=True)
    windows = x.unfold(-2, kernel[0], kernel[0]).unfold(-2, kernel[1], kernel[1])
    got = pooling.avg_pool(x, kernel)
    for name in ("reference", *NATIVE):
        with at_level(name):
            assert_same_bits(got, sums.mean(windows, (-2, -1)), name)


def test_windows_of_more_than_one_block() -> None:
    x = values(2, 80, 70)
    assert_same_bits(pooling.avg_pool(x, [65, 64], [3, 3]),
                     sums.mean(x.unfold(-2, 65, 3).unfold(-2, 64, 3), (-2, -1)))  # fmt: skip


def test_other_pools() -> None:
    x, y = values(2, 3, 12), values(2, 3, 5, 6, 7)
    with samerun.portable():
        one = nnf.avg_pool1d(x, 3)
        three = nnf.avg_pool3d(y, [2, 3, 2], divisor_override=5)
    torch.testing.assert_close(one, nnf.avg_pool1d(x, 3))
    torch.testing.assert_close(three, nnf.avg_pool3d(y, [2, 3, 2], divisor_override=5))


@pytest.mark.parametrize("outs", [*itertools.product([1, 2, 3, 5], [1, 4, 6, 9]), (3, 2, 7)])
def test_adaptive_pools(outs: tuple[int, ...]) -> None:
    pool = nnf.adaptive_avg_pool2d if len(outs) == 2 else nnf.adaptive_avg_pool3d
    x = values(2, 5, 6, 6) if len(outs) == 2 else values(2, 3, 5, 6, 7)
    leaf, exact = x.clone().requires_grad_(), x.double().requires_grad_()
    want = pool(exact, outs)
    grad = values(*want.shape, seed=1)
    want.backward(grad.double())
    with samerun.portable():
        got = pool(leaf, outs)
        got.backward(grad)
    assert leaf.grad is not None and exact.grad is not None
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(leaf.grad.double(), exact.grad, rtol=1e-5, atol=1e-6)
