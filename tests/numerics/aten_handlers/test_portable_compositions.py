"""Operators of the table that are compositions: their slow references, and the same bits under other settings.

(That they compute the right thing is looked at in test_portable_operators.py, with the cases of portable_cases.py.)
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from portable_cases import BAGS, CASES, GRID, INDICES, run, whole
from portable_values import assert_same_bits, values
from repository_paths import SUPPORT
from torch import Tensor

import samerun
from samerun.numerics.aten_handlers import linear_algebra, reductions
from samerun.numerics.kernels import functions, library, sums

INF = float("inf")
aten = torch.ops.aten


# --- the same bits ---------------------------------------------------------------------------------------------
def printed(threads: int, **variables: str) -> str:
    command = [sys.executable, str(SUPPORT / "portable_cases.py"), str(threads)]
    return subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, check=True
    ).stdout  # fmt: skip


@pytest.mark.exhaustive
def test_threads_instructions_and_levels_change_no_bit() -> None:
    found = printed(1)
    assert len(found.splitlines()) > len(CASES)
    plain = {"SAMERUN_NUMERICS_LEVEL": "plain"} if library.is_available() else {}
    other = printed(2, ATEN_CPU_CAPABILITY="default", MKL_CBWR="COMPATIBLE", **plain)
    assert found.splitlines() == other.splitlines()


@pytest.mark.exhaustive
def test_the_slow_reference_computes_the_same_bits() -> None:
    assert printed(1).splitlines() == printed(1, SAMERUN_NUMERICS_LEVEL="reference").splitlines()


@pytest.mark.parametrize(("name", "function", "inputs"), CASES, ids=[case[0] for case in CASES])
def test_strides_change_no_bit(name: str, function: Callable[..., Any], inputs: list[Any]) -> None:
    def spread(x: Tensor) -> Tensor:
        wide = x.new_zeros(*x.shape[:-1], 2 * x.shape[-1]) if x.dim() else x
        wide[..., ::2] = x
        return wide[..., ::2].transpose(0, -1).contiguous().transpose(0, -1)

    def odd(*given: Tensor) -> Any:
        return function(*(spread(x) for x in given))

    with samerun.portable():
        for mine, want in zip(run(odd, inputs, torch.float32), run(function, inputs, torch.float32), strict=True):
            assert_same_bits(mine, want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_storage_types_are_widened_and_rounded_once(dtype: torch.dtype) -> None:
    image, grid, table = (each.to(dtype) for each in (values(2, 3, 5, 6), GRID, values(4, 3)))
    for function, inputs in (
        (lambda x, g: F.grid_sample(x, g, align_corners=False), (image, grid)),
        (lambda t: F.embedding_bag(INDICES, t, BAGS, mode="mean"), (table,)),
        (lambda x: F.interpolate(x, (3, 9), mode="bicubic", antialias=True), (image,)),
        (lambda x: F.interpolate(x, (3, 9), mode="bicubic"), (image,)),
        (lambda x: aten._cdist_forward(x, x, 1.0, None), (table,)),
        (lambda x: F.multi_margin_loss(x, torch.tensor([0, 1, 2, 0]), 2), (table,)),
        (lambda x: x.logcumsumexp(0), (table,)),
        (lambda x: F.softshrink(x, 0.3), (table,)),
        (lambda x: aten._weight_norm_interface(x, x[:, :1], 0)[0], (table,)),
        (torch.sinc, (table,)),
    ):
        with samerun.portable():
            narrow, wide = function(*inputs), function(*(each.float() for each in inputs))
        assert narrow.dtype is dtype
        assert torch.equal(narrow, wide.to(dtype))


# --- slow references -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("padding", [None, 1])
def test_embedding_bags_one_after_the_other(padding: int | None) -> None:
    table, words, starts = values(6, 5), whole(300, high=6), torch.tensor([0, 3, 3, 40, 41, 290])
    ends = [*starts[1:].tolist(), 300]
    kept = [[w for w in words[a:b].tolist() if w != padding] for a, b in zip(starts.tolist(), ends, strict=True)]
    g = values(6, 5, seed=2)
    for mode in ("sum", "mean", "max"):
        given = table.clone().requires_grad_()
        with samerun.portable():
            y = F.embedding_bag(words, given, starts, mode=mode, padding_idx=padding)
            y.backward(g)
        for bag, rows in enumerate(kept):
            want = torch.zeros(5)
            if rows:
                want = table[rows].amax(0) if mode == "max" else sums.sum(table[rows], 0)
                want = want / len(rows) if mode == "mean" else want
            assert_same_bits(y.detach()[bag], want, (mode, bag))
        assert given.grad is not None
        if mode != "max":
            for row in range(6):
                terms = [g[bag] / len(rows) if mode == "mean" else g[bag] for bag, rows in enumerate(kept)
                         for word in rows if word == row]  # fmt: skip
                want = sums.sum(torch.stack(terms), 0) if terms else torch.zeros(5)
                assert_same_bits(given.grad[row], want, (mode, row))


def test_embedding_bags_by_frequency() -> None:
    """As the gradient of an embedding. (torch's own on the CPU divides by the number of other words.)"""
    tables = [values(4, 3).double().requires_grad_(), values(4, 3).requires_grad_()]
    F.embedding(INDICES, tables[0], scale_grad_by_freq=True).sum().backward()
    with samerun.portable():
        F.embedding_bag(INDICES, tables[1], BAGS, mode="sum", scale_grad_by_freq=True).sum().backward()
    assert tables[0].grad is not None and tables[1].grad is not None
    torch.testing.assert_close(tables[1].grad.double(), tables[0].grad)


def test_the_last_offset_ends_the_last_bag() -> None:
    table, offsets = values(4, 3).requires_grad_(), torch.tensor([0, 2, 4])
    with samerun.portable():
        found = F.embedding_bag(INDICES, table, offsets, mode="sum", include_last_offset=True)
        assert_same_bits(found.detach()[1], table.detach()[INDICES[2]] + table.detach()[INDICES[3]])
        found.sum().backward()
    assert table.grad is not None
    assert table.grad.sum(1).tolist() == [3.0, 6.0, 0.0, 3.0]


def test_a_forward_pass_of_torchs_own_can_go_back() -> None:
    """Its results say less than ours."""
    table = values(4, 3).requires_grad_()
    weights = values(9, seed=1).requires_grad_()
    found = F.embedding_bag(INDICES, table, BAGS, mode="sum", per_sample_weights=weights)
    with samerun.portable():
        mine = torch.autograd.grad(found.sum(), [table, weights])
    theirs = torch.autograd.grad(
        F.embedding_bag(INDICES, table, BAGS, mode="sum", per_sample_weights=weights).sum(), [table, weights]
    )  # fmt: skip
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other)


def _bilinear(x: np.ndarray, u: np.float32, v: np.float32) -> tuple[np.float32, list[tuple[int, int, np.float32]]]:
    """One value of an image [h, w] at (u, v), zeros outside, and the weights of its neighbours."""
    one, half = np.float32(1), np.float32(0.5)
    h, w = (np.float32(size) for size in x.shape)
    column, row = ((u + one) * w - one) * half, ((v + one) * h - one) * half
    left, top = np.floor(column), np.floor(row)
    right_share, bottom_share = column - left, row - top
    total, parts = np.float32(0), []
    for i, (at, vertical) in enumerate(((top, one - bottom_share), (top + one, bottom_share))):
        for j, (to, across) in enumerate(((left, one - right_share), (left + one, right_share))):
            inside = 0 <= at < h and 0 <= to < w
            weight = vertical * across
            term = (x[int(at), int(to)] if inside else np.float32(0)) * weight
            total = term if (i, j) == (0, 0) else total + term
            parts.append((int(at), int(to), weight) if inside else (-1, -1, weight))
    return total, parts


def test_a_grid_sampled_value_after_value() -> None:
    x, grid, g = values(1, 1, 4, 5), values(1, 6, 7, 2), values(1, 1, 6, 7, seed=3)
    given = x.clone().requires_grad_()
    with samerun.portable():
        found = F.grid_sample(given, grid, align_corners=False)
        found.backward(g)
    image, places = x[0, 0].numpy(), grid.reshape(-1, 2).numpy()
    want = [_bilinear(image, u, v) for u, v in places]
    assert_same_bits(found.detach().reshape(-1), torch.tensor(np.array([value for value, _ in want])))
    gradient = np.zeros((4, 5), np.float32)
    for corner in range(4):
        for share, (_, parts) in zip(g.reshape(-1).numpy(), want, strict=True):
            row, column, weight = parts[corner]
            if row >= 0:
                gradient[row, column] += share * weight
    assert given.grad is not None
    assert_same_bits(given.grad[0, 0], torch.from_numpy(gradient))


@pytest.mark.parametrize(("size", "out"), [(11, 4), (4, 11), (7, 7), (9, 1), (30, 13)])
def test_smooth_resizing_value_after_value(size: int, out: int) -> None:
    x, step = values(size), size / out
    wide = max(step, 1.0)
    with samerun.portable():
        found = F.interpolate(x.reshape(1, 1, 1, size), (1, out), mode="bilinear", antialias=True).reshape(-1)
    for i in range(out):
        center = step * (i + 0.5)
        low, high = max(math.floor(center - wide + 0.5), 0), min(math.floor(center + wide + 0.5), size)
        shares = [max(1 - abs(j - center + 0.5) / wide, 0.0) for j in range(low, high)]
        whole_share = sum(shares)
        total: np.float32 | None = None
        for j, share in zip(range(low, high), shares, strict=True):
            term = x[j].numpy()[()] * np.float32(share / whole_share)
            total = term if total is None else total + term
        assert float(found[i]) == float(total)  # type: ignore[arg-type]


def _log_sum(terms: list[Tensor]) -> Tensor:
    m = max(terms, key=float)
    m = torch.zeros(()) if float(m) == -INF else m
    total = functions.exp(terms[0] - m)
    for term in terms[1:]:
        total = total + functions.exp(term - m)
    return functions.log(total) + m


def test_ctc_state_after_state() -> None:
    x, label = values(6, 1, 4).log_softmax(-1), [2, 2, 1]
    states = [0, 2, 0, 2, 0, 1, 0]
    nothing = torch.tensor(-INF)
    alpha = [x[0, 0, c] if s < 2 else nothing for s, c in enumerate(states)]
    for t in range(1, 6):
        before, alpha = alpha, []
        for s, c in enumerate(states):
            skips = s > 1 and c != states[s - 2]
            terms = [before[s], before[s - 1] if s else nothing, before[s - 2] if skips else nothing]
            alpha.append(_log_sum(terms) + x[t, 0, c])
    with samerun.portable():
        found = F.ctc_loss(x, torch.tensor([label]), [6], [3], reduction="none")
    assert_same_bits(found[0], -_log_sum([alpha[6], alpha[5]]))


@pytest.mark.parametrize("n", [1, 2, 31, 64, 100])
def test_running_sums_in_logarithms_by_doubling(n: int) -> None:
    x = values(n, special=True)
    with samerun.portable():
        found = x.logcumsumexp(0)
        want, d = list(x.unbind(0)), 1
        while d < n:
            want = [torch.logaddexp(want[i - d], want[i]) if i >= d else want[i] for i in range(n)]
            d *= 2
    assert_same_bits(found, torch.stack(want))


def test_parts_that_fit_into_memory_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, w = values(9, 4), values(7, 4, seed=1), values(5, 4, 4)
    with samerun.portable():
        found = [run(torch.cdist, [a, b], torch.float32), run(F.bilinear, [a, a, w], torch.float32)]
        monkeypatch.setattr(linear_algebra, "CHUNK_VALUES", 60)
        monkeypatch.setattr(reductions, "CHUNK_VALUES", 60)
        parts = [run(torch.cdist, [a, b], torch.float32), run(F.bilinear, [a, a, w], torch.float32)]
    for mine, want in zip([*parts[0], *parts[1]], [*found[0], *found[1]], strict=True):
        assert_same_bits(mine, want)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_a_row_does_not_depend_on_the_batch(n: int) -> None:
    image, grid, words, table = values(16, 3, 9, 8), values(16, 5, 5, 2), whole(16, 40, high=50), values(50, 7)
    spoken, target, sizes = values(20, 16, 6), whole(16, 5, high=5) + 1, [5, 3, 2, 1] * 4
    x, labels = values(16, 9), whole(16, 9, high=10) - 1
    functions_of_n: list[Callable[[int], Tensor]] = [
        lambda n: F.grid_sample(image[:n], grid[:n], align_corners=False),
        *(lambda n, mode=mode: F.embedding_bag(words[:n], table, mode=mode) for mode in ("sum", "mean", "max")),
        lambda n: F.ctc_loss(spoken[:, :n].log_softmax(-1), target[:n], [20] * n, sizes[:n], reduction="none"),
        lambda n: F.multilabel_margin_loss(x[:n], labels[:n], reduction="none"),
        lambda n: F.interpolate(image[:n], (4, 3), mode="bilinear", antialias=True),
        lambda n: F.bilinear(x[:n], x[:n], values(2, 9, 9)),
    ]
    with samerun.portable():
        for function in functions_of_n:
            assert_same_bits(function(16)[:n], function(n))
        assert_same_bits(F.embedding_bag(words, table, mode="sum"), F.embedding(words, table).sum(1))


def test_results_can_be_written_into_given_tensors() -> None:
    x, out, places = values(5, 9), torch.empty(0), torch.empty(0, dtype=torch.int64)
    with samerun.portable():
        for name, given in (("median", (1,)), ("nanmedian", (1,)), ("kthvalue", (2, 1)), ("mode", (1,))):
            found = getattr(torch, name)(x, *given, out=(out, places))
            assert found[0] is out and found[1] is places
            for mine, want in zip(found, getattr(torch, name)(x, *given), strict=True):
                assert_same_bits(mine, want)
        assert_same_bits(torch.logcumsumexp(x, 1, out=out), x.logcumsumexp(1))
        assert_same_bits(torch.logspace(0, 1, 5, out=out), torch.logspace(torch.tensor(0.0), 1, 5))
        assert_same_bits(x.clone().sinc_(), torch.sinc(x))
        assert_same_bits(aten.hann_window.out(6, out=out), torch.hann_window(6))


def test_a_distance_does_not_depend_on_the_other_rows() -> None:
    """torch's own takes another way from 26 rows on."""
    a, b = values(40, 20), values(30, 20, seed=1)
    with samerun.portable():
        assert_same_bits(torch.cdist(a, b)[:3, :4], torch.cdist(a[:3], b[:4]))
        assert float(torch.cdist(a, a).diagonal().abs().max()) == 0


def test_modules_train() -> None:
    torch.manual_seed(0)
    net = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(6, 4))
    bags = torch.nn.EmbeddingBag(9, 6, mode="mean", padding_idx=0)
    optimizer = torch.optim.SGD([*net.parameters(), *bags.parameters()], 0.1)
    words, wanted = whole(8, 5, high=9), whole(8, high=4)
    losses = []
    with samerun.portable():
        for _ in range(20):
            loss = F.cross_entropy(net(bags(words)), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * losses[0]


def test_float64_where_every_step_has_it() -> None:
    names = ("weight_norm", "embedding_bag", "grid_sample bilinear", "bicubic", "max_unpool", "cdist 1.0", "cdist 2")
    for name, function, inputs in CASES:
        if name.startswith(names):
            with samerun.portable():
                found = run(function, inputs, torch.float64)
            for mine, want in zip(found, run(function, inputs, torch.float64), strict=True):
                torch.testing.assert_close(mine, want, rtol=1e-9, atol=1e-9)
