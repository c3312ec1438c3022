"""Checkpointing: the gradient is, bit for bit, what it is without; torch's own is not."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.checkpoint as torchs

import samerun
from samerun.base.errors import SamerunError

Block = Callable[..., torch.Tensor]
mine = random.Random(0)


@pytest.fixture(autouse=True)
def _streams_put_back() -> Iterator[None]:
    samerun.register_rng("mine", seed=mine.seed, get_state=mine.getstate, set_state=mine.setstate)
    with samerun.isolate_rng(0):
        yield
    samerun.unregister_rng("mine")


DRAW: dict[str, Callable[[], Any]] = {
    "python": random.random,
    "gauss": lambda: random.gauss(0, 1),  # keeps a second number for the next call
    "numpy": np.random.rand,
    "registered": mine.random,
    "stream_python": lambda: samerun.stream("drop").python.random(),
    "stream_numpy": lambda: samerun.stream("drop").numpy.random(),
    "stream_torch": lambda: torch.rand((), generator=samerun.stream("drop").torch),
    "torch": lambda: torch.rand(()),
    "first_use": lambda: samerun.stream("late").python.random(),
}


def plain(function: Block, *args: Any, **kwargs: Any) -> torch.Tensor:
    kwargs.pop("use_reentrant", None)
    return function(*args, **kwargs)


def by_hand(function: Block, value: torch.Tensor, use_reentrant: bool = True) -> torch.Tensor:
    """The slow and obvious way: torch's, with every draw of the block noted the first time and told the second."""
    notes: list[Any] = []

    def noted(value: torch.Tensor) -> torch.Tensor:
        if not notes:
            notes.append(samerun.get_rng_state())
            return function(value)
        with samerun.isolate_rng():
            samerun.set_rng_state(notes[0], strict=False)
            return function(value)

    return torchs.checkpoint(noted, value, use_reentrant=use_reentrant)


def gradients(checkpoint: Callable[..., torch.Tensor], draw: Callable[[], Any], **how: Any) -> list[Any]:
    """Gradients of three blocks that draw, in turn, and what the streams give after forward and backward."""
    samerun.seed_everything(7)
    weight = torch.linspace(-1, 1, 64).reshape(8, 8).requires_grad_()
    value = torch.linspace(0, 1, 32).reshape(4, 8).requires_grad_()

    def block(value: torch.Tensor) -> torch.Tensor:
        return torch.tanh(value @ weight * draw()) + torch.nn.functional.dropout(value, 0.5) * draw()

    hidden = value
    for _ in range(3):
        hidden = checkpoint(block, hidden, **how)
    between = [random.random(), np.random.rand(), torch.rand(()).item(), mine.random()]
    hidden.square().sum().backward()
    after = [random.random(), np.random.rand(), torch.rand(()).item(), mine.random(), random.gauss(0, 1)]
    assert weight.grad is not None and value.grad is not None
    return [weight.grad.tolist(), value.grad.tolist(), between, after, samerun.stream("drop").python.random()]


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("name", DRAW)
def test_gradients_are_those_without_checkpointing(name: str, reentrant: bool) -> None:
    expected = gradients(plain, DRAW[name])
    assert gradients(samerun.checkpoint, DRAW[name], use_reentrant=reentrant) == expected
    assert gradients(by_hand, DRAW[name], use_reentrant=reentrant) == expected


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("name", [name for name in DRAW if name != "torch"])
def test_torchs_own_are_wrong(name: str, reentrant: bool) -> None:
    wrong = gradients(torchs.checkpoint, DRAW[name], use_reentrant=reentrant)
    right = gradients(plain, DRAW[name])
    assert wrong[0] != right[0] and wrong[2] == right[2]  # the same forward, another gradient


def nested(checkpoint: Callable[..., torch.Tensor], outer: bool, inner: bool) -> Block:
    def run(function: Block, value: torch.Tensor) -> torch.Tensor:
        def both(value: torch.Tensor) -> torch.Tensor:
            half = checkpoint(function, value * random.random(), use_reentrant=inner)
            return checkpoint(function, half * np.random.rand(), use_reentrant=inner) * random.random()

        return checkpoint(both, value, use_reentrant=outer)

    return run


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # the inner, in the first forward
@pytest.mark.parametrize(("outer", "inner"), [(True, True), (True, False), (False, False), (False, True)])
def test_nested(outer: bool, inner: bool) -> None:
    expected = gradients(nested(plain, outer, inner), random.random)
    got = gradients(nested(samerun.checkpoint, outer, inner), random.random)
    assert got == gradients(nested(by_hand, outer, inner), random.random)
    if outer and not inner:  # the weight's gradients are then added in another order, whatever is drawn
        assert np.allclose(got[0], expected[0], rtol=1e-5, atol=1e-7)
    else:
        assert got == expected
    assert gradients(nested(torchs.checkpoint, outer, inner), random.random)[0] != expected[0]


@pytest.mark.parametrize("reentrant", [True, False])
def test_under_autocast(reentrant: bool) -> None:
    def in_bfloat16(checkpoint: Any) -> Any:
        def run(function: Block, value: torch.Tensor, **how: Any) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return checkpoint(function, value, **how)

        return run

    expected = gradients(in_bfloat16(plain), random.random)
    assert gradients(in_bfloat16(samerun.checkpoint), random.random, use_reentrant=reentrant) == expected
    assert expected[0] != gradients(plain, random.random)[0]


@pytest.mark.parametrize("reentrant", [True, False])
def test_an_exception_in_the_recomputation_leaves_the_streams_alone(reentrant: bool) -> None:
    samerun.seed_everything(3)
    calls = []

    def block(value: torch.Tensor) -> torch.Tensor:
        calls.append(random.random())
        if len(calls) > 1:
            raise KeyError("again")
        return torch.sin(value * 2)

    value = torch.ones(3, requires_grad=True)
    result = samerun.checkpoint(block, value, use_reentrant=reentrant)
    before = random.getstate()
    with pytest.raises(KeyError, match="again"):
        result.sum().backward()
    assert calls[0] == calls[1] and random.getstate() == before


def test_an_exception_in_the_forward_pass_is_the_users() -> None:
    def block(value: torch.Tensor) -> torch.Tensor:
        raise KeyError("at once")

    for reentrant in (True, False):
        with pytest.raises(KeyError, match="at once"):
            samerun.checkpoint(block, torch.ones(3, requires_grad=True), use_reentrant=reentrant)


def test_a_second_backward_recomputes_the_same() -> None:
    value = torch.ones(3, requires_grad=True)
    result = samerun.checkpoint(lambda v: torch.sin(v * random.random()) * np.random.rand(), value, use_reentrant=False)
    one, other = (torch.autograd.grad(result.sum(), value, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(one, other)


def test_the_parameters_are_torchs() -> None:
    entered = []

    def contexts() -> Any:
        entered.append("asked")
        return nullcontext(), nullcontext()

    def scaled(value: torch.Tensor, *, factor: float) -> torch.Tensor:
        return torch.sin(value) * factor

    value = torch.ones(3, requires_grad=True)
    how: Any = {"context_fn": contexts, "determinism_check": "none", "early_stop": False}
    samerun.checkpoint(scaled, value, use_reentrant=False, factor=2.0, **how).sum().backward()
    assert entered == ["asked"] and value.grad is not None
    assert torch.equal(value.grad, 2 * torch.cos(torch.ones(3)))
    samerun.checkpoint(torch.sin, value, use_reentrant=False, debug=True).sum().backward()
    with pytest.raises(ValueError, match="determinism_check should be one of"):
        samerun.checkpoint(torch.sin, value, use_reentrant=False, determinism_check="bits")
    with pytest.raises(ValueError, match="Unexpected keyword arguments: factor"):
        samerun.checkpoint(scaled, value, use_reentrant=True, factor=2.0)
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
        samerun.checkpoint(torch.sin, value)


def test_nothing_is_put_back_if_asked() -> None:
    samerun.seed_everything(0)
    drawn: list[float] = []

    def block(value: torch.Tensor) -> torch.Tensor:
        drawn.append(random.random())
        return torch.sin(value)

    value = torch.ones(3, requires_grad=True)
    samerun.checkpoint(block, value, use_reentrant=False, preserve_rng_state=False).sum().backward()
    assert drawn[0] != drawn[1]


def test_without_gradients_nothing_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samerun.control.rng.activation_checkpoint.take_snapshot", lambda **_: pytest.fail("taken"))
    with torch.no_grad():
        assert samerun.checkpoint(torch.sin, torch.zeros(1), use_reentrant=False).item() == 0


def test_no_device_is_started_for_its_state() -> None:
    from samerun.control.random_source import RandomSource

    started: list[str] = []
    source = RandomSource(
        "toy", "", lambda: True, print, lambda: started.append("toy"), print, starts_device=lambda: True
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("samerun.control.rng.state.available_random_sources", lambda: [source])
        value = torch.ones(3, requires_grad=True)
        samerun.checkpoint(torch.sin, value, use_reentrant=False).sum().backward()
    assert not started


class Draws(torch.nn.Module):
    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return torch.sin(value * random.random()) * np.random.rand() + value


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("segments", [1, 2, 3, 5])
def test_sequential(segments: int, reentrant: bool) -> None:
    layers = torch.nn.Sequential(*[Draws() for _ in range(5)])

    def run(function: Block, value: torch.Tensor, how: str) -> torch.Tensor:
        if how == "plain":
            return function(layers(value))
        way = torchs if how == "torch" else samerun
        steps = layers if how != "list" else [layers[index] for index in range(5)]
        return function(way.checkpoint_sequential(steps, segments, value, use_reentrant=reentrant))

    expected = gradients(run, random.random, how="plain")
    assert gradients(run, random.random, how="samerun") == expected
    assert gradients(run, random.random, how="list") == expected
    if segments > 1:
        assert gradients(run, random.random, how="torch")[1] != expected[1]


def test_sequential_recomputes_what_torch_recomputes() -> None:
    def calls(way: Any) -> list[int]:
        seen: list[int] = []

        def step(index: int) -> Block:
            return lambda value: seen.append(index) or torch.sin(value)  # type: ignore[func-returns-value]

        value = torch.ones(2, requires_grad=True)
        way.checkpoint_sequential([step(i) for i in range(7)], 3, value, use_reentrant=True).sum().backward()
        return seen

    assert calls(samerun) == calls(torchs)


@pytest.mark.parametrize("segments", [0, 4, -1, 1.0, True, "2"])
def test_segments_that_are_none(segments: Any) -> None:
    with pytest.raises(SamerunError, match=r"^checkpoint_sequential\(segments=.*\): a whole number from 1 to 3,"):
        samerun.checkpoint_sequential([torch.sin] * 3, segments, torch.ones(1), use_reentrant=False)


@pytest.mark.filterwarnings("ignore")  # torch warns of graph breaks and of itself
def test_inside_a_compiled_function() -> None:
    def step(function: Block, value: torch.Tensor) -> torch.Tensor:
        return samerun.checkpoint(function, torch.cos(value), use_reentrant=False) * 2

    def expected(function: Block, value: torch.Tensor) -> torch.Tensor:
        return function(torch.cos(value)) * 2

    compiled: Any = torch.compile(step, backend="eager")
    assert gradients(compiled, random.random) == gradients(expected, random.random)


@pytest.mark.cuda
@pytest.mark.parametrize("reentrant", [True, False])
def test_draws_on_a_device_that_no_argument_is_on(reentrant: bool) -> None:
    draw = lambda: torch.rand((), device="cuda").cpu()  # noqa: E731
    draw()
    expected = gradients(plain, draw)
    assert gradients(samerun.checkpoint, draw, use_reentrant=reentrant) == expected
    assert gradients(torchs.checkpoint, draw, use_reentrant=reentrant)[0] != expected[0]
