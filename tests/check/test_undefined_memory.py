"""What lies in memory that nobody wrote, or that a collective fills later, is no value until a program reads it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from check_command import check
from repository_paths import PROGRAMS

PROGRAM = PROGRAMS / "undefined_memory.py"


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(PROGRAM.read_text().splitlines(), 1) if text in line)


@pytest.mark.exhaustive
def test_buffers_that_are_filled_later_or_never_read_are_no_difference(tmp_path: Path) -> None:
    shutil.copy(PROGRAM, tmp_path / "train.py")
    code, report = check(["--vary", "rerun,memory", "train.py"], tmp_path)
    assert (code, report["verdict"]) == (0, "same"), report["first_difference"]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("reads", "made"),
    [("buffer", "memory = torch.empty"), ("collective", "larger = torch.empty"), ("copy", "kept = torch.empty")],
)
def test_what_is_read_of_it_is_named_where_it_was_made(reads: str, made: str, tmp_path: Path) -> None:
    shutil.copy(PROGRAM, tmp_path / "train.py")
    code, report = check(["--vary", "rerun,memory", "train.py", reads], tmp_path)
    assert (code, report["verdict"]) == (1, "different")
    cause = report["cause"]
    assert (cause["kind"], cause["line"], cause["certain"]) == ("uninitialised-memory", line_of(made), True), cause


LIBRARY = """
import torch

def ask_for_shapes(model):
    return model(torch.empty(4, 6)).shape

def fill(model):
    return model(torch.empty(4, 6))
"""
TRAINING = """
import sys
import torch
import library

def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    library.ask_for_shapes(model)
    filled = library.fill(model).detach().sum().nan_to_num().clamp(-3, 3)
    for _ in range(2):
        loss = model(torch.randn(4, 6)).pow(2).mean()
        (loss * filled if "used" in sys.argv else loss).backward()
        if "by-hand" not in sys.argv:
            optimizer.step()
        else:
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(0.1 * p.grad)
                    p.grad = None
    print(float(filled)) if "printed" in sys.argv else None

main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("use", "verdict"),
    [
        ("", "same"),
        pytest.param("by-hand", "same", marks=pytest.mark.exhaustive),
        pytest.param("by-hand used", "different", marks=pytest.mark.exhaustive),
        pytest.param("used", "different", marks=pytest.mark.exhaustive),
        pytest.param("printed", "different", marks=pytest.mark.exhaustive),
    ],
)
def test_what_a_library_computes_on_memory_that_nobody_wrote_counts_if_it_is_used(
    use: str, verdict: str, tmp_path: Path
) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "library.py").write_text(LIBRARY)
    (tmp_path / "train.py").write_text(TRAINING)
    _, report = check(["--vary", "memory", "train.py", *use.split()], tmp_path, PYTHONPATH=str(folder))
    assert report["verdict"] == verdict, report["first_difference"]


WHERE = """
import numpy as np
import torch

rng = np.random.default_rng(0)
table = rng.normal(size=(300, 12))
table[:, 3] = 0.0
scale = np.broadcast_to(table.std(0), table.shape)
target = torch.from_numpy(rng.normal(size=300))
scaled = np.divide(table, scale, where=scale > 0.1)
print(float(torch.from_numpy(scaled).nan_to_num().clamp(-5, 5).sum()), float(target.sum()))
"""


@pytest.mark.exhaustive
def test_memory_that_numpy_takes_for_a_result_is_named_at_its_line(tmp_path: Path) -> None:
    """Not at the line of another array that is made with numpy.empty, and wholly written, by NumPy's generator."""
    (tmp_path / "train.py").write_text(WHERE)
    code, report = check(["--vary", "memory", "train.py"], tmp_path)
    cause = report["cause"]
    assert (code, cause["kind"], cause["line"]) == (1, "uninitialised-memory", 10), cause


@pytest.mark.slow
def test_with_an_array_for_the_result_nothing_differs(tmp_path: Path) -> None:
    clean = WHERE.replace("where=scale > 0.1", "out=np.zeros_like(table), where=scale > 0.1")
    (tmp_path / "train.py").write_text(clean)
    code, report = check(["--vary", "memory", "train.py"], tmp_path)
    assert (code, report["verdict"]) == (0, "same"), report["first_difference"]
