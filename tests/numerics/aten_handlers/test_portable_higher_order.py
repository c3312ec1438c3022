"""Operators that take functions, inside portable(): their code runs operator by operator, or they are refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops import associative_scan, cond, map, scan, while_loop
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import samerun

pytestmark = pytest.mark.filterwarnings(
    "ignore:flex_attention called without", "ignore:portable.*no effect inside", "ignore:.*torch.jit"
)
draws = torch.Generator().manual_seed(0)
X = torch.randn(6, 4, generator=draws)
SLOPES = torch.randn(4, generator=draws)
DOCUMENT = torch.arange(40) // 10


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    block_mask = create_block_mask(
        lambda b, h, i, j: (DOCUMENT[i] == DOCUMENT[j]) & (i >= j), None, None, 40, 40, device="cpu"
    )
    found = flex_attention(
        query, key, value, lambda score, b, h, i, j: torch.tanh(score / 20) * 20 + SLOPES[h] * (i - j), block_mask,
        enable_gqa=True,
    )  # fmt: skip
    assert isinstance(found, Tensor)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_flex_attention_is_its_formula_in_portable_operators(dtype: torch.dtype) -> None:
    query, key, value = (torch.randn(2, heads, 40, 16, generator=draws).to(dtype) for heads in (4, 2, 2))
    with samerun.portable():
        found = attend(query, key, value)
        wide = torch.float64 if dtype is torch.float64 else torch.float32
        keys, values = (each.repeat_interleave(2, 1) for each in (key, value))
        score = (query.to(wide) @ keys.to(wide).transpose(-2, -1)) * 0.25
        apart = torch.arange(40)[:, None] - torch.arange(40)
        score = torch.tanh(score / 20) * 20 + SLOPES[:, None, None] * apart
        score = score.masked_fill((DOCUMENT[:, None] != DOCUMENT) | (apart < 0), -torch.inf)
        assert torch.equal(found, score.softmax(-1).to(dtype) @ values)
    torch.testing.assert_close(found, attend(query, key, value))


def test_control_flow_computes_with_portable_operators() -> None:
    with samerun.portable():
        assert torch.equal(cond(X.sum() > 0, torch.sin, torch.cos, (X,)), X.sin() if X.sum() > 0 else X.cos())
        _, found = while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y.exp() / 9), (torch.tensor(0), X))
        assert torch.equal(found, ((X.exp() / 9).exp() / 9).exp() / 9)
        _, found = scan(lambda carry, y: ((carry + y).tanh(), carry * y), torch.zeros(4), X)
        assert torch.equal(found[1], X[0].tanh() * X[1])
        found = associative_scan(torch.add, X, 0, combine_mode="generic")
        torch.testing.assert_close(found, X.cumsum(0))


def test_those_that_run_as_a_whole_are_refused() -> None:
    with samerun.portable(), pytest.raises(samerun.NotPortableError, match="map_impl has no portable kernel"):
        map(torch.exp, X)
