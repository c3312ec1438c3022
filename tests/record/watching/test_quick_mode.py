"""The quick way of watching operators, in C, writes what the slow one writes, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from repository_paths import PROGRAMS, ROOT
from watched_program import Outcome, run

from samerun.record.digests.digest import digest
from samerun.record.trace import format as f
from samerun.record.watching import quick_mode

EXAMPLES = ROOT / "examples"
ONE_THREAD = {"PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1"}

HIDE = """
import random, runpy, sys
import numpy
random.seed(0)
numpy.random.seed(0)
way, sys.argv = sys.argv[1], sys.argv[2:]
if way == "slow":
    sys.modules["samerun.record.watching._watch"] = None
runpy.run_path(sys.argv[0], run_name="__main__")
from samerun.record.watching import quick_mode
from samerun.record.digests.digest import digest
assert (quick_mode.load_quick_mode_class() is not None) == (way == "quick")
"""
"""Runs a program with or without the C library, whose absence looks like this to Python."""

pytestmark = pytest.mark.skipif(quick_mode._watch is None, reason="the C library was not built")


def test_the_library_was_built() -> None:
    """`make setup` builds it, and it knows the torch that is installed."""
    assert quick_mode.load_quick_mode_class() is not None


def tensors() -> list[torch.Tensor]:
    wide = torch.randn(300, 200)
    numbers = torch.randn(3, 4, dtype=torch.complex64)
    small = [
        torch.arange(-2, 3).to(kind) for kind in (torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.half)
    ]
    return [
        *small, wide, wide.t(), wide[::2, 5:], wide[3], wide.double(), wide.flatten()[1:], torch.tensor(1.5),
        torch.zeros(0, 3), numbers, numbers.conj(), numbers.conj().imag, wide.to_sparse(), torch.nn.Parameter(wide),
        torch.empty(3, device="meta"), torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.ones(1).as_strided((1, 1), (7, 9)), torch.ones(1).expand(1000), torch.randn(1 << 20),
    ]  # fmt: skip


@pytest.mark.parametrize("tensor", tensors(), ids=lambda t: f"{t.dtype}-{tuple(t.shape)}-{t.layout}")
def test_digests_agree(tensor: torch.Tensor) -> None:
    assert quick_mode.choose_digest_function()(tensor) == digest(tensor)


def both(program: str | Path, folder: Path, *arguments: str) -> dict[str, Outcome]:
    """Run a program both ways. Fresh memory holds zeros: what it holds else differs from run to run."""
    path = program if isinstance(program, Path) else folder / "it.py"
    if isinstance(program, str):
        path.write_text(program, encoding="utf-8")
    hiding = folder / "hiding.py"
    hiding.write_text(HIDE, encoding="utf-8")
    return {
        way: run(hiding, folder / way, way, str(path), *arguments, environment=ONE_THREAD, fresh_memory="zeros")
        for way in ("slow", "quick")
    }


def bodies(outcome: Outcome) -> dict[str, bytes]:
    """The traces without their headers, which hold the process id."""
    assert outcome.traces.failures == []
    return {path.name: path.read_bytes()[f.HEADER_BYTES :] for path in sorted(outcome.folder.glob("*.trace"))}


MIXED = """
import threading
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.rnn, self.out = nn.LSTM(36, 16), nn.Linear(16, 4)
        self.table = nn.Embedding(7, 4, sparse=True)

    def forward(self, x, words):
        x = F.dropout(F.relu(self.norm(self.conv(x))), 0.2, self.training)
        y, _ = self.rnn(x.flatten(2))
        return self.out(y).mean(1) + self.table(words).sum()

model = Net()
for kind in (torch.optim.SGD, torch.optim.AdamW):
    for foreach in (False, True):
        dense = [p for name, p in model.named_parameters() if not name.startswith("table")]
        optimizer = kind(dense, lr=1e-2, foreach=foreach)
        for _ in range(2):
            optimizer.zero_grad(set_to_none=not foreach)
            loss = F.cross_entropy(model(torch.randn(5, 3, 8, 8), torch.tensor([1, 2])), torch.arange(5) % 4)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(dense, 1.0)
            optimizer.step()
            print(float(loss.detach()))

x = torch.randn(6, 6)
view = x[1:4, ::2]
view.mul_(2)
print(view.sum().item(), x.t().contiguous().sum().item(), x.std().item())
z = torch.randn(3, 3, dtype=torch.complex64)
torch.mm(z, z.conj().t())
z.imag.neg_()
torch.view_as_real(z).add_(1)
(z.conj().imag + 1).sum()
torch.empty(3) + 1
torch.empty(3).fill_(2).add_(1)
array = np.ones(3, dtype=np.float32)
shared = torch.from_numpy(array)
shared.cos()
array += 1
shared.cos().numpy()[0] = 3
torch.add(x, 1, out=torch.empty(6, 6))
torch.zeros(0).sum() + torch.tensor(3).pow(2)
torch.ones(1 << 16).cumsum(0).view(256, 256).t().add_(1).contiguous()
torch.ones(300, 300).to(torch.bfloat16).mul_(2).sum()
torch.stack([x, x]).unbind(0)
torch.topk(x, 2), torch.sort(x, dim=1), torch.linalg.svd(x)
torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.tensor([1.0, 2.0]), (3,)).to_dense()
torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize().sum()
with torch.no_grad():
    x.add_(1).requires_grad_()
(x * 2).sum().backward()
try:
    torch.mm(x, torch.ones(5, 5))
except RuntimeError as error:
    print(error)

def other(tensor):
    print(float((tensor * 2).sum().detach()))
    tensor.detach().add_(1)

for _ in range(2):
    thread = threading.Thread(target=other, args=(x,))
    thread.start()
    thread.join()
print(x.sum().item())
"""


@pytest.mark.slow
def test_of_many_kinds_of_operators(tmp_path: Path) -> None:
    found = both(MIXED, tmp_path)
    assert bodies(found["slow"]) == bodies(found["quick"])
    assert found["slow"].stdout == found["quick"].stdout
    assert len(found["quick"].operators()) > 500
    flags = 0
    for event in found["quick"].events(f.OPERATOR):
        flags |= event.flags
    for flag in (f.FOREIGN_WRITE, f.UNINITIALISED, f.NO_INPUTS, f.INEXACT):
        assert flags & flag, "the program was to have operators of every kind"


SCALARS = """
import math
import torch

x = torch.arange(800.0)
for value in (0, -1, 2**62, -2**63, 1.5, -0.0, 0.1, 1e-45, 1e300, 5e-324, math.inf, -math.inf, math.nan):
    x.mul(value)
x.mul(True), x.mul(False), x.mul(3j)
x.clamp(None, 0.5), x.clamp(-0.0), x.add(1, alpha=2.5)
x.to(torch.float64), x.to(torch.bfloat16, copy=True), x.sum(dtype=torch.float64)
torch.div(x, 3, rounding_mode="trunc"), x.clone(memory_format=torch.contiguous_format)
torch.nn.functional.gelu(x, approximate="tanh"), torch.roll(x, [-1]), x.view(2, 400).sum([0, 1], True)
x.view([1] * 30 + [800]).mul(2)
x.view(800, 1).expand(800, 3).contiguous()
for pieces in ([2] * 400, [1] * 800):  # more than the quick way has room for
    torch.cat(torch.split_with_sizes(x, pieces))
    torch.split_with_sizes_copy(x, pieces)
torch.full((2,), 7, dtype=torch.int8), torch.arange(3, 9, 2), torch.linspace(0, 1, 5)
"""


@pytest.mark.exhaustive
def test_of_many_kinds_of_scalars(tmp_path: Path) -> None:
    found = both(SCALARS, tmp_path)
    assert bodies(found["slow"]) == bodies(found["quick"])
    assert len(found["quick"].operators()) > 30


@pytest.mark.exhaustive
def test_of_random_moves(tmp_path: Path) -> None:
    """That the slow way believes what is there is tested in test_storages.py."""
    found = both(PROGRAMS / "storage_play.py", tmp_path, "0", "5")
    assert bodies(found["slow"]) == bodies(found["quick"])


@pytest.mark.exhaustive
def test_of_a_training(tmp_path: Path) -> None:
    found = both(EXAMPLES / "char_gpt.py", tmp_path, "--epochs", "1", "--steps", "4")
    assert found["slow"].stdout == found["quick"].stdout
    assert bodies(found["slow"]) == bodies(found["quick"])
