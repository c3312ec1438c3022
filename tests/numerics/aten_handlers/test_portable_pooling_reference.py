"""Pooling and its gradients inside `portable()` have the bits of their slow references."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as nnf
from portable_values import NATIVE, assert_same_bits, at_level, values
from torch import Tensor

import samerun
from samerun.numerics.reference import pooling as reference

AVERAGES = {2: nnf.avg_pool2d, 3: nnf.avg_pool3d}
MAXIMA = {2: nnf.max_pool2d, 3: nnf.max_pool3d}
SETTINGS: list[tuple[Any, ...]] = [
    ((9, 8), (2, 2), (2, 2), (0, 0)),
    ((9, 8), (3, 2), (2, 1), (1, 1)),
    ((13, 11), (7, 6), (1, 3), (3, 0)),
    ((70, 66), (66, 65), (2, 1), (0, 0)),
    ((5, 5, 6), (2, 3, 2), (1, 2, 2), (1, 0, 1)),
    ((6, 6), (1, 1), (3, 2), (0, 0)),
]


def image(size: tuple[int, ...], seed: int = 0) -> Tensor:
    """Many alike, so that maxima meet equals; special values among them, and not contiguous."""
    x = values(3, 2, *size, seed=seed, special=True)
    return torch.where(x.abs() < 0.7, x.round(), x).transpose(0, 1)


def run(pool: Any, x: Tensor) -> list[Tensor]:
    leaf = x.clone().requires_grad_()
    with samerun.portable():
        found = pool(leaf)
        first = found[0] if isinstance(found, tuple) else found
        first.backward(values(*first.shape, seed=9, special=True))
    assert leaf.grad is not None
    return [*(each.detach() for each in (found if isinstance(found, tuple) else (found,))), leaf.grad]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(("include", "divisor"), [(True, None), (False, None), (True, 7)])
def test_averages(setting: tuple[Any, ...], ceil_mode: bool, include: bool, divisor: int | None) -> None:
    size, kernel, stride, padding = setting
    x = image(size)
    for name in NATIVE:
        with at_level(name):
            y, grad = run(
                lambda leaf: AVERAGES[len(size)](leaf, kernel, stride, padding, ceil_mode, include, divisor), x
            )
        given = (kernel, stride, padding, include, divisor)
        want = reference.avg_pool(x.numpy(), y.shape[-len(size) :], *given)
        assert_same_bits(y, torch.from_numpy(want), name)
        g = values(*y.shape, seed=9, special=True)
        assert_same_bits(grad, torch.from_numpy(reference.avg_pool_backward(g.numpy(), x.numpy(), *given)), name)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_maxima(setting: tuple[Any, ...], dilation: int, ceil_mode: bool) -> None:
    size, kernel, stride, padding = setting
    if dilation == 2 and max(kernel) > 20:
        kernel = (20, 30)
    x, dims = image(size), len(size)
    y, places, grad = run(
        lambda leaf: MAXIMA[dims](leaf, kernel, stride, padding, dilation, ceil_mode, return_indices=True), x
    )
    want = reference.max_pool(x.numpy(), y.shape[-dims:], kernel, stride, padding, [dilation] * dims)
    assert_same_bits(y, torch.from_numpy(want[0]))
    assert torch.equal(places, torch.from_numpy(want[1]))
    g = values(*y.shape, seed=9, special=True)
    assert_same_bits(grad, torch.from_numpy(reference.max_pool_backward(g.numpy(), x.numpy(), want[1], dims)))


@pytest.mark.parametrize(
    ("size", "outs"), [((9, 8), (3, 4)), ((9, 8), (4, 3)), ((5, 7), (7, 9)), ((71, 67), (1, 1)), ((5, 4, 6), (2, 3, 6))]
)
def test_adaptive(size: tuple[int, ...], outs: tuple[int, ...]) -> None:
    x, dims = image(size), len(size)
    average = nnf.adaptive_avg_pool2d if dims == 2 else nnf.adaptive_avg_pool3d
    maximum = nnf.adaptive_max_pool2d if dims == 2 else nnf.adaptive_max_pool3d
    g = values(2, 3, *outs, seed=9, special=True).numpy()
    for name in NATIVE:
        with at_level(name):
            y, grad = run(lambda leaf: average(leaf, outs), x)
        assert_same_bits(y, torch.from_numpy(reference.adaptive_avg_pool(x.numpy(), outs)), name)
        assert_same_bits(grad, torch.from_numpy(reference.adaptive_avg_pool_backward(g, x.numpy(), dims)), name)
    y, places, *rest = run_maximum(maximum, x, outs)
    want = reference.adaptive_max_pool(x.numpy(), outs)
    assert_same_bits(y, torch.from_numpy(want[0]))
    assert torch.equal(places, torch.from_numpy(want[1]))
    for grad in rest:  # of three dimensions there is none in the table
        assert_same_bits(grad, torch.from_numpy(reference.max_pool_backward(g, x.numpy(), want[1], dims)))


def run_maximum(maximum: Any, x: Tensor, outs: tuple[int, ...]) -> list[Tensor]:
    if len(outs) == 2:
        return run(lambda leaf: maximum(leaf, outs, return_indices=True), x)
    with samerun.portable():
        return list(maximum(x, outs, return_indices=True))


@pytest.mark.parametrize("shape", [(0, 2, 6, 6), (2, 0, 6, 6)])
def test_no_planes(shape: tuple[int, ...]) -> None:
    x = torch.empty(shape)
    if shape[0] == 0:
        y, grad = run(lambda leaf: nnf.avg_pool2d(leaf, 2), x)
        assert y.shape == (*shape[:2], 3, 3) and grad.shape == shape
    with pytest.raises(RuntimeError), samerun.portable():
        nnf.max_pool2d(torch.empty(2, 3, 0, 6), 2)
