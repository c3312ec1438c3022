"""Arguments that do not fit: torch's own errors inside `portable()`, and never a kernel that reads wild memory."""

from __future__ import annotations

import signal
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import fuzz_portable
import portable_calls
import pytest
import torch
import torch.nn.functional as F

import samerun
from samerun.numerics.kernels import library

one = torch.ones
INTEGERS = torch.tensor
WRONG: list[tuple[str, Callable[[], Any]]] = [
    ("layer_norm weight", lambda: F.layer_norm(one(2, 512), (512,), one(3))),
    ("layer_norm shape", lambda: torch.nn.LayerNorm(768)(one(4, 512))),
    ("layer_norm large", lambda: F.layer_norm(one(2, 3), (10**6,))),
    ("rms_norm weight", lambda: F.rms_norm(one(2, 3), (3,), one(1))),
    ("group_norm weight", lambda: F.group_norm(one(2, 4, 3), 2, one(3))),
    ("batch_norm weight", lambda: F.batch_norm(one(3, 5), None, None, one(2), None, True)),
    ("batch_norm running", lambda: F.batch_norm(one(3, 5), one(2), one(5))),
    ("conv3d bias", lambda: F.conv3d(one(1, 2, 4, 4, 4), one(3, 2, 1, 1, 1), one(2))),
    ("conv3d dilation", lambda: F.conv3d(one(1, 2, 4, 4, 4), one(3, 2, 1, 1, 1), dilation=-1)),
    ("conv2d padding", lambda: F.conv2d(one(1, 2, 4, 4), one(3, 2, 1, 1), padding=-1)),
    ("conv2d stride", lambda: F.conv2d(one(1, 2, 4, 4), one(3, 2, 1, 1), stride=0)),
    ("conv2d types", lambda: F.conv2d(one(1, 2, 4, 4), one(3, 2, 1, 1).double())),
    ("conv_transpose output padding", lambda: F.conv_transpose2d(one(1, 2, 4, 4), one(2, 3, 2, 2), output_padding=4)),
    ("conv_transpose groups", lambda: F.conv_transpose1d(one(1, 3, 4), one(3, 2, 2), groups=2)),
    ("linear", lambda: F.linear(one(2, 3), one(4, 5))),
    ("linear bias", lambda: F.linear(one(2, 3), one(4, 3), one(3))),
    ("addmm", lambda: torch.addmm(one(7), one(2, 3), one(3, 4))),
    ("bmm", lambda: torch.bmm(one(2, 3, 4), one(3, 4, 5))),
    ("matmul out", lambda: torch.mm(one(2, 3), one(3, 2), out=torch.zeros(2, 2, dtype=torch.int64))),
    ("attention mask", lambda: F.scaled_dot_product_attention(one(2, 5, 8), one(2, 6, 8), one(2, 6, 8), one(5, 7))),
    ("attention groups", lambda: F.scaled_dot_product_attention(
        one(2, 4, 5, 8), one(2, 3, 6, 8), one(2, 3, 6, 8), enable_gqa=True)),
    ("multinomial of zeros", lambda: torch.multinomial(torch.zeros(5), 2)),
    ("multinomial of a zero row", lambda: torch.multinomial(torch.eye(3) * INTEGERS([1, 0, 1]), 1, True)),
    ("bernoulli", lambda: torch.bernoulli(one(3) * 2)),
    ("nll target", lambda: F.nll_loss(one(2, 3), INTEGERS([0, 5]))),
    ("nll shape", lambda: F.nll_loss(one(2, 3, 4), INTEGERS([[0, 1, 2], [0, 1, 2]]))),
    ("embedding", lambda: F.embedding(INTEGERS([0, 7]), one(3, 2))),
    ("index_add", lambda: one(3, 2).index_add(0, INTEGERS([0, 4]), one(2, 2))),
    ("scatter_add", lambda: one(3, 2).scatter_add(0, INTEGERS([[0, 4]]), one(1, 2))),
    ("index_put", lambda: one(3).index_put((INTEGERS([9]),), one(1), accumulate=True)),
    ("gelu", lambda: F.gelu(one(3), approximate="x")),
    ("glu", lambda: F.glu(one(3))),
    ("exp of whole numbers in place", lambda: INTEGERS([1, 2]).exp_()),
    ("softmax of whole numbers", lambda: INTEGERS([1, 2]).softmax(0)),
    ("cross_entropy of whole numbers", lambda: F.cross_entropy(INTEGERS([[1, 2]]), one(1, 2))),
    ("grid of another type", lambda: F.grid_sample(one(1, 1, 3, 3), one(1, 2, 2, 2).bfloat16(), align_corners=True)),
    ("interpolation of whole numbers", lambda: F.interpolate(INTEGERS([[[1, 2]]]), 3, mode="linear")),
    ("whole normal numbers", lambda: torch.randn(3, dtype=torch.int64)),
    ("whole uniform numbers", lambda: torch.rand(3, dtype=torch.bool)),
    ("whole numbers in place", lambda: INTEGERS([1, 2]).uniform_()),
    ("whole exponential numbers", lambda: INTEGERS([1, 2]).exponential_()),
    ("whole means", lambda: torch.normal(INTEGERS([1, 2]), 1.0)),
    ("whole chances", lambda: torch.bernoulli(INTEGERS([1, 0]))),
    ("norm of whole numbers", lambda: torch.linalg.vector_norm(INTEGERS([1, 2]))),
    ("hardsigmoid of whole numbers", lambda: F.hardsigmoid(INTEGERS([1, 2]))),
    ("lerp of whole numbers", lambda: INTEGERS([1, 2]).lerp(INTEGERS([1, 2]), 0.5)),
    ("addcdiv of whole numbers", lambda: torch.addcdiv(INTEGERS([1]), INTEGERS([1]), INTEGERS([1]))),
]  # fmt: skip
TAKEN: list[tuple[str, Callable[[], Any]]] = [
    ("attention with one batch of keys", lambda: F.scaled_dot_product_attention(
        one(2, 4, 5, 8), one(1, 4, 6, 8), one(1, 1, 6, 8))),
    ("gradient of an index outside the table", lambda: torch.ops.aten.embedding_dense_backward(
        one(3, 2), INTEGERS([0, 5, -3]), 4, -1, False)),
    ("lengths of a weight norm in one line", lambda: torch._weight_norm(one(4, 3), one(4))),
    ("labels behind the end of a target", lambda: F.ctc_loss(
        torch.zeros(4, 1, 3), INTEGERS([[1, 2, 99]]), [4], [2])),
    ("a sort that is asked to be stable", lambda: torch.sort(one(3), stable=True)[0]),
    ("the largest of one number", lambda: torch.topk(torch.tensor(3.0), 1)[0]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "function"), WRONG, ids=[name for name, _ in WRONG])
def test_wrong_arguments_give_torchs_own_error(name: str, function: Callable[[], Any]) -> None:
    for _ in range(2):  # what was refused once is not remembered as accepted
        with pytest.raises(Exception) as theirs:
            function()
        with samerun.portable(), pytest.raises(type(theirs.value)) as ours:
            function()
        assert str(ours.value).splitlines()[0] == str(theirs.value).splitlines()[0]


@pytest.mark.parametrize(("name", "function"), TAKEN, ids=[name for name, _ in TAKEN])
def test_what_torch_takes_is_taken(name: str, function: Callable[[], Any]) -> None:
    with samerun.portable():
        ours = function()
    torch.testing.assert_close(ours, function())


def test_gradients_of_other_shapes_are_refused() -> None:
    """torch itself reads beyond them."""
    aten, x = torch.ops.aten, one(3, 5)
    for call in (
        lambda: torch.native_batch_norm(x, one(2), None, None, None, True, 0.1, 1e-5),
        lambda: aten.native_layer_norm_backward(x, x, [5], one(1), one(1), one(5), None, [True, True, True]),
        lambda: aten.gelu_backward(one(3, 4), x),
        lambda: aten._softmax_backward_data(one(3, 4), x, 1, torch.float32),
        lambda: aten.convolution_backward(one(1, 1, 9, 9), one(1, 1, 4, 4), one(1, 1, 3, 3), None, [1, 1], [0, 0],
                                          [1, 1], False, [0, 0], 1, [True, True, False]),
        lambda: aten._fused_sgd_([one(3, 4)], [one(3, 4)], [one(2)], weight_decay=0.0, momentum=0.9, lr=0.1,
                                 dampening=0.0, nesterov=False, maximize=False, is_first_step=False),
    ):  # fmt: skip
        with samerun.portable(), pytest.raises(RuntimeError):
            call()


def test_draws_stand_where_they_stood_after_an_error() -> None:
    with samerun.portable():
        torch.manual_seed(3)
        want = torch.rand(4)
        torch.manual_seed(3)
        with pytest.raises(RuntimeError):
            torch.multinomial(torch.zeros(5), 2)
        assert torch.equal(torch.rand(4), want)


def test_meta_tensors_stay_torchs() -> None:
    with samerun.portable():
        model = torch.nn.Sequential(torch.nn.Linear(3, 4, device="meta"), torch.nn.LayerNorm(4, device="meta"))
        assert model(torch.empty(2, 3, device="meta")).shape == (2, 4)
        with torch.device("meta"):
            drawn = [torch.randn(3), torch.randint(3, (4,)), torch.randperm(5), torch.randn_like(torch.ones(2))]
        assert all(tensor.is_meta for tensor in drawn)


@pytest.mark.exhaustive
@pytest.mark.skipif(not library.is_available(), reason="the C library is not there")
def test_a_sample_of_changed_calls() -> None:
    """`make fuzz-portable` runs many more, with kernels that stop at wild memory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = fuzz_portable.Cases(portable_calls.calls_of_cases(), 0)
        problems = fuzz_portable.search(cases, 600)
    kinds: Counter[str] = Counter(problem.split(":")[0] for _, problem, _ in problems)
    assert not kinds[fuzz_portable.DIED], problems
    assert not kinds[fuzz_portable.RAISED] and not kinds["other words"], problems


@pytest.mark.exhaustive
@pytest.mark.skipif(not library.is_available(), reason="the C library is not there")
@pytest.mark.parametrize("one_in", [12, 1])
def test_what_torch_lists_as_wrong_gives_torchs_error(one_in: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = portable_calls.wrong_samples()
        assert len(samples) > 500
        samples = samples[::one_in]
        problems = fuzz_portable.search(fuzz_portable.WrongSamples(samples), len(samples))
    assert not problems


class Preempted(Exception):
    pass


@pytest.mark.parametrize("error", [TimeoutError, Preempted])
def test_what_a_signals_handler_raises_reaches_the_program(error: type[Exception]) -> None:
    def handler(*_: object) -> None:
        raise error("no time left")

    x = torch.ones(512, 512)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with samerun.portable(), pytest.raises(error, match="no time left"):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            while True:
                x @ x
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
