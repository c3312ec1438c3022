"""How many runs an answer takes: experiments that fail for a reason of their own, threads, addresses."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_command import check

PREFETCHED = """
import queue, threading, torch
torch.manual_seed(0)
rows = torch.tensor([float(word) for word in open("../data/rows.txt").read().split()]).reshape(4, 2)
ready = queue.Queue(2)
thread = threading.Thread(target=lambda: [ready.put(row.reshape(1, 2) * 2) for row in rows])
thread.start()
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in rows:
    model(ready.get()).pow(2).mean().backward()
    optimizer.step()
thread.join()
"""
AT_HOME = "import os, torch\nassert os.getcwd() == {folder!r}, 'run me where I live'\nprint(torch.ones(2) + 1)\n"
BY_ADDRESS = """
import torch
torch.manual_seed(0)
layers = {torch.nn.Linear(4, 4) for _ in range(12)}
total = torch.zeros(())
for layer in layers:
    total = total * 1.1 + layer.weight.sum()
print(total.shape)
"""

IN_SECOND_RUN = """
import os, torch
for number in range(99):
    try:
        os.mkdir(f"{folder}/{{number}}")
        break
    except FileExistsError:
        pass
x = torch.ones(3) + (number == 1)
print(x.sum().exp())
"""


@pytest.mark.slow
def test_what_lies_beside_the_working_directory_is_there_in_its_copy_too(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.txt").write_text("1 2 3 4 5 6 7 8")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text(PREFETCHED)
    code, report = check(["train.py"], tmp_path / "work")
    assert (code, report["verdict"]) == (0, "same")
    assert {v["name"]: v["outcome"] for v in report["variations"]}["working_directory"] == "same"
    assert len(report["runs"]) == 2


@pytest.mark.slow
def test_a_variation_whose_run_fails_is_left_out_at_the_cost_of_one_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(AT_HOME.format(folder=str(tmp_path)))
    code, report = check(["train.py"], tmp_path)
    assert (code, report["verdict"]) == (0, "same")
    found = {v["name"]: v for v in report["variations"]}
    assert found["working_directory"]["outcome"] == "trouble"
    assert "left out" in found["working_directory"]["detail"] and "where I live" in found["working_directory"]["detail"]
    assert found["hash_seed"]["outcome"] == found["umask"]["outcome"] == "same"
    assert len(report["runs"]) == 3


@pytest.mark.slow
def test_a_difference_that_comes_once_is_called_chance(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "train.py").write_text(IN_SECOND_RUN.format(folder=tmp_path / "runs"))
    code, report = check(["train.py"], tmp_path)
    assert (code, report["verdict"], report["cause"]["certain"]) == (1, "different", False)
    assert any("it seems to be chance" in note for note in report["notes"]), report["notes"]


@pytest.mark.exhaustive
def test_a_program_that_goes_by_addresses_is_explained_in_thirteen_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BY_ADDRESS)
    code, report = check(["train.py"], tmp_path)
    assert (code, report["verdict"], report["cause"]["kind"]) == (1, "different", "object-id")
    assert abs(report["cause"]["line"] - 6) <= 1
    assert len(report["runs"]) <= 13  # four of them only make sure that chance is no explanation
