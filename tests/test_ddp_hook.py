"""`samerun.ddp_comm_hook`: the same gradients on any number of ranks, and its mistakes."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import samerun
from samerun.base.errors import SamerunError
from samerun.control.ddp_hook import TreeState, tree_sum

PROGRAM = Path(__file__).parent / "programs/ddp_ranks.py"


def digest(ranks: int, *words: str) -> str:
    """Of the parameters after training on so many ranks."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SAMERUN_", "RANK"))}
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", "0",
         "--standalone", str(PROGRAM), *words],
        env={**kept, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    found = [line for line in done.stdout.splitlines() if line.startswith("digest")]
    assert len(found) == 1, done.stderr
    return found[0]


@pytest.mark.exhaustive
def test_one_two_and_four_ranks_end_with_the_same_parameters() -> None:
    one = digest(1, "hook")
    assert digest(2, "hook") == one == digest(4, "hook")
    assert digest(4, "plain") != one, "the test would show nothing"
    assert digest(4, "hook", "0.01", "resume") == one, "other buckets, and a resumed run"


def test_two_ranks_end_like_one() -> None:
    assert digest(1, "hook") == digest(2, "hook", "0.01", "resume")


class Model:
    """As much of DistributedDataParallel as the counter needs."""

    require_backward_grad_sync = False
    gradient_as_bucket_view = False

    def __init__(self, parameter: Any) -> None:
        self.parameter = parameter

    def parameters(self) -> list[Any]:
        return [self.parameter]


def accumulated(values: list[Any]) -> Any:
    """What the counter makes of microbatches with these gradients."""
    parameter = torch.nn.Parameter(torch.zeros_like(values[0]))
    model = Model(parameter)
    state = TreeState(model, None, 1)
    for number, value in enumerate(values):
        model.require_backward_grad_sync = number == len(values) - 1
        (parameter * value).sum().backward()
        assert (parameter.grad is None) != model.require_backward_grad_sync
    state.total(parameter, parameter.grad)
    assert not state.waiting
    return parameter.grad


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_microbatches_are_added_as_a_balanced_tree(count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    values = [torch.randn(1000, generator=generator) * 10**n for n in range(count)]
    tree = tree_sum([value.clone() for value in values])
    assert torch.equal(accumulated(values), tree)
    # and so it does not matter how they are spread over ranks
    for ranks in (2**n for n in range(5) if 2**n <= count):
        each = count // ranks
        parts = [accumulated(values[r * each : (r + 1) * each]) for r in range(ranks)]
        assert torch.equal(tree_sum(parts), tree)
    if count == 16:
        in_a_row = list(itertools.accumulate(values))[-1]
        assert not torch.equal(in_a_row, tree), "the test would show nothing"


@pytest.mark.parametrize("count", [3, 5, 6, 7])
def test_other_numbers_of_microbatches_are_refused(count: int) -> None:
    with pytest.raises(SamerunError, match=f"{count} microbatches"):
        accumulated([torch.ones(3)] * count)


def test_a_model_that_is_not_wrapped_is_refused() -> None:
    with pytest.raises(SamerunError, match=r"ddp_comm_hook\(Linear\)"):
        samerun.ddp_comm_hook(torch.nn.Linear(2, 2))
