"""`samerun.batch_invariant()`: what depends on the batch is named with operator, line and module; clean models pass."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from typing import Any

import batch_dependent_models as models
import pytest
import torch
from torch import Tensor, nn

import samerun
from samerun.record.watching.batch_invariance.sample_parts import find_batch_dims, have_same_bits_or_both_nan

SIZES = (1, 2, 3, 8, 16, 17, 63, 64, 65, 255, 256, 257)


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


def tokens(*shape: int) -> Tensor:
    return torch.randint(1, 50, shape, generator=torch.Generator().manual_seed(5))


def make(kind: Any, *args: Any) -> Any:
    torch.manual_seed(0)
    return kind(*args)


def line_of(model: nn.Module) -> int:
    lines, first = inspect.getsourcelines(type(model))
    return first + next(at for at, line in enumerate(lines) if line.rstrip().endswith("# here"))


MASKED = {"ids": tokens(4, 9), "attention_mask": torch.ones(4, 9, dtype=torch.int64)}
REPLICAS: list[tuple[Any, Any, str, str, set[str]]] = [
    (models.PerTensorScale, randn(4, 32) * torch.arange(1.0, 5)[:, None], "amax", "other rows", {"size", "contents"}),
    (models.BlockSizeByRows, randn(4, 256), "mm", "another way", {"size"}),
    (models.FastPathForOneRow, randn(4, 256), "mm", "another way", {"size"}),
    (models.SplitKBySize, randn(4, 1024), "mm", "another way", {"size"}),
    (models.LeakingMask, MASKED, "_softmax", "padding", {"padding"}),
    (models.ExpertCapacity, randn(4, 16), "cumsum", "other rows", {"contents"}),
    (models.ForgottenEval, randn(4, 16), "native_batch_norm", "other rows", {"size", "contents"}),
    (models.LowerPrecisionForManyRows, randn(4, 256), "mm", "another way", {"size"}),
]


@pytest.mark.parametrize(
    ("kind", "inputs", "operator", "why", "shows_under"), REPLICAS, ids=[each[0].__name__ for each in REPLICAS]
)
def test_replicas_of_public_bugs(kind: Any, inputs: Any, operator: str, why: str, shows_under: set[str]) -> None:
    model = make(kind)
    with samerun.portable():
        found = samerun.batch_invariant(model, inputs, sizes=SIZES)
    first = found.dependences[0]
    assert not found and not found.invariant
    assert first.operator.split(".")[1] == operator and first.line == line_of(model), str(found)
    assert first.file.endswith("batch_dependent_models.py")
    assert (first.kind, first.confirmed) == (why, True) and shows_under <= set(first.shows_under), str(found)
    expected = "layers.1" if kind is models.ForgottenEval else kind.__name__
    assert first.module == expected
    assert {one.name for one in found.experiments if one.outcome == "different"} == set(first.shows_under)


CLEAN: list[tuple[str, Any, Any]] = [
    ("mlp", lambda: nn.Sequential(nn.Linear(70, 40), nn.GELU(), nn.LayerNorm(40), nn.Linear(40, 5)), randn(5, 70)),
    ("cnn", lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
                                  ).eval(), randn(3, 2, 6, 6)),
    ("language model", models.SmallLanguageModel, {"ids": tokens(4, 7), "attention_mask": torch.ones(4, 7)}),
    ("bfloat16", lambda: models.SmallLanguageModel().bfloat16(), tokens(3, 7)),
    ("encoder", lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 24, batch_first=True), 2).eval(),
     {"src": randn(3, 5, 16), "src_key_padding_mask": torch.zeros(3, 5, dtype=torch.bool)}),
    ("lstm", lambda: nn.LSTM(6, 5, batch_first=True), randn(3, 4, 6)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "inputs"), CLEAN, ids=[name for name, *_ in CLEAN])
def test_clean_models_pass_inside_portable(name: str, kind: Any, inputs: Any) -> None:
    model = make(kind)
    with samerun.portable():
        found = samerun.batch_invariant(model, inputs, sizes=(1, 2, 3, 17, 65))
    assert found and not found.dependences, str(found)
    assert str(found).startswith("SAME")
    assert ("padding", "same") in {(one.name, one.outcome) for one in found.experiments} or not isinstance(inputs, dict)


def test_a_row_that_depends_on_its_place() -> None:
    with samerun.portable():
        found = samerun.batch_invariant(lambda x: x + torch.arange(len(x))[:, None], randn(4, 6), sizes=(1, 2, 8))
    assert [(one.operator, one.shows_under) for one in found.dependences] == [("aten.arange.default", ("position",))]


@pytest.mark.exhaustive
def test_a_clean_model_passes_up_to_512_rows() -> None:
    model = make(models.SmallLanguageModel)
    with samerun.portable():
        assert samerun.batch_invariant(model, tokens(4, 7))


def test_tokens_that_are_generated() -> None:
    model = make(models.SmallLanguageModel)
    with samerun.portable():
        assert samerun.batch_invariant(model.generate, {"ids": tokens(3, 5), "tokens": 3}, sizes=(1, 2, 9))

    class Sampled(models.SmallLanguageModel):
        def generate(self, ids: Tensor, tokens: int = 3) -> Tensor:
            for _ in range(tokens):
                ids = torch.cat([ids, self(ids)[:, -1].softmax(-1).multinomial(1)], 1)
            return ids

    with samerun.portable():
        found = samerun.batch_invariant(make(Sampled).generate, tokens(3, 5), sizes=(1, 2, 9))
    assert not found and {one.kind for one in found.dependences} == {"random numbers"}, str(found)


def test_rounding_of_torchs_own_products_is_named_as_such() -> None:
    """torch has another kernel for one row than for several; where it gives the same bits, nothing is to be found."""
    weight, x = randn(200, 300), randn(4, 300)
    model = make(nn.Linear, 300, 200)
    with torch.no_grad():
        model.weight.copy_(weight)
        differs = not have_same_bits_or_both_nan(model(x)[:1], model(x[:1]))
    found = samerun.batch_invariant(model, x, sizes=(1, 4))
    assert found.invariant is not differs
    if differs:
        (one,) = found.dependences
        assert (one.operator, one.kind, one.confirmed) == ("aten.addmm.default", "rounding", True)
        assert one.largest_difference is not None and one.largest_difference < 1e-4


def test_an_operator_that_computes_less_exactly_for_many_rows() -> None:
    def kernel(x: Tensor) -> Tensor:
        return (x.bfloat16() if x.shape[0] > 8 and x.dtype is torch.float32 else x).square().to(x.dtype)

    library = torch.library.Library("samerun_batch_test", "FRAGMENT")
    library.define("squares(Tensor x) -> Tensor")
    library.impl("squares", kernel, "CPU")
    found = samerun.batch_invariant(lambda x: torch.ops.samerun_batch_test.squares(x), randn(4, 6), sizes=(1, 4, 9))
    (one,) = found.dependences
    assert (one.operator, one.kind) == ("samerun_batch_test.squares.default", "lower precision"), str(found)


def test_what_no_result_depends_on_is_left_out() -> None:
    seen = []

    def model(x: Tensor) -> Tensor:
        seen.append(x.mean())  # for a log
        return x / x.abs().amax()

    with samerun.portable():
        found = samerun.batch_invariant(model, randn(4, 6), sizes=(1, 4))
    assert [one.operator for one in found.dependences] == ["aten.amax.default"], str(found)


def test_two_operators_behind_each_other_are_both_found() -> None:
    def model(x: Tensor) -> Tensor:
        x = x / x.abs().amax()
        return x - x.mean(0)

    with samerun.portable():
        found = samerun.batch_invariant(model, randn(4, 6), sizes=(1, 4))
    assert [one.operator.split(".")[1] for one in found.dependences] == ["amax", "mean"]
    assert all(one.confirmed for one in found.dependences)


def test_the_model_and_the_random_states_stay_as_they_were() -> None:
    model, x = make(models.ForgottenEval), randn(4, 16)
    before, kept = {name: value.clone() for name, value in model.state_dict().items()}, x.clone()
    state = torch.get_rng_state()
    samerun.batch_invariant(model, x, sizes=(2, 3))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state) and torch.equal(x, kept)


def test_the_report_as_json() -> None:
    with samerun.portable():
        found = samerun.batch_invariant(make(models.PerTensorScale), randn(4, 32), sizes=(1, 2))
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (record["schema"], record["verdict"]) == (1, "different")
    assert record["dependences"][0]["kind"] == "other rows"
    assert "amax" in str(found) and "other rows count in its result" in str(found)


def test_what_cannot_be_examined_says_why() -> None:
    calls = []

    def keeps(x: Tensor) -> Tensor:
        calls.append(1)
        return x * len(calls)

    for model, inputs, sizes, said in (
        (lambda x: x.sum(), randn(4, 3), (1, 2), "no result of the model has a row"),
        (keeps, randn(4, 3), (1, 2), "another result"),
        (nn.Identity(), "text", (1, 2), "no tensor with rows"),
        (nn.Identity(), randn(4, 3), (0,), "whole numbers from 1"),
        (nn.Identity(), randn(4, 3), (), "whole numbers from 1"),
    ):
        with pytest.raises(samerun.SamerunError, match=said):
            samerun.batch_invariant(model, inputs, sizes=sizes)
    with pytest.raises(ZeroDivisionError):
        samerun.batch_invariant(lambda x: x * (1 // 0), randn(2, 3), sizes=(1,))


def test_dimensions_of_the_batch() -> None:
    (dim,) = find_batch_dims((6, 4), (10, 4), 3, 5) or ()
    assert (dim.dim, dim.factor) == (0, 2)
    assert find_batch_dims((6, 4), (6, 4), 3, 5) == ()
    for other in ((7, 4), (6,), (10, 5)):
        assert find_batch_dims((6, 4), other, 3, 5) is None
    assert have_same_bits_or_both_nan(torch.tensor([float("nan"), 1.0]), torch.tensor([-float("nan"), 1.0]))
    assert not have_same_bits_or_both_nan(torch.tensor(0.0), torch.tensor(-0.0))


def test_the_name_imports_torch_only_when_it_is_used() -> None:
    program = "import sys, samerun; samerun.batch_invariant; print({'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
