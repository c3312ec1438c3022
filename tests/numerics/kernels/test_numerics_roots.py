"""Square roots are rounded once, wherever a program or an operator takes one. torch's own are not, on some machines."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from portable_values import assert_same_bits, at_level

import samerun
from samerun.base.errors import SamerunError
from samerun.numerics.kernels import elementwise, functions, library

VALUES = np.random.default_rng(0).uniform(0, 4, 40_000) * 10.0 ** np.random.default_rng(1).integers(-30, 30, 40_000)
SPECIAL = [0.0, -0.0, float("inf"), -1.0, float("nan"), 1e-45, 3.4028235e38, 5e-324]


@pytest.mark.parametrize("level", library.supported_levels())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_root_is_the_nearest(dtype: type, level: str) -> None:
    with np.errstate(all="ignore"):
        x = np.concatenate([VALUES, SPECIAL]).astype(dtype)
        want = torch.from_numpy(np.sqrt(x))
    with at_level(level):
        assert_same_bits(elementwise.sqrt(torch.from_numpy(x)), want)
        for n in (0, 1, 7, 8, 33):
            assert_same_bits(elementwise.sqrt(torch.from_numpy(x[:n])), want[:n])
        assert_same_bits(elementwise.sqrt(torch.from_numpy(x)[1::3]), want[1::3])
        assert elementwise.sqrt(torch.tensor(4.0)).shape == ()
        half = elementwise.sqrt(torch.tensor([2.0], dtype=torch.float16))
        assert half.dtype is torch.float16 and float(half) == float(torch.tensor(2.0).double().sqrt().half())
        with pytest.raises(SamerunError, match="sqrt"):
            elementwise.sqrt(torch.tensor([4]))


WAYS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sqrt": torch.sqrt,
    "in place": lambda x: x.clone().sqrt_(),
    "out": lambda x: torch.sqrt(x, out=torch.empty(0)),
    "power": lambda x: x**0.5,
    "list": lambda x: torch._foreach_sqrt([x])[0],
}


@pytest.mark.parametrize("way", WAYS)
def test_inside_portable_every_way_gives_them(way: str) -> None:
    x = torch.from_numpy(VALUES[(VALUES > 1e-20) & (VALUES < 1e20)].astype(np.float32))
    with samerun.portable():
        got = WAYS[way](x)
    assert_same_bits(got, torch.from_numpy(np.sqrt(x.numpy())))


def test_a_norm_is_the_root_of_its_sum() -> None:
    x = np.random.default_rng(2).normal(size=(2, 5000)).astype(np.float32)
    with samerun.portable():
        got = torch.from_numpy(x).norm(dim=0)
    assert_same_bits(got, torch.from_numpy(np.sqrt(x[0] * x[0] + x[1] * x[1])))


@pytest.mark.parametrize("setting", [{"foreach": True}, {"foreach": False}, {"fused": True}], ids=str)
def test_adam_divides_by_them(setting: dict[str, bool]) -> None:
    """The first step, written out in NumPy: every operation rounds once."""
    g = np.random.default_rng(3).normal(size=5000).astype(np.float32)
    p = torch.nn.Parameter(torch.zeros(5000))
    p.grad = torch.from_numpy(g.copy())
    with samerun.portable():
        torch.optim.Adam([p], lr=1.0, eps=1e-30, **setting).step()
    m, v = g * np.float32(1 - 0.9), (g * np.float32(1 - 0.999)) * g
    below = np.sqrt(v) / np.float32((1 - 0.999) ** 0.5) + np.float32(1e-30)
    want = (np.float32(-(1.0 / (1 - 0.9))) * m) / below
    assert_same_bits(p.detach(), torch.from_numpy(want))


def test_the_deviation_and_the_norm_of_a_batch() -> None:
    x = torch.from_numpy(np.random.default_rng(4).normal(size=(6, 500)).astype(np.float32))
    with samerun.portable():
        std, var = x.std(0), x.var(0)
        net = torch.nn.BatchNorm1d(500, eps=1e-30, affine=False)
        y = net(x)
        biased = x.var(0, correction=0)
        mean = x.mean(0)
    assert_same_bits(std, torch.from_numpy(np.sqrt(var.numpy())))
    r = 1 / np.sqrt(biased.numpy())
    assert_same_bits(y, torch.from_numpy((x.numpy() - mean.numpy()) * r))


ROUND_ONCE: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "fmod": np.fmod,
    "remainder": np.remainder, "copysign": np.copysign, "nextafter": np.nextafter, "reciprocal": lambda x: 1 / x,
    "square": lambda x: x * x, "floor": np.floor, "ceil": np.ceil, "round": np.round, "trunc": np.trunc,
    "frac": lambda x: x - np.trunc(x), "abs": np.abs, "neg": np.negative,
}  # fmt: skip


@pytest.mark.parametrize("name", ROUND_ONCE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_torchs_own_arithmetic_rounds_once(dtype: type, name: str) -> None:
    """The table takes it for exact; square roots were there too, and are not."""
    exact = ROUND_ONCE[name]
    generator = np.random.default_rng(5)
    given = [(generator.normal(size=20_000) * 10.0 ** generator.uniform(-8, 8, 20_000)).astype(dtype) for _ in range(2)]
    one = ("reciprocal", "square", "floor", "ceil", "round", "trunc", "frac", "abs", "neg")
    given = given[:1] if name in one else given
    with samerun.portable():
        got = getattr(torch, name)(*map(torch.from_numpy, given))
    assert_same_bits(got, torch.from_numpy(exact(*given).astype(dtype)))


COMPOSED = {
    "aten_handlers/norms.py": {".sqrt("},
    "aten_handlers/lstm_layer.py": {"torch.sigmoid(", "torch.tanh("},
    "aten_handlers/recurrent.py": {"torch.sigmoid(", "torch.tanh("},
}
"""Called inside `portable()`, which sees them."""


def test_no_operator_of_the_table_takes_torchs_own_functions() -> None:
    """torch's exp, sqrt and their kin are not exact; a handler runs below `portable()`, and must not call them."""
    names = "|".join({*functions.NAMES, *functions.PAIR_NAMES, "sqrt"} - {"reciprocal", "pow"})
    call = re.compile(rf"\b(?:torch|aten)\.(?:{names})_?\(|(?<!np)(?<!math)(?<!roots)\.r?sqrt_?\(")
    room = Path(functions.__file__).parent.parent
    found = {}
    for file in sorted(room.rglob("*.py")):
        name = file.relative_to(room).as_posix()
        text = re.sub(r'"""[\s\S]*?"""|"[^"\n]*"', "", file.read_text(encoding="utf-8"))
        calls = set(call.findall(text)) - COMPOSED.get(name, set())
        if calls and not name.startswith(("reference/", "verification/")):
            found[name] = calls
    assert not found
