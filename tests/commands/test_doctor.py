"""`samerun doctor`: here, inside a program, and with bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TRAIN = """
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1000):
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    print("step", step, file=open("steps.txt", "a"))
"""
HELD = "import samerun\nsamerun.deterministic(0)\n" + TRAIN


def doctor(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONHASHSEED", "CUBLAS_WORKSPACE_CONFIG")}
    return subprocess.run(
        [sys.executable, "-m", "samerun", "doctor", *words],
        cwd=cwd, env={**environment, **variables}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def record_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(done.stdout)
    record["by_name"] = {one["name"]: one for one in record["switches"]}
    return record


def test_a_plain_shell_has_findings(tmp_path: Path) -> None:
    done = doctor("--json", "-", cwd=tmp_path)
    record = record_of(done)
    assert done.returncode == 1 and record["verdict"] == "findings" and record["schema"] == 1
    hash_seed = record["by_name"]["hash_seed"]
    assert hash_seed["verdict"] == "too late" and "samerun run" in hash_seed["way_out"]
    assert record["by_name"]["deterministic_algorithms"]["in_force"] == "off"
    assert record["machine"]["torch"]["threads"] >= 1 and record["machine"]["libraries"]["torch"]


def test_inside_a_program_at_its_first_step(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "held.py").write_text(HELD)
    plain = record_of(doctor("--json", "-", "train.py", cwd=tmp_path))
    assert plain["read_at"] == "first optimizer step" and plain["program"] == ["train.py"]
    assert plain["by_name"]["deterministic_algorithms"]["verdict"] == "differs"
    assert not (tmp_path / "steps.txt").exists(), "the program is ended there"
    done = doctor("--json", "-", "held.py", cwd=tmp_path, PYTHONHASHSEED="0")
    held = record_of(done)
    assert (done.returncode, held["verdict"]) == (0, "clean")
    assert held["by_name"]["deterministic_algorithms"]["set_by"] == "samerun"
    assert held["by_name"]["hash_seed"]["set_by"] == "environment"


@pytest.mark.slow
def test_a_program_without_steps_is_read_at_its_end(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("import torch; torch.use_deterministic_algorithms(True)")
    record = record_of(doctor("--json", "-", "plain.py", cwd=tmp_path))
    assert record["read_at"] == "end of the program"
    assert record["by_name"]["deterministic_algorithms"]["set_by"] == "program"


@pytest.mark.slow
def test_the_table_says_what_to_do(tmp_path: Path) -> None:
    done = doctor(cwd=tmp_path, COLUMNS="80")
    assert "FINDINGS" in done.stdout and "export PYTHONHASHSEED=0" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert len(doctor("--all", cwd=tmp_path).stdout.splitlines()) > len(done.stdout.splitlines())


def test_trouble(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("raise RuntimeError('broken here')")
    (tmp_path / "hangs.py").write_text("import time; time.sleep(600)")
    for words, said in (
        (["fails.py"], "broken here"),
        (["missing.py"], "no script missing.py"),
        (["--time-limit", "1", "hangs.py"], "longer than 1 s"),
        (["--level", "loud"], "loud"),
    ):
        done = doctor(*words, cwd=tmp_path)
        assert done.returncode == 2 and said in done.stderr, done.stderr
        assert "samerun/" not in done.stderr, "no traceback of ours"


@pytest.mark.slow
def test_ranks_of_torchrun(tmp_path: Path) -> None:
    """One answers; the others would wait for it."""
    # samerun comes first: one switch is read when torch is imported.
    init = "\nimport torch\ntorch.distributed.init_process_group('gloo')\n"
    (tmp_path / "train.py").write_text(HELD.replace("\nimport torch\n", init).replace(".sum()", ".sum().add(0)"))
    words = ["--", sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"]
    done = doctor("--json", "-", *words, cwd=tmp_path, PYTHONHASHSEED="0")
    assert record_of(done)["read_at"] == "first optimizer step" and done.returncode == 0


@pytest.mark.slow
def test_the_snippet_runs_and_holds(tmp_path: Path) -> None:
    done = doctor("--snippet", cwd=tmp_path)
    assert done.returncode == 0
    (tmp_path / "train.py").write_text(done.stdout + TRAIN)
    assert doctor("--quiet", "train.py", cwd=tmp_path, PYTHONHASHSEED="0").returncode == 0
