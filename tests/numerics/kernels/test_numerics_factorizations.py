"""QR, products of reflections and triangular systems: the bits of the reference, and LAPACK's values about."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from portable_values import assert_same_bits, at_level, values
from torch import Tensor

import samerun
from samerun.numerics.kernels import library, linear_algebra
from samerun.numerics.reference import linear_algebra as reference

SHAPES = [(7, 4), (4, 7), (5, 5), (1, 3), (3, 1), (0, 3), (3, 0), (2, 2), (40, 5)]
TYPES = [torch.float32, torch.float64]


def odd(*shape: int, dtype: torch.dtype) -> Tensor:
    """Columns of zeros, of very large and of very small numbers, and a triangle that is there already."""
    x = values(*shape, dtype=dtype)
    x[0, :, 0] = 0
    x[0, :, 1] *= 1e-30
    x[0, :, 2] *= 1e30
    x[1] = x[1].triu()
    return x


@pytest.mark.parametrize("level", library.supported_levels())
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_reflections_have_the_bits_of_the_reference(shape: tuple[int, int], dtype: torch.dtype, level: str) -> None:
    given = [values(2, *shape, dtype=dtype), values(2, *shape, dtype=dtype, special=True)]
    if shape == (5, 5):
        given.append(odd(2, *shape, dtype=dtype))
    with at_level(level):
        for a in given:
            packed, tau = linear_algebra.householder_qr(a)
            q = linear_algebra.multiply_reflectors(packed, tau, shape[0])
            for i in range(2):
                want, want_tau = reference.householder_qr(a[i].numpy())
                assert_same_bits(packed[i], torch.from_numpy(want))
                assert_same_bits(tau[i], torch.from_numpy(want_tau))
                assert_same_bits(q[i], torch.from_numpy(reference.multiply_reflectors(want, want_tau, shape[0])))


@pytest.mark.parametrize("level", library.supported_levels())
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("upper", "unit"), [(True, False), (True, True), (False, False), (False, True)])
def test_triangular_systems_have_the_bits_of_the_reference(
    upper: bool, unit: bool, dtype: torch.dtype, level: str
) -> None:
    a, b = values(2, 9, 9, dtype=dtype) + 3 * torch.eye(9, dtype=dtype), values(2, 9, 4, seed=1, dtype=dtype)
    with at_level(level):
        x = linear_algebra.solve_triangular(a, b, upper, unit)
        for i in range(2):
            want = reference.solve_triangular(a[i].numpy(), b[i].numpy(), upper, unit)
            assert_same_bits(x[i], torch.from_numpy(want))


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [*SHAPES, (2, 3, 6, 4)])
def test_qr_is_lapacks_about(shape: tuple[int, ...], dtype: torch.dtype, mode: Any) -> None:
    a = values(*shape, dtype=dtype)
    with samerun.portable():
        got = torch.linalg.qr(a, mode=mode)
    want = torch.linalg.qr(a.double(), mode=mode)
    near = 1e-5 if dtype is torch.float32 else 1e-12
    for mine, theirs in zip(got, want, strict=True):
        assert mine.shape == theirs.shape and mine.dtype is dtype
        torch.testing.assert_close(mine.double(), theirs, rtol=near, atol=near)
    if mode != "r" and a.numel():
        q, r = got
        assert float((q @ r - a).abs().max()) < near
        short = q.mT @ q
        torch.testing.assert_close(short, torch.eye(q.shape[-1], dtype=dtype).expand(short.shape), atol=near, rtol=0)


def test_large_and_small_columns_are_as_good() -> None:
    a = values(12, 4)
    sizes = torch.tensor([1e-30, 1.0, 1e30, 1e-18])
    with samerun.portable():
        q, r = torch.linalg.qr(a * sizes)
        same, one = torch.linalg.qr(a)
    torch.testing.assert_close(q, same, atol=1e-6, rtol=0)
    torch.testing.assert_close(r / sizes, one, atol=1e-5, rtol=0)


def test_what_is_no_number_stays_none() -> None:
    a = values(4, 3)
    a[2, 1] = float("nan")
    with samerun.portable():
        q, r = torch.linalg.qr(a)
        whole, diagonal = torch.linalg.qr(values(4, 3))
    assert bool(torch.isnan(r[1, 1])) and bool(torch.isnan(q).any())
    torch.testing.assert_close(r[0, 0], diagonal[0, 0])
    assert not bool(torch.isnan(whole).any())


def test_wrong_matrices_have_torchs_words() -> None:
    wrong: list[tuple[Any, type, str]] = [
        (lambda: torch.linalg.qr(torch.ones(3)), RuntimeError, "must have at least 2 dimensions"),
        (lambda: torch.linalg.qr(torch.ones(2, 3), mode="x"), RuntimeError, "unrecognized mode 'x'"),
        (lambda: torch.linalg.qr(torch.ones(2, 3, dtype=torch.int32)), RuntimeError, "Expected a floating point"),
        (lambda: torch.linalg.qr(torch.ones(2, 3).half()), NotImplementedError, "not implemented for"),
    ]
    for call, kind, words in wrong:
        with pytest.raises(kind, match=words):
            call()
        with samerun.portable(), pytest.raises(kind, match=words):
            call()


def test_an_orthogonal_parametrization_trains() -> None:
    with samerun.portable():
        torch.manual_seed(0)
        layer = torch.nn.Linear(6, 4)
        torch.nn.utils.parametrizations.orthogonal(layer, orthogonal_map="householder")
        optimizer = torch.optim.SGD(layer.parameters(), 0.5)
        x, y = torch.randn(16, 6), torch.randn(16, 4)
        losses = []
        for _ in range(20):
            loss = (layer(x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        w = layer.weight.detach()
    torch.testing.assert_close(w @ w.T, torch.eye(4), atol=1e-5, rtol=0)
    assert losses[-1] < losses[0] and np.isfinite(losses).all()
