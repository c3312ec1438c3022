"""Softmax, norms, activations: every level gives the bits of the reference, and torch's values about."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as nnf
from portable_values import NATIVE, assert_same_bits, at_level, values

from samerun.base.errors import SamerunError
from samerun.numerics.kernels import elementwise, norms, softmax


def check(compute: Callable[[], Any], hint: object = "") -> Any:
    with at_level("reference"):
        want = compute()
    for name in NATIVE:
        with at_level(name):
            got = compute()
        both = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
        for one, other in both:
            assert_same_bits(one, other, (name, hint))
    return want


def assert_about(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got.double(), want.double(), rtol=2e-5, atol=2e-5)


SHAPES = [(3, 1), (4, 7), (2, 3, 33), (5, 257), (2, 4097), (1, 20000), (0, 5), (4, 0)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("special", [False, True])
def test_softmax_family(shape: tuple[int, ...], special: bool) -> None:
    x, grad = values(*shape, special=special) * 4, values(*shape, seed=1)
    for dim in range(-1, len(shape) - 1):
        for name in ("softmax", "log_softmax"):
            y = check(lambda: getattr(softmax, name)(x, dim), (name, dim))  # noqa: B023
            backward = getattr(softmax, name + "_backward")
            g = check(lambda: backward(grad, y, dim), (name, dim, "backward"))  # noqa: B023
            if not special:
                leaf = x.double().requires_grad_()
                want = getattr(torch, name)(leaf, dim)
                want.backward(grad.double())
                assert leaf.grad is not None
                assert_about(y, want.detach())
                assert_about(g, leaf.grad)
        total = check(lambda: softmax.logsumexp(x, dim), ("logsumexp", dim))  # noqa: B023
        if x.shape[dim]:
            torch.testing.assert_close(total, torch.logsumexp(x, dim), equal_nan=True)
    assert_same_bits(softmax.softmax(x.transpose(0, -1), 0), softmax.softmax(x, -1).transpose(0, -1))


def test_softmax_of_odd_rows() -> None:
    inf, nan = float("inf"), float("nan")
    assert softmax.softmax(torch.tensor([0.0, -inf]), 0).tolist() == [1, 0]
    assert softmax.softmax(torch.tensor([-inf, -inf]), 0).isnan().all()
    assert softmax.softmax(torch.tensor([1.0, nan]), 0).isnan().all()
    assert softmax.softmax(torch.tensor(3.0), 0).item() == 1
    assert softmax.logsumexp(torch.tensor([-inf, -inf]), 0).item() == -inf
    assert softmax.logsumexp(torch.tensor([inf, 1.0]), 0).item() == inf
    assert softmax.logsumexp(values(2, 3, 4), [0, 2], keepdim=True).shape == (1, 3, 1)
    assert softmax.softmax(torch.zeros(2, dtype=torch.float64), 0).tolist() == [0.5, 0.5]
    with pytest.raises(SamerunError, match=r"softmax: torch.int64"):
        softmax.softmax(torch.ones(2, dtype=torch.int64), 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_storage_types(dtype: torch.dtype) -> None:
    x = values(3, 100).to(dtype)
    assert_same_bits(softmax.softmax(x, 1), softmax.softmax(x.float(), 1).to(dtype))
    assert_same_bits(norms.layer_norm(x, [100])[0], norms.layer_norm(x.float(), [100])[0].to(dtype))
    assert_same_bits(elementwise.gelu(x), elementwise.gelu(x.float()).to(dtype))


@pytest.mark.parametrize("n", [0, 1, 7, 1023, 1024, 1025, 5000])
@pytest.mark.parametrize("special", [False, True])
def test_activations(n: int, special: bool) -> None:
    x, grad = values(n, special=special) * 2, values(n, seed=1)
    forms: list[tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor], Callable[..., torch.Tensor], str]] = [
        (elementwise.gelu, elementwise.gelu_backward, nnf.gelu, "none"),
        (elementwise.gelu, elementwise.gelu_backward, nnf.gelu, "tanh"),
        (elementwise.silu, elementwise.silu_backward, nnf.silu, ""),
    ]
    for forward, backward, torchs, form in forms:
        more = {"approximate": form} if form else {}
        y = check(lambda: forward(x, **more), form)  # noqa: B023
        g = check(lambda: backward(grad, x, **more), form)  # noqa: B023
        if not special:
            leaf = x.double().requires_grad_()
            want = torchs(leaf, **more)
            want.backward(grad.double())
            assert leaf.grad is not None
            assert_about(y, want.detach())
            assert_about(g, leaf.grad)


def gradients(function: Callable[..., torch.Tensor], grad: torch.Tensor, *leaves: torch.Tensor) -> list[torch.Tensor]:
    """The value and gradients by torch, in float64."""
    wide = [leaf.double().requires_grad_() for leaf in leaves]
    y = function(*wide)
    return [y.detach(), *torch.autograd.grad(y, wide, grad.double())]


ROWS = [(4, 5), (3, 2, 33), (7, 4099), (300, 16), (70, 2100), (9001, 5), (13000, 3), (3, 0), (0, 3)]


@pytest.mark.parametrize("shape", ROWS)
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("special", [False, True])
def test_layer_and_rms_norm(shape: tuple[int, ...], affine: bool, special: bool) -> None:
    x, grad, last = values(*shape, special=special) + 1, values(*shape, seed=1), [shape[-1]]
    w, b = (values(shape[-1], seed=2), values(shape[-1], seed=3)) if affine else (None, None)
    y, mean, r = check(lambda: norms.layer_norm(x, last, w, b))
    found = check(lambda: norms.layer_norm_backward(grad, x, last, mean, r, w))
    y2, r2 = check(lambda: norms.rms_norm(x, last, w, 1e-6))
    found2 = check(lambda: norms.rms_norm_backward(grad, x, last, r2, w))
    if affine and not special and x.numel():
        for got, want in zip(
            [y, *found], gradients(lambda *a: nnf.layer_norm(a[0], last, *a[1:]), grad, x, w, b), strict=True
        ):
            assert_about(got / math.sqrt(x.numel()), want / math.sqrt(x.numel()))
        for got, want in zip(
            [y2, *found2], gradients(lambda *a: nnf.rms_norm(a[0], last, a[1], 1e-6), grad, x, w), strict=True
        ):
            assert_about(got / math.sqrt(x.numel()), want / math.sqrt(x.numel()))


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("shape", [(3, 6), (2, 6, 5), (2, 6, 13, 7), (2, 6, 0)])
def test_group_norm(shape: tuple[int, ...], groups: int) -> None:
    x, grad, w, b = values(*shape) + 1, values(*shape, seed=1), values(6, seed=2), values(6, seed=3)
    y, mean, r = check(lambda: norms.group_norm(x, groups, w, b))
    check(lambda: norms.group_norm(x, groups))
    found = check(lambda: norms.group_norm_backward(grad, x, groups, mean, r, w))
    theirs = gradients(lambda *a: nnf.group_norm(a[0], groups, *a[1:]), grad, x, w, b)
    for got, want in zip([y, *found], theirs, strict=True):
        if x.numel():
            assert_about(got, want)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(30, 4), (5, 4, 7), (3, 4, 32, 33), (11, 4, 30, 41), (2, 4, 70, 71)])
def test_batch_norm(shape: tuple[int, ...], training: bool) -> None:
    x, grad, w, b = values(*shape) + 1, values(*shape, seed=1), values(4, seed=2), values(4, seed=3)
    stats = [values(4, seed=4), values(4, seed=5).abs()]

    def forward() -> tuple[torch.Tensor, ...]:
        running = [each.clone() for each in stats]
        return *norms.batch_norm(x, w, b, *running, training), *running

    y, mean, r, *running = check(forward)
    found = check(lambda: norms.batch_norm_backward(grad, x, mean, r, w, training))
    theirs = [each.clone().double() for each in stats]
    function = lambda *a: nnf.batch_norm(a[0], *theirs, *a[1:], training=training)  # noqa: E731
    for got, want in zip([y, *found, *running], [*gradients(function, grad, x, w, b), *theirs], strict=True):
        assert_about(got, want)


def test_rows_do_not_depend_on_the_batch() -> None:
    x, w = values(16, 300), values(300, seed=1)
    for batch in (1, 2, 3, 5, 8):
        assert_same_bits(softmax.softmax(x[:batch], 1)[0], softmax.softmax(x, 1)[0])
        assert_same_bits(norms.layer_norm(x[:batch], [300], w)[0][0], norms.layer_norm(x, [300], w)[0][0])
        assert_same_bits(elementwise.gelu(x[:batch])[0], elementwise.gelu(x)[0])
