"""`samerun check --vary batch_split`: what is computed of a sample, in batches of half the size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from check_command import check

PROGRAM = """
import sys
import torch
import samerun
from samerun.data import DataLoader

torch.set_num_threads(1)
samerun.seed_everything(1)
data = [(torch.rand(6), torch.rand(1)) for _ in range(24)]
model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4), torch.nn.Tanh())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 8, shuffle=True):
    (model(x).sum(1, keepdim=True) - y).square().mean().backward()
    optimizer.step()
if "left-in-train" not in sys.argv:
    model.eval()
weight = torch.linspace(-1, 1, 6)
total = 0
with torch.no_grad():
    for _ in DataLoader(data, 8):
        break
    for x, y in DataLoader(data, 8, shuffle="shuffled" in sys.argv):
        hidden = (x * weight).relu()
        if "left-in-train" in sys.argv:
            hidden = model[1](hidden[:, :4])
        total += hidden.sum()
print(total)
"""


def split(tmp_path: Path, *arguments: str, program: str = PROGRAM) -> tuple[int, dict[str, Any]]:
    (tmp_path / "p.py").write_text(program)
    return check(["--vary", "batch_split", "p.py", *arguments], tmp_path)


@pytest.mark.slow
def test_rows_that_depend_on_the_batch(tmp_path: Path) -> None:
    code, report = split(tmp_path, "left-in-train")
    cause, line = report["cause"], 1 + PROGRAM.splitlines().index("            hidden = model[1](hidden[:, :4])")
    assert (code, cause["kind"], cause["line"], cause["certain"]) == (1, "batch-size", line, True), report
    assert "native_batch_norm at line" in cause["evidence"][0] and "smaller batches" in cause["evidence"][0]
    assert report["first_difference"]["variation"] == "batch_split"


@pytest.mark.slow
def test_rows_that_do_not(tmp_path: Path) -> None:
    code, report = split(tmp_path, "shuffled")
    assert (code, report["verdict"], report["variations"][0]["outcome"]) == (0, "same", "same"), report
    assert report["runs"][1]["events"] > report["runs"][0]["events"]  # more batches; the same steps
    assert report["runs"][1]["steps"] == report["runs"][0]["steps"] == 3


@pytest.mark.exhaustive
def test_rows_of_products_in_another_batch_size(tmp_path: Path) -> None:
    program = (
        "import torch\nfrom samerun.data import DataLoader\ntorch.manual_seed(0)\n"
        "model = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.ReLU(), torch.nn.Linear(200, 10)).eval()\n"
        "with torch.inference_mode():\n    for x in DataLoader(torch.rand(64, 300), 2, num_workers=1):\n"
        "        model(x)\n"
    )
    code, report = split(tmp_path, program=program)
    assert (code, report["cause"]["kind"], report["cause"]["line"]) == (1, "batch-size", 7), report


@pytest.mark.slow
def test_a_program_without_such_a_pass_is_skipped(tmp_path: Path) -> None:
    program = PROGRAM.split("if ")[0].replace("from samerun.data", "from torch.utils.data")
    code, report = split(tmp_path, program=program)
    assert (code, report["variations"][0]["outcome"]) == (0, "skipped")
    assert "no samerun.data.DataLoader without gradients" in report["variations"][0]["detail"]
