"""Remainders of divisions, and that what the table takes for exact in torch is so on values with any bits."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from repository_paths import PROGRAMS

import samerun
from samerun.numerics.kernels import library

PROGRAM = PROGRAMS / "exact_digests.py"


def floored(x: Any, y: Any) -> Any:
    r = np.fmod(x, y)
    return np.where((r != 0) & ((y < 0) != (r < 0)), r + y, r).astype(r.dtype)


WAYS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "fmod": (torch.fmod, np.fmod),
    "remainder": (torch.remainder, floored),
    "%": (operator.mod, floored),
    "fmod_": (lambda x, y: x.clone().fmod_(y), np.fmod),
    "out": (lambda x, y: torch.remainder(x, y, out=torch.empty_like(x)), floored),
}


def values(dtype: type, n: int = 60_000) -> tuple[np.ndarray, np.ndarray]:
    """Pairs with any bits, of usual size, with tiny divisors, and what is no usual number."""
    generator = np.random.default_rng(1)
    x, y = (np.frombuffer(generator.bytes(n * np.dtype(dtype).itemsize), dtype=dtype).copy() for _ in range(2))
    x[: n // 3], y[: n // 3] = generator.normal(size=n // 3) * 100, generator.normal(size=n // 3)
    x[:2000], y[:2000] = np.round(x[:2000]), np.round(3 * y[:2000])
    y[-n // 4 :] = np.finfo(dtype).smallest_subnormal * generator.integers(1, 100, n // 4)
    odd = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -3.0, np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal]
    pairs = np.array(np.meshgrid(odd, odd)).reshape(2, -1).astype(dtype)
    return np.concatenate([x, pairs[0]]), np.concatenate([y, pairs[1]])


def assert_same_bits(got: torch.Tensor, want: Any) -> None:
    whole = np.dtype(f"u{want.dtype.itemsize}")
    other = got.numpy().view(whole) != want.view(whole)
    assert not (other & ~(np.isnan(got.numpy()) & np.isnan(want))).any()


@pytest.mark.parametrize("level", ["native", "reference"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", WAYS)
def test_any_quotient(name: str, dtype: type, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if level == "reference":
        monkeypatch.setattr(library, "uses_native_kernels", lambda *tensors: False)
    compute, exact = WAYS[name]
    x, y = values(dtype)
    with np.errstate(all="ignore"):
        want = exact(x, y)
    with samerun.portable():
        assert_same_bits(compute(torch.from_numpy(x), torch.from_numpy(y)), want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_types(dtype: torch.dtype) -> None:
    """The truncated quotient's remainder is a number of the type; the other one is rounded to it once."""
    x, y = (torch.from_numpy(each).to(dtype) for each in values(np.float32))
    wide = x.double().numpy(), y.double().numpy()
    with np.errstate(all="ignore"):
        exact, other = np.fmod(*wide), floored(*wide)
    with samerun.portable():
        assert_same_bits(torch.fmod(x, y).double(), exact)
        assert_same_bits(torch.remainder(x, y).float(), torch.from_numpy(other).float().to(dtype).float().numpy())


def test_numbers_whole_numbers_and_shapes() -> None:
    x = torch.randn(5, 1) * 1e30
    with samerun.portable():
        assert_same_bits(x % 0.3, floored(x.numpy(), np.float32(0.3)))
        assert_same_bits(torch.remainder(7.5, x), floored(np.float32(7.5), x.numpy()))
        assert torch.fmod(x, torch.ones(3)).shape == (5, 3)
        assert torch.equal(torch.tensor([7, -7]) % 3, torch.tensor([1, 2]))
        assert (torch.tensor([7, -7]) % 2.5).tolist() == [2.0, 0.5]
        assert torch.fmod(torch.empty(0), 2.0).shape == (0,)
        angle = torch.randn(4, requires_grad=True)
        (angle % 1.5).sum().backward()
        assert angle.grad is not None and angle.grad.tolist() == [1.0] * 4
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            torch.remainder(torch.tensor([1]), 0)


@pytest.mark.exhaustive
def test_what_is_taken_for_exact_is_so_with_any_instructions() -> None:
    told = []
    for capability in ("", "default"):
        environment = {**os.environ, "ATEN_CPU_CAPABILITY": capability} if capability else dict(os.environ)
        done = subprocess.run([sys.executable, PROGRAM], env=environment, capture_output=True, text=True, check=True)
        told.append(done.stdout.splitlines())
    assert len(told[0]) > 500
    assert told[0] == told[1]
