"""torch.compile under `portable()`: compiled functions run as they were written, with the portable bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import samerun
from samerun.numerics.dispatch import compiled_regions

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore:.*torch.jit", "ignore:The .grad attribute of a Tensor"
)


@pytest.fixture(autouse=True)
def _fresh_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(compiled_regions, "_has_warned", True)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


X = torch.linspace(-2, 2, 40).reshape(5, 8)


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))


def step(model: torch.nn.Module, call: Callable[[Tensor], Tensor]) -> list[Tensor]:
    model.zero_grad()
    y = call(X)
    y.square().sum().backward()
    return [y.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def assert_same(found: list[Tensor], want: list[Tensor]) -> None:
    assert len(found) == len(want) and all(torch.equal(x, y) for x, y in zip(found, want, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.exhaustive)]
)  # fmt: skip
def test_every_way_to_compile_gives_the_portable_bits(backend: str) -> None:
    model = make_model()
    with samerun.portable():
        want = step(model, model)
    compiled = torch.compile(model, backend=backend)
    with samerun.portable():
        assert_same(step(model, compiled), want)  # compiled before, first run inside
        assert_same(step(model, torch.compile(model, backend=backend, fullgraph=True)), want)  # compiled inside
    step(model, compiled)  # outside: now it is compiled
    with samerun.portable():
        assert_same(step(model, compiled), want)
        model.compile(backend=backend)
        assert_same(step(model, model), want)

    def enter_inside(x: Tensor) -> Tensor:
        with samerun.portable():
            y: Tensor = model(x)
        return y

    def enter_by_decorator(x: Tensor) -> Tensor:
        y: Tensor = samerun.portable()(model)(x)
        return y

    for function in (enter_inside, enter_by_decorator):
        assert torch.equal(torch.compile(function, backend=backend)(X), want[0])


def test_code_outside_is_still_compiled() -> None:
    graphs: list[Any] = []

    def count_graphs(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(lambda x: x.exp() + 1, backend=count_graphs)
    x = torch.ones(3)
    with samerun.portable():
        compiled(x)
    assert not graphs
    compiled(x)
    assert len(graphs) == 1


def test_it_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_regions, "_has_warned", False)
    compiled = torch.compile(lambda x: x.exp(), backend="eager")
    with samerun.portable():
        with pytest.warns(UserWarning, match="has no effect inside"):
            compiled(torch.ones(3))
        compiled(torch.ones(3))


@pytest.mark.exhaustive
def test_a_compiled_backward_pass_is_refused() -> None:
    compiled = torch.compile(lambda x: x.exp().sin(), backend="inductor")
    x = torch.ones(3, requires_grad=True)
    y = compiled(x).sum()
    with samerun.portable(), pytest.raises(samerun.NotPortableError, match="made outside"):
        y.backward()
    compiled(x).sum().backward()
