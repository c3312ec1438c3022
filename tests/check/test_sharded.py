"""Programs on several ranks: FSDP2, tensor and pipeline parallelism, DTensor, sharded checkpoints, collectives.

Each is clean as it is: no check may find a difference. With a word it has the hazard that the word names, at the line
marked `# WRONG word`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from check_command import LINE_TOLERANCE, check
from repository_paths import PROGRAMS

FOLDER = PROGRAMS / "sharded"
RANKS = {"mesh": 4, "async_collectives": 0}
"""How many ranks torchrun starts; 0: the program starts its own."""


class Hazard(NamedTuple):
    """What is planted, and the kinds of cause that name it rightly."""

    program: str
    word: str
    kinds: tuple[str, ...]
    is_certain: bool = True


HAZARDS = (
    Hazard("fsdp", "set", ("hash-order",)),
    Hazard("fsdp", "entropy", ("os-entropy",)),
    Hazard("fsdp_mixed", "dropout", ("os-entropy", "unseeded-torch")),
    Hazard("tensor_parallel", "dropout", ("os-entropy",)),
    Hazard("dtensor", "time", ("time",)),
    Hazard("async_collectives", "race", ("async-order",)),
    Hazard("async_collectives", "arrival", ("async-order",), is_certain=False),
    Hazard("functional", "unseeded", ("unseeded-torch-generator", "os-entropy")),
    Hazard("pipeline", "unseeded", ("unseeded-torch",)),
    Hazard("sharded_checkpoint", "seed", ("os-entropy",)),
    Hazard("ddp_accumulate", "time", ("time",)),
    Hazard("mesh", "entropy", ("os-entropy",)),
)
CLEAN = sorted({hazard.program for hazard in HAZARDS})


def launch(program: str, *words: str) -> list[str]:
    ranks = RANKS.get(program, 2)
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)] if ranks else []
    return [sys.executable, *launcher, str(FOLDER / f"{program}.py"), *words]


def run_check(tmp_path: Path, program: str, *words: str) -> tuple[int, dict[str, Any]]:
    return check(["--", *launch(program, *words)], tmp_path, OMP_NUM_THREADS="1")


@pytest.mark.exhaustive
@pytest.mark.parametrize("program", CLEAN)
def test_clean_programs_are_the_same(program: str, tmp_path: Path) -> None:
    code, report = run_check(tmp_path, program)
    assert (code, report["verdict"]) == (0, "same"), (report["first_difference"], report["cause"])


@pytest.mark.exhaustive
@pytest.mark.parametrize("hazard", HAZARDS, ids=lambda each: f"{each.program}-{each.word}")
def test_planted_hazards_are_named(hazard: Hazard, tmp_path: Path) -> None:
    code, report = run_check(tmp_path, hazard.program, hazard.word)
    lines = (FOLDER / f"{hazard.program}.py").read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.endswith(f"# WRONG {hazard.word}"))
    cause = report["cause"]
    assert (code, cause["certain"]) == (1, hazard.is_certain), cause
    assert cause["kind"] in hazard.kinds and Path(cause["file"]).name == f"{hazard.program}.py", cause
    assert abs(cause["line"] - line) <= LINE_TOLERANCE, cause


@pytest.mark.parametrize(
    "how", [pytest.param("ddp", marks=pytest.mark.exhaustive), pytest.param("fsdp", marks=pytest.mark.slow)]
)
def test_a_rank_that_computes_wrong_is_named_on_all(how: str, tmp_path: Path) -> None:
    results = []
    for words in ([how], [how, "1"]):
        done = subprocess.run(
            launch("guarded", *words), cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True, text=True, timeout=300, check=True,
        )  # fmt: skip
        said = sorted(line for line in done.stdout.splitlines() if line.startswith(("RESULT", "RANK")))
        results.append([line.split()[-1] for line in said if line.startswith("RESULT")])
        reports = [line for line in said if line.startswith("RANK")]
    assert len(reports) == 2 and reports[0].startswith("RANK 0: rank 1 computed step 3 wrong")
    assert reports[1].startswith("RANK 1: rank 1 on ") and "aten.mm.default" in reports[1]
    assert results[0] == results[1], "the training goes on as if there had been no fault"
    assert len(list((tmp_path / "samerun-guard").glob("step-00000003-rank*.json"))) == 2
