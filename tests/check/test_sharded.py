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
FOUR_RANKS = ("hsdp", "megatron_layers", "mesh", "moe_alltoall", "zero2_snapshot")
RANKS = dict.fromkeys(FOUR_RANKS, 4) | {
    "async_collectives": 0,
    "seed_by_name": 3,
    "receive_in_threads": 3,
    "headers_first": 3,
}
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
    Hazard("tensor_parallel", "rank", ("unseeded-torch",)),
    Hazard("dtensor", "time", ("time",)),
    Hazard("async_collectives", "race", ("async-order",)),
    Hazard("async_collectives", "arrival", ("async-order",), is_certain=False),
    Hazard("functional", "unseeded", ("unseeded-torch-generator", "os-entropy")),
    Hazard("pipeline", "unseeded", ("unseeded-torch",)),
    Hazard("sharded_checkpoint", "seed", ("os-entropy",)),
    Hazard("ddp_accumulate", "time", ("time",)),
    Hazard("mesh", "entropy", ("os-entropy",)),
    Hazard("tensor_parallel_by_hand", "dropout", ("unseeded-torch",)),
    Hazard("shard_queue", "queue", ("async-order",), is_certain=False),
    Hazard("seed_by_name", "hash", ("hash-order",)),
    Hazard("receive_in_threads", "arrival", ("async-order",)),
    Hazard("headers_first", "arrival", ("async-order",), is_certain=False),
    Hazard("headers_first", "early", ("async-order",)),
    Hazard("gradient_hooks", "dither", ("time",)),
    Hazard("gradient_hooks", "arrival", ("async-order",)),
    Hazard("deferred", "layers", ("uninitialised-memory",)),
    Hazard("hsdp", "listing", ("listing-order",)),
)
UNTIDY = ("megatron_layers", "moe_alltoall", "titan_fsdp2", "zero2_snapshot")
"""Written without a look at samerun: timers, polling, heartbeats, threads, caches by `id`, memory from `empty`."""
CLEAN = sorted({*(hazard.program for hazard in HAZARDS), *UNTIDY})


def launch(program: str, *words: str) -> list[str]:
    ranks = RANKS.get(program, 2)
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)] if ranks else []
    return [sys.executable, *launcher, str(FOLDER / f"{program}.py"), *words]


def run_check(tmp_path: Path, program: str, *words: str) -> tuple[int, dict[str, Any]]:
    return check(["--", *launch(program, *words)], tmp_path, OMP_NUM_THREADS="1")


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(1, int(os.environ.get("CLEAN_CHECKS", "1")) + 1))
@pytest.mark.parametrize("program", CLEAN)
def test_clean_programs_are_the_same(program: str, number: int, tmp_path: Path) -> None:
    """`CLEAN_CHECKS=10` checks each ten times: a false alarm may be rare."""
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


def run_resumed_check(tmp_path: Path, *words: str) -> tuple[int, dict[str, Any]]:
    options = ["--vary", "resume", "--interrupt", "STOP_AT=3 CKPT={folder}", "--resume", "CKPT={folder}"]
    return check([*options, "--", *launch("dcp_resume", *words)], tmp_path, OMP_NUM_THREADS="1")


@pytest.mark.exhaustive
def test_a_training_goes_on_from_a_distributed_checkpoint_as_if_in_one_go(tmp_path: Path) -> None:
    code, report = run_resumed_check(tmp_path)
    assert (code, report["verdict"]) == (0, "same"), (report["first_difference"], report["cause"])


@pytest.mark.exhaustive
def test_the_generator_of_rank_0_for_all_is_named_where_it_is_put_back(tmp_path: Path) -> None:
    code, report = run_resumed_check(tmp_path, "rng")
    lines = (FOLDER / "dcp_resume.py").read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.endswith("# WRONG rng"))
    cause = report["cause"]
    assert (code, cause["kind"]) == (1, "resume-rng"), cause
    assert abs(cause["line"] - line) <= LINE_TOLERANCE, cause
    assert report["first_difference"]["process"] == "rank1"


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", ["ddp", "fsdp"])
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


@pytest.mark.exhaustive
def test_groups_that_end_before_their_model_do_not_hang(tmp_path: Path) -> None:
    """torch frees a group while it keeps the lock for which gloo's thread waits: a few of these hang it."""
    (tmp_path / "train.py").write_text(
        """
import tempfile
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

def train(rank, folder):
    torch.set_num_threads(1)
    for number in range(15):
        dist.init_process_group("gloo", init_method=f"file://{folder}/{number}", rank=rank, world_size=2)
        model = DistributedDataParallel(torch.nn.Linear(8, 8))
        model(torch.ones(4, 8)).sum().backward()
        dist.destroy_process_group()
        del model

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(train, (folder,), nprocs=2, start_method="fork")
""",
        encoding="utf-8",
    )
    code, report = check(["--vary", "rerun", "--time-limit", "120", "train.py"], tmp_path)
    assert (code, report["verdict"]) == (0, "same"), report
