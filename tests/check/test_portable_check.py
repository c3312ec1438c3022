"""A program that trains inside `samerun.portable()`, watched: what the recorder sees, and what `check` says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from check_command import check
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from watched_program import run

import samerun
from samerun.record.trace import format as f

TRAIN = """
import torch, torch.nn as nn, torch.nn.functional as F
import samerun
torch.manual_seed(SEED)
with samerun.portable():
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(128, 64), nn.LayerNorm(64), nn.Sigmoid(), nn.Dropout(0.1), nn.Linear(64, 10),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = torch.randn(256, 1, 8, 8), torch.randint(10, (256,))
    for step in range(3):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()  # backward
        optimizer.step()
    print(loss.item())
"""
CLEAN = TRAIN.replace("SEED", "0")
SEEDED_BY_THE_CLOCK = TRAIN.replace("SEED", "time.time_ns()").replace("import samerun", "import samerun, time")


class Noting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        self.names.append(str(func).removeprefix("aten."))
        return func(*args, **(kwargs or {}))  # type: ignore[operator]


def test_a_mode_around_sees_what_the_program_calls_and_not_what_kernels_do() -> None:
    x, w = torch.linspace(-1, 1, 32).view(4, 8), torch.ones(8, 3, requires_grad=True)
    before = _get_current_dispatch_mode_stack()
    with Noting() as outside:
        with samerun.portable(), Noting() as within:
            F.gelu(x @ w).sum().backward()
        torch.neg(x)
        with samerun.portable():
            torch.neg(x)
    forward = ["mm.default", "gelu.default", "sum.default"]
    assert within.names[:3] == forward and "gelu_backward.default" in within.names
    assert not [name for name in within.names if name.startswith("empty")]
    assert outside.names == [*within.names, "neg.default", "neg.default"]
    assert _get_current_dispatch_mode_stack() == before


def test_modes_may_end_in_another_order_than_they_began() -> None:
    first, second = samerun.portable(), Noting()
    x = torch.linspace(-9, 9, 100)
    with samerun.portable():
        want = torch.exp(x)
    second.__enter__()
    first.__enter__()
    second.__exit__(None, None, None)
    assert torch.equal(torch.exp(x), want)
    first.__exit__(None, None, None)
    assert _get_current_dispatch_mode_stack() == []


@pytest.mark.exhaustive
def test_the_recorder_sees_the_operators_with_their_results(tmp_path: Path) -> None:
    watched = run(CLEAN, tmp_path / "portable")
    plain = run(CLEAN.replace("with samerun.portable():", "if True:"), tmp_path / "plain")
    ours, theirs = (
        {(event.name, event.line) for event in one.operators() if "foreach" not in event.name}
        for one in (watched, plain)
    )
    missing = {name for name, _ in theirs - ours}
    assert missing <= {"aten.native_dropout.default"}, missing
    backward = {name for name, line in ours if line == watched.line("backward")}
    for name in ("convolution_backward", "native_layer_norm_backward", "gelu_backward", "mm", "nll_loss_backward"):
        assert f"aten.{name}.default" in {event.name for event in watched.operators(name)}, backward
    assert watched.events(f.FRESH) == []
    assert not [event.name for event in watched.operators() if event.flags & f.UNINITIALISED]
    again = run(CLEAN, tmp_path / "again", environment={"ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "1"})
    digests = [[event.outputs for event in one.operators()] for one in (watched, again)]
    assert digests[0] == digests[1] and len(set(digests[0])) > 50


@pytest.mark.slow
def test_check_says_same(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CLEAN)
    code, report = check(["--vary", "rerun,environment,threads,cpu_capability", "train.py"], tmp_path)
    assert (code, report["verdict"]) == (0, "same"), report["first_difference"]
    assert {one["outcome"] for one in report["variations"]} == {"same"}


@pytest.mark.exhaustive
def test_check_says_same_whatever_is_varied(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CLEAN)
    code, report = check(["--vary", "all", "train.py"], tmp_path)
    assert (code, report["verdict"]) == (0, "same"), report["first_difference"]
    assert {one["outcome"] for one in report["variations"]} == {"same", "skipped"}


@pytest.mark.exhaustive
def test_check_names_the_true_cause(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SEEDED_BY_THE_CLOCK)
    code, report = check(["train.py"], tmp_path)
    assert (code, report["verdict"]) == (1, "different")
    assert (report["cause"]["kind"], report["cause"]["certain"]) == ("time", True)
    assert report["cause"]["line"] == SEEDED_BY_THE_CLOCK.splitlines().index("torch.manual_seed(time.time_ns())") + 1
