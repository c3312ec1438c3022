"""torch.optim's loops in one call of C: the bits of the operators one by one; where it must, torch's own loop."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from portable_values import NATIVE, SPECIAL, assert_same_bits, at_level, values
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import samerun
from samerun.numerics.kernels import optimizer_steps

SHAPES = ((), (0,), (1,), (33,), (7, 5), (3, 4, 2, 2), (40000,))
ADAM: list[dict[str, Any]] = [
    {},
    {"weight_decay": 0.0},
    {"weight_decay": 0.1, "lr": 0.3},
    {"amsgrad": True},
    {"maximize": True, "weight_decay": 0.01},
    {"eps": 0.0, "betas": (0.0, 0.5)},
    {"lr": 0, "amsgrad": True, "maximize": True},
]
SGD: list[dict[str, Any]] = [
    {},
    {"weight_decay": 0.1},
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    {"momentum": 0.9, "nesterov": True, "maximize": True},
    {"momentum": 0.5, "dampening": 0.3, "maximize": True},
]
CASES = [
    *[(torch.optim.AdamW, setting) for setting in ADAM],
    *[(torch.optim.Adam, setting) for setting in ADAM],
    *[(torch.optim.SGD, {"lr": 0.05, **setting}) for setting in SGD],
]
WAYS: tuple[dict[str, bool], ...] = ({"foreach": False}, {"foreach": True}, {"fused": True})


class Listening(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def count_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The kernels that ran."""
    calls: list[str] = []
    with monkeypatch.context() as patched:
        for name in ("_adam_steps", "_sgd_steps"):
            kernel = getattr(optimizer_steps, name)

            def counted(*args: Any, name: str = name, kernel: Any = kernel) -> Any:
                done = kernel(*args)
                calls.extend([name] if done else [])
                return done

            patched.setattr(optimizer_steps, name, counted)
        yield calls


def train(make: Callable[..., torch.optim.Optimizer], steps: int = 3, **options: Any) -> list[Tensor]:
    """Parameters, gradients and states after some steps; odd values come in the last."""
    params = [torch.nn.Parameter(values(*shape, seed=number)) for number, shape in enumerate(SHAPES)]
    params[1].requires_grad_(False)
    params.insert(0, torch.nn.Parameter(torch.tensor(SPECIAL)))
    optimizer = make(params, **options)
    for step in range(steps):
        for number, p in enumerate(params):
            p.grad = values(*p.shape, seed=100 + 10 * step + number, special=step == steps - 1)
        optimizer.step()
    states = [state for p in params for state in optimizer.state.get(p, {}).values() if isinstance(state, Tensor)]
    return [*(p.detach() for p in params), *(p.grad for p in params if p.grad is not None), *states]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(("make", "setting"), CASES, ids=str)
def test_the_bits_of_the_loop(
    make: Callable[..., torch.optim.Optimizer], setting: dict[str, Any], way: dict[str, bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with at_level("reference"), samerun.portable():
        wanted = train(make, **setting, **way)
    for level in NATIVE:
        with at_level(level), samerun.portable(), count_calls(monkeypatch) as calls:
            got = train(make, **setting, **way)
        for ours, theirs in zip(got, wanted, strict=True):
            assert_same_bits(ours, theirs, level)
        left_to_torch = way.get("foreach") and setting.get("nesterov")
        assert bool(calls) is not bool(left_to_torch)


@pytest.mark.skipif(not NATIVE, reason="the C library was not built")
@pytest.mark.parametrize("make", [torch.optim.AdamW, lambda p, **o: torch.optim.SGD(p, 0.1, 0.9, **o)])
def test_left_to_torch(make: Callable[..., torch.optim.Optimizer], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernels do not take: other types, layouts, memory twice, modes, learning rates that are tensors."""

    def steps_in_c(p: Any, grad: Tensor, **options: Any) -> bool:
        p = torch.nn.Parameter(p)
        with samerun.portable(), count_calls(monkeypatch) as calls:
            optimizer = make([p], **options)
            for _ in range(2):
                p.grad = grad
                optimizer.step()
        return bool(calls)

    x = values(4, 6)
    assert steps_in_c(x.clone(), x.clone())
    assert not steps_in_c(x.double(), x.double())
    assert not steps_in_c(x.bfloat16(), x.bfloat16())
    assert not steps_in_c(x.clone().t(), x.clone().t())
    assert not steps_in_c(x.clone(), values(6, 4).t())
    same = x.clone()
    assert not steps_in_c(same, same)
    assert not steps_in_c(x.clone(), x.clone(), lr=1e39) if make is torch.optim.AdamW else True
    assert not steps_in_c(x.clone(), x.clone(), lr=torch.tensor(0.1)) if make is torch.optim.AdamW else True
    with Listening():
        assert not steps_in_c(x.clone(), x.clone())


def test_what_the_program_sees_of_a_step() -> None:
    """Versions (so that a backward pass through an old value is refused), hooks, closures and state dicts."""
    layer = torch.nn.Linear(3, 2)
    before = copy.deepcopy(layer)
    with samerun.portable():
        optimizer = torch.optim.AdamW(layer.parameters())
        seen: list[str] = []
        optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
        optimizer.register_step_post_hook(lambda *_: seen.append("after"))
        x = torch.ones(4, 3, requires_grad=True)

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = layer(x).square().sum()
            loss.backward()
            return loss

        old = layer(x).sum()
        assert optimizer.step(closure) is not None
        assert seen == ["before", "after"]
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            old.backward()
        assert [int(state["step"]) for state in optimizer.state.values()] == [1, 1]
    assert not torch.equal(layer.weight, before.weight)


def test_steps_outside_are_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with samerun.portable():
        pass
    with count_calls(monkeypatch) as calls:
        train(torch.optim.AdamW)
    assert not calls
