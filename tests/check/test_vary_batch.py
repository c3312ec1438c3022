"""`samerun check --vary batch`: a sample in other batches, in any program that calls a model without gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from check_command import check, samerun

PROGRAM = """
import sys
import torch
import samerun

torch.manual_seed(0)
if "portable" in sys.argv:
    samerun.portable().__enter__()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.BatchNorm1d(6), torch.nn.Tanh())

    def forward(self, x):
        hidden = self.layers(x)
        if "scaled" in sys.argv:
            hidden = hidden / hidden.abs().amax()
        return hidden


model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(8, 8)).sum().backward()
    optimizer.step()
if "train" in sys.argv:
    sys.exit()
if "left-in-train" not in sys.argv:
    model.eval()
with torch.no_grad():
    for _ in range(2):
        print(model(torch.randn(8, 8)).sum(), torch.rand(1))
"""


def line_of(text: str) -> int:
    return next(at for at, line in enumerate(PROGRAM.splitlines(), 1) if text in line)


def vary_batch(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    (tmp_path / "p.py").write_text(PROGRAM)
    return check(["--vary", "batch", "p.py", *arguments], tmp_path)


@pytest.mark.exhaustive
def test_a_scale_of_the_whole_batch(tmp_path: Path) -> None:
    code, report = vary_batch(tmp_path, "portable", "scaled")
    cause, first = report["cause"], report["first_difference"]
    assert (code, cause["kind"], cause["certain"]) == (1, "batch-size", True), report
    assert (cause["file"], cause["line"]) == ("p.py", line_of("amax"))
    assert "amax.default" in cause["evidence"][0] and "other rows count in its result" in cause["evidence"][0]
    assert (first["variation"], first["operator"], first["module"]) == ("batch", "aten.amax.default", "Model")


@pytest.mark.exhaustive
def test_a_batch_norm_left_in_training_mode(tmp_path: Path) -> None:
    code, report = vary_batch(tmp_path, "portable", "left-in-train")
    assert (code, report["cause"]["line"]) == (1, line_of("self.layers(x)")), report
    assert "native_batch_norm" in report["cause"]["evidence"][0] and "layers.1" in report["cause"]["evidence"][0]


@pytest.mark.exhaustive
def test_a_clean_model_inside_portable(tmp_path: Path) -> None:
    code, report = vary_batch(tmp_path, "portable")
    assert (code, report["verdict"], report["variations"][0]["outcome"]) == (0, "same", "same"), report


@pytest.mark.exhaustive
def test_the_program_gets_what_it_always_gets(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(PROGRAM)
    done = samerun(["check", "--vary", "batch", "--save", "runs", "p.py", "portable", "left-in-train"], tmp_path)
    assert done.returncode == 1, done.stderr
    texts = {path.read_text() for path in (tmp_path / "runs").rglob("*stdout*") if path.read_text()}
    assert len(texts) == 1, texts


@pytest.mark.exhaustive
def test_a_program_that_only_trains_is_skipped(tmp_path: Path) -> None:
    code, report = vary_batch(tmp_path, "train")
    assert (code, report["variations"][0]["outcome"]) == (0, "skipped")
    assert "calls no model" in report["variations"][0]["detail"]
