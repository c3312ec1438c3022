"""torch.func inside portable(): vmap, jvp and what is made of them give torch's results, with torch's own errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils._pytree import tree_leaves

import samerun

# torch imports rules for forward derivatives that it makes of a script
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
draws = torch.Generator().manual_seed(0)


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=draws)


X, T, W, SERIES, IMAGES, MATRICES = (
    randn(5, 4),
    randn(5, 4),
    randn(4, 3),
    randn(3, 2, 5, 4),
    randn(3, 2, 6),
    randn(3, 4, 4),
)
CLASSES = torch.tensor([0, 1, 2, 3, 0])
linear, norm, conv = nn.Linear(4, 3), nn.BatchNorm1d(4).eval(), nn.Conv1d(2, 3, 2)
attention, table = nn.MultiheadAttention(4, 2, batch_first=True).eval(), nn.Embedding(7, 3)
WEIGHTS = dict(linear.named_parameters())


def squares(weights: dict[str, Tensor], row: Tensor) -> Tensor:
    return functional_call(linear, weights, (row,)).square().sum()


def hidden(row: Tensor) -> Tensor:
    return (row @ W).tanh()


MAPPED: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "mul": (lambda a: a * 2, (X,)), "exp": (torch.exp, (X,)), "sum": (torch.sum, (X,)), "mm": (hidden, (X,)),
    "dot": (torch.dot, (X, T)), "softmax": (lambda a: a.softmax(-1), (X,)), "linear": (linear, (X,)),
    "layer_norm": (lambda a: F.layer_norm(a, (4,)), (X,)), "rms_norm": (lambda a: F.rms_norm(a, (4,)), (X,)),
    "batch_norm": (lambda a: norm(a[None])[0], (X,)), "conv": (conv, (IMAGES,)), "gelu": (F.gelu, (X,)),
    "embedding": (table, (torch.arange(6).view(2, 3),)), "index": (lambda a, i: a[i], (X, CLASSES)),
    "where": (lambda a: torch.where(a > 0, a, 0), (X,)), "sort": (lambda a: a.sort()[0], (X,)),
    "topk": (lambda a: a.topk(2)[0], (X,)), "cumsum": (lambda a: a.cumsum(0), (X,)), "var": (torch.var, (X,)),
    "norm": (torch.linalg.vector_norm, (X,)), "inv": (torch.linalg.inv, (MATRICES,)),
    "det": (torch.linalg.det, (MATRICES,)), "pool": (lambda a: F.max_pool1d(a, 2), (IMAGES,)),
    "attention": (lambda a: F.scaled_dot_product_attention(a, a, a), (SERIES,)),
    "heads": (lambda a: attention(a, a, a)[0], (SERIES,)), "in place": (lambda a: a.clone().add_(1), (X,)),
    "einsum": (lambda a: torch.einsum("i,ij->j", a, W), (X,)),
    "cross_entropy": (F.cross_entropy, (randn(3, 5, 4), CLASSES.expand(3, 5))),
    "gradient": (grad(lambda a: hidden(a).sum()), (X,)),
}  # fmt: skip
FORWARD: dict[str, tuple[Callable[..., Any], Tensor]] = {
    "tanh": (hidden, X), "exp": (torch.exp, X), "softmax": (lambda a: a.softmax(-1), X), "gelu": (F.gelu, X),
    "layer_norm": (lambda a: F.layer_norm(a, (4,)), X), "rms_norm": (lambda a: F.rms_norm(a, (4,)), X),
    "conv": (conv, IMAGES), "attention": (lambda a: F.scaled_dot_product_attention(a, a, a), SERIES[0]),
    "cross_entropy": (lambda a: F.cross_entropy(a, CLASSES), X), "var": (torch.var, X), "batch_norm": (norm, X),
}  # fmt: skip
OTHERS: dict[str, Callable[[], Any]] = {
    "per sample": lambda: vmap(grad(squares), in_dims=(None, 0))(WEIGHTS, X),
    "grad": lambda: grad(lambda a: hidden(a).sum())(X),
    "grad of rms_norm": lambda: grad(lambda a: F.rms_norm(a, (4,)).square().sum())(X),
    "jacfwd": lambda: jacfwd(hidden)(X[0]),
    "jacrev": lambda: jacrev(hidden)(X[0]),
    "hessian": lambda: hessian(lambda a: hidden(a).sum())(X[0]),
    "vjp": lambda: vjp(hidden, X)[1](torch.ones(5, 3)),
    "functional": lambda: torch.autograd.functional.jvp(hidden, X, T),
    "vectorized": lambda: torch.autograd.functional.jacobian(hidden, X[0], vectorize=True),
}


def require_same(run: Callable[[], Any]) -> None:
    theirs = tree_leaves(run())
    with samerun.portable():
        ours = tree_leaves(run())
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MAPPED)
def test_vmap(name: str) -> None:
    function, arguments = MAPPED[name]
    require_same(lambda: vmap(function)(*arguments))


@pytest.mark.parametrize("name", FORWARD)
def test_jvp(name: str) -> None:
    function, x = FORWARD[name]
    require_same(lambda: jvp(function, (x,), (torch.cos(x),)))


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_made_of_them(name: str) -> None:
    require_same(OTHERS[name])


def test_what_torch_refuses_is_torchs_error() -> None:
    lstm = nn.LSTM(4, 3, batch_first=True)
    with samerun.portable(), pytest.raises(RuntimeError, match="Batching rule not implemented"):
        vmap(lambda a: lstm(a)[0])(SERIES)
    with samerun.portable(), pytest.raises(samerun.NotPortableError, match="linalg_eig"):
        vmap(torch.linalg.eigvals)(MATRICES)


def test_draws_of_mapped_rows() -> None:
    with samerun.portable():
        torch.manual_seed(0)
        found = vmap(lambda a: a * 0 + torch.rand(()), randomness="different")(X)
        assert len(found[:, 0].unique()) == len(X)
        assert len(vmap(lambda a: a * 0 + torch.rand(()), randomness="same")(X)[:, 0].unique()) == 1
