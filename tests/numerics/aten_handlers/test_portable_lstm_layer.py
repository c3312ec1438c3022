"""An LSTM's layer as one node: the bits of one node an operator, and single operators where it must not be one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from portable_values import NATIVE, assert_same_bits, at_level, values
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import samerun
from samerun.numerics.aten_handlers import lstm_layer, recurrent
from samerun.numerics.kernels import recurrent as kernels

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # jvp

LEVELS = ("reference", *NATIVE)
SIZES = ((5, 3, 4, 6), (1, 1, 1, 1), (4, 33, 5, 17))
"""Times, batch, features, hidden."""
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"batch_first": True},
    {"bias": False},
    {"bidirectional": True},
    {"num_layers": 2, "bidirectional": True, "dropout": 0.5},
)


class Listening(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


@contextmanager
def by_single_operators(patched: pytest.MonkeyPatch) -> Iterator[None]:
    with patched.context() as only_here:
        only_here.setattr(recurrent, "lstm_layer_can_be_one_autograd_node", lambda *_: False)
        yield


@contextmanager
def count_kernels(patched: pytest.MonkeyPatch) -> Iterator[list[str]]:
    calls: list[str] = []
    with patched.context() as only_here:
        for name in ("_forward", "_backward"):
            kernel = getattr(kernels, name)
            only_here.setattr(kernels, name, lambda *a, n=name, k=kernel: (calls.append(n), k(*a))[1])
        yield calls


def of_outputs(y: Tensor, h: Tensor, c: Tensor) -> dict[str, Tensor]:
    """Losses that give gradients to some of the outputs, and not to others."""
    y_weights, h_weights = values(*y.shape, seed=11), values(*h.shape, seed=12)
    return {
        "outputs": (y * y_weights).sum(),
        "hidden": (h * h_weights).sum(),
        "cell": (c * h_weights).sum(),
        "last": (y[-1] * y_weights[-1]).sum(),
        "all": (y * y_weights).sum() + (h * h_weights).sum() + (c * c).sum(),
    }


def run(size: tuple[int, ...], options: dict[str, Any], special: bool = False) -> dict[str, Tensor | None]:
    times, batch, features, hidden = size
    torch.manual_seed(3)
    lstm = torch.nn.LSTM(features, hidden, **options)
    states = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    shape = (batch, times, features) if options.get("batch_first") else (times, batch, features)
    x = values(*shape, seed=1, special=special).requires_grad_()
    h, c = (values(states, batch, hidden, seed=seed, special=special).requires_grad_() for seed in (2, 3))
    leaves = {"x": x, "h": h, "c": c, **dict(lstm.named_parameters())}
    found: dict[str, Tensor | None] = {}
    for loss in ("outputs", "hidden", "cell", "last", "all"):
        torch.manual_seed(4)
        y, (last_h, last_c) = lstm(x, (h, c))
        for leaf in leaves.values():
            leaf.grad = None
        of_outputs(y, last_h, last_c)[loss].backward()
        found |= {f"{loss} {name}": leaf.grad for name, leaf in leaves.items()}
        found |= {"y": y.detach(), "last h": last_h.detach(), "last c": last_c.detach()}
    return found


def assert_alike(got: dict[str, Tensor | None], wanted: dict[str, Tensor | None], where: str) -> None:
    for name, want in wanted.items():
        ours = got[name]
        assert (ours is None) is (want is None), f"{where}: {name}"
        if ours is not None and want is not None:
            assert ours.stride() == want.stride(), f"{where}: {name}"
            assert_same_bits(ours, want, f"{where}: {name}")


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_bits_of_single_operators(
    options: dict[str, Any], size: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    with samerun.portable(), by_single_operators(monkeypatch):
        wanted = run(size, options)
    for level in LEVELS:
        with at_level(level), samerun.portable(), count_kernels(monkeypatch) as calls:
            assert_alike(run(size, options), wanted, level)
        assert bool(calls) is (level != "reference")


def test_odd_values(monkeypatch: pytest.MonkeyPatch) -> None:
    with samerun.portable(), by_single_operators(monkeypatch):
        wanted = run((3, 2, 9, 20), {}, special=True)
    for level in LEVELS:
        with at_level(level), samerun.portable():
            assert_alike(run((3, 2, 9, 20), {}, special=True), wanted, level)


def test_a_weight_that_is_used_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gradient is added up in the order of single operators: a penalty, and two sequences."""

    def gradients() -> list[Tensor]:
        torch.manual_seed(0)
        lstm = torch.nn.LSTM(4, 4)
        y, (h, _) = lstm(values(6, 3, 4))
        again, _ = lstm(y, (h, h))
        penalty = sum(p.square().sum() for p in lstm.parameters())
        (y.square().sum() + again.sin().sum() + penalty).backward()
        return [p.grad for p in lstm.parameters() if p.grad is not None]

    with samerun.portable():
        with by_single_operators(monkeypatch):
            wanted = gradients()
        for ours, theirs in zip(gradients(), wanted, strict=True):
            assert_same_bits(ours, theirs)


@pytest.mark.parametrize("frozen", ["weight_hh_l0", "bias_hh_l0", "weight_ih_l0", "all"])
def test_what_needs_no_gradient(frozen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def gradients() -> list[Tensor | None]:
        torch.manual_seed(0)
        lstm = torch.nn.LSTM(4, 4)
        for name, p in lstm.named_parameters():
            p.requires_grad_(name != frozen and frozen != "all")
        c = values(1, 3, 4).requires_grad_()
        lstm(values(5, 3, 4), (values(1, 3, 4, seed=1), c))[0].square().sum().backward()
        return [c.grad, *(p.grad for p in lstm.parameters())]

    with samerun.portable():
        with by_single_operators(monkeypatch):
            wanted = gradients()
        assert_alike(dict(enumerate(gradients())), dict(enumerate(wanted)), frozen)  # type: ignore[arg-type]


def test_derivatives_of_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    """One node adds up in another order than single operators, but in the same one at each level and under a mode."""

    def gradients(bias: bool = True) -> list[Tensor]:
        torch.manual_seed(0)
        lstm = torch.nn.LSTM(4, 5, bias=bias, bidirectional=True)
        x = values(4, 3, 4).requires_grad_()
        (slope,) = torch.autograd.grad(lstm(x)[0].sin().sum(), x, create_graph=True)
        slope.square().sum().backward()
        return [slope.detach(), *(p.grad for p in (x, *lstm.parameters()) if p.grad is not None)]

    for bias in (True, False):
        with samerun.portable(), by_single_operators(monkeypatch):
            alike = gradients(bias)
        with samerun.portable():
            wanted = gradients(bias)
        for ours, theirs in zip(wanted, alike, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
        for level in LEVELS:
            for mode in (nullcontext(), Listening()):
                with at_level(level), samerun.portable(), mode:
                    for ours, theirs in zip(gradients(bias), wanted, strict=True):
                        assert_same_bits(ours, theirs, level)


def test_others_that_look_see_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    with samerun.portable(), by_single_operators(monkeypatch):
        wanted = run((3, 2, 4, 5), {})
    with samerun.portable(), count_kernels(monkeypatch) as calls, Listening() as listening:
        assert_alike(run((3, 2, 4, 5), {}), wanted, "a mode")
    assert not calls and {"tanh.default", "sigmoid.default", "sigmoid_backward.default"} <= {*listening.seen}


@pytest.mark.skipif(not NATIVE, reason="the C library was not built")
@pytest.mark.parametrize(
    ("name", "make", "one_call"),
    [
        ("plain", lambda: (torch.nn.LSTM(4, 5), values(3, 2, 4)), True),
        ("no batch", lambda: (torch.nn.LSTM(4, 5), values(3, 4)), True),
        ("turned", lambda: (torch.nn.LSTM(3, 5), values(4, 2, 3).permute(1, 0, 2)), True),
        ("float64", lambda: (torch.nn.LSTM(4, 5).double(), values(3, 2, 4).double()), False),
        ("bfloat16", lambda: (torch.nn.LSTM(4, 5).bfloat16(), values(3, 2, 4).bfloat16()), False),
        ("projection", lambda: (torch.nn.LSTM(4, 5, proj_size=2), values(3, 2, 4)), False),
        ("packed", lambda: (torch.nn.LSTM(4, 5),
                            torch.nn.utils.rnn.pack_padded_sequence(values(3, 2, 4), torch.tensor([3, 1]))), False),
        ("GRU", lambda: (torch.nn.GRU(4, 5), values(3, 2, 4)), False),
        ("empty batch", lambda: (torch.nn.LSTM(4, 5), values(3, 0, 4)), False),
    ],
)  # fmt: skip
def test_what_is_one_call(name: str, make: Callable[[], Any], one_call: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = make()
    with samerun.portable(), count_kernels(monkeypatch) as calls:
        y = module(x)[0]
        (y.data if isinstance(y, torch.nn.utils.rnn.PackedSequence) else y).sum().backward()
        assert calls == (["_forward", "_backward"] if one_call else [])
        with torch.inference_mode():
            module(x)
        monkeypatch.setattr(lstm_layer, "MOST_GRADIENT_VALUES", 10)
        calls.clear()
        module(x)
        assert not calls


def test_other_ways_to_differentiate(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.func, jvp and checkpoints, which run the layer again."""
    lstm = torch.nn.LSTM(4, 5)
    x = values(3, 2, 4)

    def loss(given: Tensor) -> Tensor:
        out: Tensor = lstm(given)[0].sin().sum()
        return out

    with samerun.portable():
        leaf = x.clone().requires_grad_()
        loss(leaf).backward()
        wanted = leaf.grad
        assert wanted is not None
        assert_same_bits(torch.func.grad(loss)(x), wanted)
        assert torch.allclose(torch.func.jvp(loss, (x,), (torch.ones_like(x),))[1], wanted.sum(), rtol=1e-4)
        leaf.grad = None
        checkpoint(loss, leaf, use_reentrant=False).backward()  # type: ignore[union-attr]
        assert leaf.grad is not None
        assert_same_bits(leaf.grad, wanted)
        y, _ = lstm(leaf)
        y.detach().zero_()  # as with single operators, the layer keeps what it needs
        y.sum().backward()
        with torch.no_grad():
            y = lstm(leaf)[0]
        assert not y.requires_grad
