"""The quick way of digesting a step's operators, in C, gives what the slow one gives: each operator, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from samerun.record.watching import quick_operator_digests
from samerun.record.watching.operator_digests import ExecutedOperator, OperatorDigests
from samerun.record.watching.quick_operator_digests import make_operator_digests

pytestmark = pytest.mark.skipif(
    quick_operator_digests.load_quick_digests_class() is None, reason="the C library was not built"
)


def train(model: nn.Module, x: torch.Tensor, make: Callable[[Any], torch.optim.Optimizer], amp: bool = False) -> None:
    optimizer = make(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=amp):
            out = model(x)
            out = out[0][:, -1] if isinstance(out, tuple) else out
            loss = F.cross_entropy(out, torch.arange(len(out)) % out.shape[-1])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loss.item()


def adamw(**options: Any) -> Callable[[Any], torch.optim.Optimizer]:
    return lambda parameters: torch.optim.AdamW(parameters, lr=0.01, **options)


def mlp() -> None:
    train(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3)), torch.randn(8, 4), adamw())


def mlp_foreach() -> None:
    train(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3)), torch.randn(8, 4), adamw(foreach=True))


def mlp_fused() -> None:
    train(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3)), torch.randn(8, 4), adamw(fused=True))


def mlp_amp() -> None:
    train(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)), torch.randn(8, 4), adamw(), amp=True)


def lstm() -> None:
    train(nn.LSTM(6, 8, batch_first=True), torch.randn(4, 5, 6), adamw())


def cnn() -> None:
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.3), nn.Flatten()
    momentum = lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)  # noqa: E731
    train(nn.Sequential(*layers, nn.Linear(36, 5)), torch.randn(6, 3, 8, 8), momentum)


def channels_last() -> None:
    x = torch.randn(6, 3, 8, 8).to(memory_format=torch.channels_last)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    train(model.to(memory_format=torch.channels_last), x, adamw())  # type: ignore[call-overload]


def transformer() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    train(nn.Sequential(model, nn.Flatten(), nn.Linear(40, 3)), torch.randn(4, 5, 8), adamw())


def sparse_embedding() -> None:
    model = nn.Sequential(nn.Embedding(20, 6, sparse=True), nn.Flatten(), nn.Linear(18, 3))
    train(model, torch.randint(0, 20, (4, 3)), lambda parameters: torch.optim.SGD(parameters, lr=0.1))


def views_and_writes() -> None:
    x = torch.arange(24.0).reshape(4, 6)
    x[1:3, ::2].mul_(2).add_(x[0, 0])
    x.t()[2].copy_(torch.ones(4, dtype=torch.float64))
    torch.add(x, 1, out=x[:, :].view(4, 6))
    torch.sort(x, out=(torch.empty(0), torch.empty(0, dtype=torch.int64)))
    x.T.exp().transpose(0, 1).clone(memory_format=torch.preserve_format)
    torch.randn(2, 3).expand(4, 2, 3) + 1
    x.zero_(), x.fill_(3), x.masked_fill_(x > 2, 0.5), x.index_put_((torch.tensor([0, 0]),), torch.ones(6), True)
    torch.aminmax(x), torch.unbind(x), torch.split(x, 3), torch.stack([x, x]), torch.nonzero(x), x.sum().item()
    (
        torch.zeros(0, 3) + 1,
        torch.tensor(2.0) * 3,
        x.to(torch.int8),
        x.bool().logical_not(),
        torch._foreach_add([x, x], 1),
    )


def many_tensors_at_once() -> None:
    torch._foreach_mul_([torch.ones(2) for _ in range(200)], 3)
    torch.cat([torch.ones(2) for _ in range(200)])


def complex_numbers() -> None:
    z = torch.randn(3, 4, dtype=torch.complex64)
    (z.conj() * z).imag.neg()
    torch.view_as_real(z).add_(1)
    torch.fft.rfft(torch.randn(16))


def other_layouts() -> None:
    sparse = torch.eye(4).to_sparse()
    (sparse @ torch.ones(4, 2)).relu_()
    torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8).dequantize()
    torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]) + 1
    torch.ones(3, device="meta") + 1


def draws() -> None:
    own = torch.Generator().manual_seed(1)
    torch.randn(3, generator=own), torch.rand(4), torch.randperm(5, generator=own), torch.ones(3).bernoulli_(0.5)
    torch.empty(5).normal_(generator=own), torch.empty(64).clone(), F.dropout(torch.ones(9))


def transforms() -> None:
    x = torch.randn(4, 3)
    torch.func.vmap(lambda row: row.sin() * 2)(x)
    torch.func.grad(lambda rows: (rows**2).sum())(x)
    torch.func.functionalize(lambda rows: rows.clone().add_(1))(x)


def fake_tensors() -> None:
    with FakeTensorMode():
        torch.ones(3) + 1
    torch.ones(3) + 1


def default_device() -> None:
    with torch.device("cpu"):  # a function mode
        torch.ones(3) + torch.zeros(3)


class Plain(torch.Tensor):
    """A subclass without a dispatch of its own."""


class Wrapper(torch.Tensor):
    """A subclass that is made of another tensor."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapper:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)  # type: ignore[attr-defined]
        made.inner = inner
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inner = [value.inner if isinstance(value, Wrapper) else value for value in args]
        return Wrapper(func(*inner, **(kwargs or {})))


def subclasses() -> None:
    x = torch.ones(3).as_subclass(Plain)  # type: ignore[no-untyped-call]
    (x + 1).mul_(2)
    Wrapper(torch.ones(3)) * 2


def released_memory() -> None:
    x = torch.ones(64)
    x.untyped_storage().resize_(0)
    x.detach()
    x.untyped_storage().resize_(256)
    x.fill_(1)


def large() -> None:
    x = torch.randn(300, 400)
    (x @ x.t()).relu_().t() + 1


def digest_operators(make: Callable[[], OperatorDigests], program: Callable[[], None]) -> list[ExecutedOperator]:
    torch.manual_seed(0)
    with make() as digests:
        program()
    assert set(digests.lanes) <= {0}
    return digests.lanes.get(0, [])


PROGRAMS = (
    mlp, mlp_foreach, mlp_fused, mlp_amp, lstm, cnn, channels_last, transformer, sparse_embedding, views_and_writes,
    many_tensors_at_once, complex_numbers, other_layouts, draws, transforms, fake_tensors, default_device, subclasses,
    released_memory, large,
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*nested tensors.*|.*quantiz.*|.*resized.*|enable_nested_tensor.*")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("for_other_process", [False, True])
def test_both_ways_digest_the_same(program: Callable[[], None], for_other_process: bool) -> None:
    slow = digest_operators(lambda: OperatorDigests(is_for_other_process=for_other_process), program)
    for _ in range(2):  # first without records of operators, then with them
        quick = digest_operators(lambda: make_operator_digests(is_for_other_process=for_other_process), program)
        for one, other in zip(slow, quick, strict=True):
            assert one == other
            assert list(map(type, one)) == list(map(type, other)) and type(other) is ExecutedOperator


@pytest.mark.parametrize("program", [mlp, mlp_foreach, lstm, views_and_writes], ids=lambda program: program.__name__)
def test_usual_operators_take_the_quick_way(program: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    in_python: list[str] = []
    digest_operators(make_operator_digests, program)
    original = OperatorDigests._record_results

    def count(self: OperatorDigests, operator: Any, *args: Any) -> None:
        in_python.append(operator.name)
        original(self, operator, *args)

    monkeypatch.setattr(OperatorDigests, "_record_results", count)
    assert digest_operators(make_operator_digests, program)
    assert {name.split(".")[1] for name in in_python} <= {
        "empty",
        "randn",
        "uniform_",
        "arange",
    }  # memory, draws, a number first


def test_an_error_of_an_operator_is_the_program_s() -> None:
    with make_operator_digests() as digests, pytest.raises(RuntimeError, match="must match"):
        torch.ones(3) + torch.ones(4)
    assert [operator.name for operator in digests.lanes[0]] == ["aten.ones.default"] * 2


def test_after_a_difference_the_slow_way_finds_lines_and_inputs() -> None:
    assert type(make_operator_digests(digests_inputs=True)) is OperatorDigests
    assert type(make_operator_digests()) is not OperatorDigests
