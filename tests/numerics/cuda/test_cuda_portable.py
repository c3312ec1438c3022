"""`portable()` on a CUDA device: the bits of the CPU. Needs a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import portable_cases
import portable_operator_cases
import pytest
import torch
import torch.nn.functional as F
from portable_cases import run
from portable_operator_cases import ALL_CASES
from portable_values import assert_same_bits, values
from repository_paths import ROOT
from torch import Tensor, nn

import samerun
from samerun.base.errors import NotPortableError
from samerun.numerics.verification import conformance

pytestmark = pytest.mark.cuda
BENCHMARKS = str(ROOT / "benchmarks")


@pytest.mark.parametrize("n", conformance.SIZES)
def test_the_conformance_vectors(n: int) -> None:
    wrong = conformance.find_differing_rows(conformance.read_expected_vectors_text(), sizes=(n,), device="cuda")
    assert not wrong


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter")
@pytest.mark.parametrize(("name", "function", "inputs"), ALL_CASES, ids=[case[0] for case in ALL_CASES])
def test_operators(name: str, function: Callable[..., Any], inputs: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with samerun.portable():
        wanted = run(function, inputs, torch.float32)
    for module in (portable_operator_cases, portable_cases):  # what the cases make of their own
        for maker in ("real", "whole"):
            on_cpu = getattr(module, maker)
            monkeypatch.setattr(module, maker, lambda *given, on_cpu=on_cpu, **how: on_cpu(*given, **how).cuda())
    monkeypatch.setattr(portable_operator_cases, "LABELS", portable_operator_cases.LABELS.cuda())
    with samerun.portable(), torch.device("cuda"):
        got = run(function, [each.cuda() for each in inputs], torch.float32)
    assert len(got) == len(wanted)
    for mine, want in zip(got, wanted, strict=True):
        assert_same_bits(mine.cpu(), want.cpu())


def steps(name: str, device: str, count: int = 20) -> list[Tensor]:
    """Parameters after some steps of the CNN or the GPT of the benchmarks, made and fed on the CPU's stream."""
    sys.path.insert(0, BENCHMARKS)
    try:
        from workloads import CNN, GPT
    finally:
        sys.path.remove(BENCHMARKS)
    torch.manual_seed(0)
    net: nn.Module = (CNN() if name == "cnn" else GPT(64, 32, 64, 2)).to(device)
    optimizer: torch.optim.Optimizer = (
        torch.optim.SGD(net.parameters(), 0.01, 0.9) if name == "cnn" else torch.optim.AdamW(net.parameters(), 1e-3)
    )
    for _ in range(count):
        if name == "cnn":
            x, y = torch.randn(16, 3, 32, 32, device=device), torch.randint(0, 10, (16,), device=device)
            loss = F.cross_entropy(net(x), y)
        else:
            text = torch.randint(0, 64, (4, 33), device=device)
            with torch.device(device):
                loss = F.cross_entropy(net(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [each.detach().cpu() for each in (*net.parameters(), *net.buffers())]


@pytest.mark.parametrize("name", ["cnn", "gpt"])
def test_training_ends_with_the_bits_of_the_cpu(name: str) -> None:
    with samerun.portable():
        want, got = steps(name, "cpu"), steps(name, "cuda")
    for mine, theirs in zip(got, want, strict=True):
        assert_same_bits(mine, theirs)


def test_what_is_missing_is_refused() -> None:
    with samerun.portable(), pytest.raises(NotPortableError, match="lgamma"):
        torch.lgamma(torch.ones(3, device="cuda"))


def test_a_captured_graph_replays_the_same_bits() -> None:
    x, w = values(64, 300).cuda(), values(128, 300, seed=1).cuda()

    def work() -> Tensor:
        return F.softmax(F.gelu(F.linear(x, w)), 1).sum()

    with samerun.portable():
        want = work()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = work()
        x.mul_(0.5)
        again = work()
        graph.replay()
    assert_same_bits(captured.cpu(), again.cpu())
    assert float(captured) != float(want)


def test_a_stream_of_the_program_is_used() -> None:
    x = values(1000, 1000).cuda()
    stream = torch.cuda.Stream()
    with samerun.portable():
        want = x @ x
        with torch.cuda.stream(stream):
            found = x @ x
        stream.synchronize()
    assert_same_bits(found.cpu(), want.cpu())


def test_the_doctor_shows_the_device() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "samerun", "doctor", "--numerics", "--json", "-", "--quiet"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (device, *_) = json.loads(done.stdout)["numerics"]["cuda"]
    assert device["rows"] == len(conformance.read_expected_vectors_text().splitlines()) and not device["different"]
