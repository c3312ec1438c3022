"""`samerun.portable_equal()`: which operators of a model change in plain torch, by experiment and by what is known."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

import samerun
from samerun.numerics.verification.equality import (
    KNOWN,
    find_only_shorter_dim,
    list_known_change_circumstances,
    rerun_and_classify_batch_size_effect,
)

needs_other_instructions = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="torch has no other instructions here"
)


@needs_other_instructions
def test_a_model_is_taken_apart_and_left_as_it_was() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(300, 70), nn.BatchNorm1d(70), nn.Sigmoid(), nn.Dropout(0.5), nn.Linear(70, 10))
    x = torch.randn(64, 300)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state, kept, threads = torch.get_rng_state(), x.clone(), torch.get_num_threads()

    found = samerun.portable_equal(model, x, loss=lambda y: y.square().mean(), batch=5)

    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters()) and torch.equal(x, kept)
    assert torch.equal(torch.get_rng_state(), state) and torch.get_num_threads() == threads
    by_name = {one.operator: one for one in found.operators}
    for name in ("addmm", "sigmoid", "sigmoid_backward", "mm"):
        assert f"aten.{name}.default" in by_name, by_name.keys()
    assert by_name["aten.sigmoid.default"].plain["capability"] == "changes"
    assert by_name["aten.sigmoid.default"].known == ["threads", "capability", "batch"]
    assert by_name["aten.sigmoid.default"].line.endswith(f":{line_of_the_call()}")
    assert found.portable and by_name["aten.sigmoid.default"] in found.changing
    assert {"changes"}.isdisjoint(what for one in found.operators for what in one.portable.values())
    assert by_name["aten.native_batch_norm.default"].plain["batch"] == "whole batch"
    said = str(found)
    assert said.startswith(f"{len(found.changing)} of {len(found.operators)} operators change their bits")
    assert "sigmoid.default" in said and "more give the same bits" in said


def line_of_the_call() -> int:
    """Where the model is handed over, which is the user's line of what nn.Sequential calls."""
    with open(__file__, encoding="utf-8") as file:
        return next(number for number, line in enumerate(file, 1) if line.startswith("    found = samerun"))


def test_exact_operators_do_not_change() -> None:
    found = samerun.portable_equal(lambda x: torch.relu(x * 3 - x) / 7, torch.linspace(-1, 1, 4096).view(64, 64))
    assert found.changing == [] and found.portable
    assert {what for one in found.operators for what in one.plain.values()} <= {"same", "not tried"}


def test_what_has_no_portable_kernel_is_named() -> None:
    found = samerun.portable_equal(
        lambda x: torch.linalg.eigvals(x @ x.mT).real, torch.linspace(-1, 1, 512).view(8, 8, 8)
    )
    (eig,) = [one for one in found.operators if "eig" in one.operator]
    assert set(eig.portable.values()) >= {"no portable kernel"} and not found.portable
    assert "no portable kernel" in str(found)


@pytest.mark.parametrize("name", sorted({name for names in KNOWN.values() for name in names}))
def test_what_is_known_is_an_operator(name: str) -> None:
    assert any(hasattr(torch.ops.aten, form) for form in (name, name + "_")), name
    assert list_known_change_circumstances(f"aten.{name}.default")


def test_the_shorter_dimension() -> None:
    wide = torch.zeros(6, 4)
    assert find_only_shorter_dim(wide, torch.zeros(2, 4)) == 0
    assert find_only_shorter_dim(wide, torch.zeros(6, 3)) == 1
    for other in (torch.zeros(2, 3), torch.zeros(6, 4), torch.zeros(7, 4), torch.zeros(6)):
        assert find_only_shorter_dim(wide, other) is None


def test_an_operator_that_looks_at_the_batch_is_caught() -> None:
    """A softmax over the batch gives other rows for a part of it, one over rows does not."""
    from samerun.numerics.verification.calls import record_operator_calls

    x = torch.linspace(-1, 1, 80).view(8, 10)
    for dim, said in ((0, "changes"), (1, "same")):
        (whole,) = record_operator_calls(lambda: x.softmax(dim)).calls.values()  # noqa: B023
        (part,) = record_operator_calls(lambda: x[:3].softmax(dim)).calls.values()  # noqa: B023
        assert [rerun_and_classify_batch_size_effect(whole, part, inside) for inside in (False, True)] == [said, said]


def test_bad_input() -> None:
    model = nn.Linear(3, 2)
    for inputs, batch, said in (
        ("text", None, "there is no tensor in it"),
        (torch.zeros(4, 3), 4, r"portable_equal\(batch=4\): the inputs have 4 in a batch"),
        (torch.zeros(4, 3), 0, "from 1 to 3"),
        (torch.zeros(4, 3, device="meta"), None, "a tensor on meta"),
    ):
        with pytest.raises(samerun.SamerunError, match=said):
            samerun.portable_equal(model, inputs, batch=batch)


def test_the_name_imports_torch_only_when_it_is_used() -> None:
    program = "import sys, samerun; 'portable_equal' in dir(samerun); print({'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
