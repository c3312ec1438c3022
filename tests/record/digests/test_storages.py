"""What the recorder believes of a tensor's value is what is there, however its memory was written."""

from __future__ import annotations

from pathlib import Path

import pytest
from repository_paths import PROGRAMS
from watched_program import Outcome, run

from samerun.record.trace import format as f

PLAY = PROGRAMS / "storage_play.py"


@pytest.mark.exhaustive
def test_random_moves_never_leave_a_stale_value(tmp_path: Path) -> None:
    outcome = run(PLAY, tmp_path, "0", "20", "slow", environment={"PYTHONHASHSEED": "1"})
    assert int(outcome.stdout) > 1000
    assert not outcome.traces.failures


PAIRS = """
import numpy as np
import torch
import torch.multiprocessing as mp

def pair(name):
    print(name)

def fused(lr):
    torch.manual_seed(0)
    p = torch.nn.Parameter(torch.randn(3))
    p.grad = torch.ones(3)
    torch.optim.AdamW([p], lr=lr, fused=True).step()

fused(1e-3)  # fused 1
fused(2e-3)  # fused 2
x = torch.arange(6.0)
torch.roll(x, [1])  # list 1
torch.roll(x, [2])  # list 2
x.add(1, alpha=2)  # scalar 1
x.add(1, alpha=3)  # scalar 2
torch.add(x, 1, out=torch.empty(6))  # out 1
torch.add(x, 1, out=torch.full((6,), 7.0))  # out 2
torch.zeros(6).copy_(x)  # copy 1
torch.ones(6).copy_(x)  # copy 2
torch.zeros(6).fill_(3)  # fill 1
torch.ones(6).fill_(3)  # fill 2
torch._foreach_copy_([torch.zeros(6)], [x])  # foreach copy 1
torch._foreach_copy_([torch.ones(6)], [x])  # foreach copy 2
torch._foreach_zero_([torch.zeros(6)])  # foreach zero 1
torch._foreach_zero_([torch.ones(6)])  # foreach zero 2
a, b = torch.zeros(6), torch.ones(6)
a.add_(x)  # add_ 1
b.add_(x)  # add_ 2
z = torch.randn(2, 2, dtype=torch.complex64)
torch.mm(z, z)  # conj 1
torch.mm(z, z.conj())  # conj 2
w = torch.zeros(2, 2, dtype=torch.complex64)
w.conj().copy_(z)
torch.mm(w, w)  # written conj 1
torch.mm(z, z)  # written conj 2

# alias: the same operator before and after memory is changed where no operator sees it
t = torch.randn(6)
own = t.numpy()
t.cos()  # numpy 1
own[0] += 1
t.cos()  # numpy 2
array = np.zeros(6, dtype=np.float32)
made = torch.from_numpy(array)
made.cos()  # from_numpy 1
array += 1
made.cos()  # from_numpy 2
bits = torch.ones(6)
bits.cos()  # bits 1
bits.view(torch.int32).zero_()
bits.cos()  # bits 2

# reuse: freed memory comes back at the same address with another value
addresses = set()
for value in range(4):
    z = torch.full((5000,), float(value))
    addresses.add(z.data_ptr())
    z.sum()  # reuse
    del z
print(len(addresses))

def child(shared):
    shared += 1

if __name__ == "__main__":
    shared = torch.zeros(6)
    shared.share_memory_()
    shared.cos()  # shared 1
    worker = mp.get_context("fork").Process(target=child, args=(shared,))
    worker.start()
    worker.join()
    assert shared[0] == 1
    shared.cos()  # shared 2
"""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run(PAIRS, tmp_path_factory.mktemp("pairs") / "run")


def two(pairs: Outcome, mark: str, operator: str) -> list[tuple[int, int, bytes]]:
    """(scalars, inputs, outputs) of the last event of an operator at the lines `mark 1` and `mark 2`."""
    lines = [pairs.line(f"{mark} {number}") for number in (1, 2)]
    found = [[e for e in pairs.operators(operator) if e.line == line][-1] for line in lines]
    return [(e.aux, e.inputs, e.outputs) for e in found]


@pytest.mark.slow
@pytest.mark.parametrize(("mark", "operator"), [("list", "roll"), ("scalar", "add")])
def test_scalars_and_lists_tell_events_apart(pairs: Outcome, mark: str, operator: str) -> None:
    (scalars, inputs, _), (others, same, _) = two(pairs, mark, operator)
    assert scalars != others
    assert inputs == same


@pytest.mark.slow
def test_the_learning_rate_of_a_fused_optimizer_tells_events_apart(pairs: Outcome) -> None:
    one, other = pairs.operators("_fused_adamw_")
    assert one.aux != other.aux
    assert one.inputs == other.inputs
    assert one.outputs != other.outputs
    assert one.phase == "optimizer"


@pytest.mark.parametrize(
    ("mark", "operator"),
    [
        ("out", "add"), ("copy", "copy_"), ("fill", "fill_"), ("foreach copy", "_foreach_copy_"),
        ("foreach zero", "_foreach_zero_"),
    ],
)  # fmt: skip
def test_what_is_overwritten_does_not_count(pairs: Outcome, mark: str, operator: str) -> None:
    one, other = two(pairs, mark, operator)
    assert one == other


def test_what_is_added_to_counts(pairs: Outcome) -> None:
    (_, inputs, outputs), (_, others, sums) = two(pairs, "add_", "add_")
    assert inputs != others
    assert outputs != sums


@pytest.mark.parametrize("mark", ["conj", "written conj"])
def test_a_lazy_conjugate_is_not_its_base(pairs: Outcome, mark: str) -> None:
    one, other = two(pairs, mark, "mm")
    assert one[1] != other[1]


@pytest.mark.parametrize("mark", ["numpy", "from_numpy", "bits", "shared"])
def test_writes_through_another_name_are_seen(pairs: Outcome, mark: str) -> None:
    one, other = two(pairs, mark, "cos")
    assert one[1] != other[1]


def test_reused_addresses_do_not_bring_old_values_back(pairs: Outcome) -> None:
    line = pairs.line("reuse")
    assert len({e.inputs for e in pairs.operators("sum") if e.line == line}) == 4


def test_uninitialised_memory_is_flagged_until_it_is_written(tmp_path: Path) -> None:
    outcome = run(
        """
        import torch
        x = torch.empty(4, 4)  # made
        x[:2] = 1
        x.cos()  # half
        x.copy_(torch.ones(4, 4))
        x.sin()  # whole
        """,
        tmp_path,
    )
    (half,), (whole,) = outcome.operators("cos"), outcome.operators("sin")
    assert half.flags & f.UNINITIALISED
    assert not whole.flags & f.UNINITIALISED
    assert [e.line for e in outcome.events(f.FRESH) if e.name.startswith("aten.cos")] == [outcome.line("made")]
