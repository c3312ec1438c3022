"""Steps of optimizers inside `portable()`: the bits of the slow reference, whatever the memory looks like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from portable_values import NATIVE, SPECIAL, assert_same_bits, at_level, values
from torch import Tensor

import samerun
from samerun.numerics.kernels import elementwise
from samerun.numerics.reference import elementwise as reference

IN_PLACE: dict[str, Callable[..., Tensor]] = {
    "lerp": lambda x, y, z, value: x.lerp_(y, value),
    "addcmul": lambda x, y, z, value: x.addcmul_(y, z, value=value),
    "addcdiv": lambda x, y, z, value: x.addcdiv_(y, z, value=value),
}
APART: dict[str, Callable[..., Tensor]] = {
    "lerp": lambda x, y, z, value: torch.lerp(x, y, value),
    "addcmul": lambda x, y, z, value: torch.addcmul(x, y, z, value=value),
    "addcdiv": lambda x, y, z, value: torch.addcdiv(x, y, z, value=value),
}
LEVELS = ("reference", *NATIVE)


def wanted(name: str, x: Tensor, y: Tensor, z: Tensor, value: float) -> Tensor:
    return torch.from_numpy(np.asarray(reference.apply_fused_update(name, x.numpy(), y.numpy(), z.numpy(), value)))


@pytest.mark.parametrize("name", elementwise.FUSED_UPDATE_NAMES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7, 5), (33,), (40000,)])
@pytest.mark.parametrize("value", [1, 0.1, -1e-3, 1e-42, 0.0, float("inf"), float("nan")])
def test_the_bits_of_the_reference(name: str, shape: tuple[int, ...], value: float) -> None:
    x, y, z = (values(*shape, seed=seed, special=True) for seed in range(3))
    want = wanted(name, x, y, z, value)
    for level in LEVELS:
        with at_level(level), samerun.portable():
            got = x.clone()
            assert IN_PLACE[name](got, y, z, value) is got
            assert_same_bits(got, want, level)
            if name == "lerp" or value != 1:
                assert_same_bits(APART[name](x, y, z, value), want, level)


@pytest.mark.parametrize("name", elementwise.FUSED_UPDATE_NAMES)
def test_every_meeting_of_special_values(name: str) -> None:
    each = torch.tensor(SPECIAL)
    x, y, z = (part.reshape(-1).contiguous() for part in torch.meshgrid(each, each, each, indexing="ij"))
    with samerun.portable():
        for level in LEVELS:
            with at_level(level):
                assert_same_bits(IN_PLACE[name](x.clone(), y, z, 0.3), wanted(name, x, y, z, 0.3), level)


@pytest.mark.parametrize("name", elementwise.FUSED_UPDATE_NAMES)
@pytest.mark.parametrize("threads", [1, 2])
def test_memory_of_any_kind(name: str, threads: int) -> None:
    """Strided, broadcast, the same tensor twice, parts that overlap, and far more than one piece."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    run, base = IN_PLACE[name], values(300, 400)
    cases: list[tuple[Any, Any, Any]] = [
        (lambda m: m[::2, 1::3], values(150, 133, seed=1), values(150, 133, seed=2)),
        (lambda m: m, values(400, seed=1).expand(300, 400), values(300, 1, seed=2).expand(300, 400)),
        (lambda m: m.t(), values(400, 300, seed=1), values(400, 300, seed=2)),
        (lambda m: m, lambda m: m, lambda m: m),
        (lambda m: m.view(-1)[:90000], lambda m: m.view(-1)[5:90005], lambda m: m.view(-1)[30000:]),
        (lambda m: m, values(300, 400, seed=1), values(300, 400, seed=2)),
    ]
    try:
        for level in LEVELS:
            for number, parts in enumerate(cases):
                memory = base.clone()
                x, y, z = (part(memory) if callable(part) else part for part in parts)
                want = wanted(name, x.clone(), y.clone(), z.clone(), 0.7)
                with at_level(level), samerun.portable():
                    assert_same_bits(run(x, y, z, 0.7), want, (level, number))
    finally:
        torch.set_num_threads(before)


def test_narrow_and_wide_types() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        x, y, z = (values(50, seed=seed, dtype=dtype) for seed in range(3))
        with samerun.portable():
            assert_same_bits(x.clone().addcdiv_(y, z, value=0.3), torch.addcdiv(x, y, z, value=0.3))


def test_autograd_sees_the_change() -> None:
    x, w = values(5), values(5, seed=1).requires_grad_()
    with samerun.portable():
        y = (w * x).sum()
        x.lerp_(torch.ones(5), 0.5)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()
