"""torch's own operator samples, forward and backward: right or refused, in every type (tools/portable_operators.py)."""

from __future__ import annotations

import portable_operators
import pytest
import torch

import samerun

SAMPLED = {"float32": 20, "bfloat16": 60, "float16": 90, "float64": 40, "int64": 50, "bool": 70, "complex64": 60}
"""In `make test` every n-th operator, from a place that moves with the type; all of them in `make test-exhaustive`."""


def find_wrong_operators(dtype: str, start: int, step: int, samples: int) -> list[str]:
    operators = portable_operators.select_operators((), getattr(torch, dtype))[start::step]
    assert operators
    found = ((each, portable_operators.judge_operator(each, getattr(torch, dtype), samples)) for each in operators)
    return [
        f"{portable_operators.full_name(each)}: {verdict.kind}: {verdict.why}"
        for each, verdict in found
        if verdict.kind not in ("right", "refused")
    ]


@pytest.mark.exhaustive
def test_some_operators_are_right_or_refused() -> None:
    for number, (dtype, step) in enumerate(SAMPLED.items()):
        assert find_wrong_operators(dtype, number, step, 4) == [], dtype


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", portable_operators.DTYPES)
def test_every_operator_is_right_or_refused(dtype: str) -> None:
    assert find_wrong_operators(dtype, 0, 1, 12) == []


def test_a_wrong_result_is_found() -> None:
    ours, theirs = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0001])
    describe = portable_operators.describe_difference
    assert describe(ours, ours, ours.double()) == ""
    assert "1 of 2 values" in describe(ours, theirs, theirs.double())
    assert "instead of" in describe(ours.double(), ours, ours) and "instead of" in describe(ours[:1], ours, ours)
    assert "of 2 values" in describe(ours / 0, ours, ours.double())
    assert "integers differ" in describe(torch.tensor([1, 2]), torch.tensor([1, 3]), torch.tensor([1, 3]))


def test_an_operator_that_is_wrong_under_portable_is_found() -> None:
    class Operator:
        name, variant_test_name, supports_autograd = "doubled", "", True

        @staticmethod
        def op(x: torch.Tensor) -> torch.Tensor:
            inside = type(torch.zeros(())) is torch.Tensor and samerun_is_inside()
            return x * (2.0001 if inside else 2.0)

        @staticmethod
        def supported_backward_dtypes(device: str) -> set[torch.dtype]:
            return {torch.float32}

    from samerun.numerics.dispatch.portable import is_inside_portable as samerun_is_inside

    class Sample:
        input, args, kwargs, output_process_fn_grad = torch.ones(3, requires_grad=True), (), {}, None

        def transform(self, change: object) -> Sample:
            return self

    verdict = portable_operators.judge_sample(Operator, Sample(), torch.float32)
    assert verdict.kind == "other" and "result 0" in verdict.why


def test_the_error_of_torch_is_asked_for() -> None:
    with samerun.portable(), pytest.raises(RuntimeError, match="Integers to negative integer powers"):
        torch.tensor([2, 3]) ** -1
    with samerun.portable(), pytest.raises(RuntimeError, match="not implemented for 'Long'"):
        torch.nn.functional.gelu(torch.tensor([1, 2]))
