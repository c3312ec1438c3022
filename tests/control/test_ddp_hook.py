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
from repository_paths import PROGRAMS

import samerun
from samerun.base.errors import SamerunError
from samerun.control.ddp import GradientTreeState
from samerun.control.gradient_tree import tree_sum_in_place

PROGRAM = PROGRAMS / "ddp_ranks.py"


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


@pytest.mark.exhaustive
def test_with_portable_kernels_two_and_four_ranks_end_like_one() -> None:
    one = digest(1, "portable")
    assert digest(2, "portable", "0.01", "resume") == one == digest(4, "portable", "0.01", "resume")
    assert digest(4, "portable") == one != digest(1, "hook"), "torch's own kernels would show nothing"


@pytest.mark.exhaustive
def test_with_portable_kernels_two_ranks_end_like_one() -> None:
    assert digest(1, "portable") == digest(2, "portable", "0.01", "resume")


RESUMING = """
import warnings, torch, samerun
from samerun.data import training_checkpoint
from torch.testing._internal.distributed.fake_pg import FakeStore

training_checkpoint._get_world_size = lambda: 1  # nobody else is there
training_checkpoint._gather_from_ranks = lambda state: [state] * 3
for case in ("3 plain 0", "3 plain 1", "2 plain 0", "3 hook 0", "3 unused 0", "3 bare 0"):
    ranks, how, rank = (int(word) if word.isdigit() else word for word in case.split())
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    model = torch.nn.Linear(2, 2)
    if how != "bare":
        model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=how == "unused")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        if how == "hook":
            samerun.ddp_comm_hook(model)
        samerun.checkpoint.save("c.pt", model=model)
        samerun.checkpoint.load("c.pt", model=model)  # here
    for one in seen:
        if one.category.__module__.startswith("samerun"):
            print(ranks, how, rank, one.filename, one.lineno, one.category.__name__, one.message)
    torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_resuming_on_three_ranks_warns_of_other_buckets(tmp_path: Path) -> None:
    """The ranks are pretended. Three are not a power of two, which the hook says."""
    (tmp_path / "resume.py").write_text(RESUMING)
    done = subprocess.run([sys.executable, "resume.py"], cwd=tmp_path, capture_output=True, text=True)
    line = next(number for number, text in enumerate(RESUMING.splitlines(), 1) if text.endswith("# here"))
    first, second = done.stdout.splitlines()
    assert first.startswith(f"3 plain 0 {tmp_path}/resume.py {line} OtherBuckets DistributedDataParallel on 3 ranks")
    assert "samerun.ddp_comm_hook(model)" in first and second.startswith("3 hook 0") and "SameOnAnyRanks" in second


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
    state = GradientTreeState(model, None, 1)
    for number, value in enumerate(values):
        model.require_backward_grad_sync = number == len(values) - 1
        (parameter * value).sum().backward()
        assert (parameter.grad is None) != model.require_backward_grad_sync
    state.sums.add_earlier_sums_to_last_in_place(parameter, parameter.grad)
    assert not state.sums.partial_sums
    return parameter.grad


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_microbatches_are_added_as_a_balanced_tree(count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    values = [torch.randn(1000, generator=generator) * 10**n for n in range(count)]
    tree = tree_sum_in_place([value.clone() for value in values])
    assert torch.equal(accumulated(values), tree)
    # and so it does not matter how they are spread over ranks
    for ranks in (2**n for n in range(5) if 2**n <= count):
        each = count // ranks
        parts = [accumulated(values[r * each : (r + 1) * each]) for r in range(ranks)]
        assert torch.equal(tree_sum_in_place(parts), tree)
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
