"""`samerun.guard(..., also="peer")`: steps that another rank computes too, machines that compute wrong, clean steps."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from typing import Any

import pytest
from repository_paths import PROGRAMS

PROGRAM = PROGRAMS / "sharded" / "peers.py"
STRUCK = 3
PLACES = {"result": 60, "gradient": 6, "state": 18, "collective": 3}
"""So many results, gradients, states and collectives there are in a computation, at least."""
Trial = tuple[int, str, int, int, str]
CLEAN: Trial = (0, "", 0, 0, "once")


def run_trials(
    ranks: int, trials: list[Trial], layout: str = "ddp"
) -> tuple[list[dict[str, Any]], list[list[dict[str, Any]]]]:
    """What each rank had without faults, and in each trial."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SAMERUN_", "RANK"))}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(ranks), json.dumps(trials), layout],
        env={**kept, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=590,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return told["plain"], told["trials"]


def draw_faults(count: int, ranks: int, seed: int) -> list[Trial]:
    draws = random.Random(seed)
    found: list[Trial] = []
    for at in range(count):
        kind = [*PLACES, "result"][at % 5]
        often = draws.choice(["once", "always"])
        found.append((draws.randrange(ranks), kind, draws.randrange(PLACES[kind]), draws.randrange(31), often))
    return found


def require_caught(plain: list[dict[str, Any]], told: list[dict[str, Any]], trial: Trial) -> None:
    """A fault is reported in its step, on all ranks; the wrong rank alone is named where two ranks can know it."""
    where, kind, _, _, often = trial
    ranks = len(told)
    assert told[where]["struck"] >= 1, "the test would show nothing"
    said = [line for line in told[0]["said"] if isinstance(line, str)]
    if often == "always" and kind in ("gradient", "state"):  # memory that changes may be the program's own doing
        assert [line.startswith("StepNotRepeatableError: step 3") for line in said] == [True]
        return
    assert len(said) == 1, said
    records = [record for of_rank in told for record in of_rank["records"]]
    assert [record["step"] for record in records] == [STRUCK] * ranks
    is_known = often == "once" or ranks > 2
    assert all(record["ranks_with_wrong_results"] == ([where] if is_known else [0, 1]) for record in records), said
    assert all(record["repeats"] == (often == "always") for record in records)
    if often == "once":  # the training goes on as if there had been no fault
        assert [(each["total"], each["drawn"]) for each in told] == [(each["total"], each["drawn"]) for each in plain]


def inject_faults(count: int, ranks: int, seed: int, layout: str = "ddp") -> None:
    trials = [CLEAN, *draw_faults(count, ranks, seed)]
    plain, told = run_trials(ranks, trials, layout)
    assert told[0] == plain, "a clean training is as it was"
    assert all(each["records"] == [] and not any(isinstance(line, str) for line in each["said"]) for each in plain)
    missed = []
    for trial, of_ranks in zip(trials[1:], told[1:], strict=True):
        try:
            require_caught(plain, of_ranks, trial)
        except AssertionError as error:
            missed.append((trial, str(error)[:300]))
    assert not missed


@pytest.mark.exhaustive
def test_faults_of_one_of_two_ranks_are_caught() -> None:
    inject_faults(10, 2, 0)


@pytest.mark.exhaustive
def test_faults_of_one_of_three_ranks_are_caught_and_the_rank_is_named() -> None:
    inject_faults(10, 3, 1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("layout", ["ddp", "fsdp", "tensor"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_many_faults_are_caught(ranks: int, layout: str) -> None:
    inject_faults(100, ranks, 2 + ranks, layout)


@pytest.mark.exhaustive
@pytest.mark.parametrize("layout", ["ddp", "fsdp", "tensor"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_thousand_clean_steps_are_the_same(ranks: int, layout: str) -> None:
    _, [told] = run_trials(ranks, [(-1, "clean", 1000, 0, "once")], layout)
    assert all(of_rank["records"] == [] and len(of_rank["said"]) == 1000 for of_rank in told)
    assert all(isinstance(value, float) for value in told[0]["said"])


@pytest.mark.exhaustive
def test_programs_that_depend_on_the_rank_or_are_sharded_are_refused_and_a_wrong_sum_is_noticed() -> None:
    names = ["reads rank", "draws by rank", "uneven", "flat", "hook", "collective"]
    _, told = run_trials(2, [(-1, name, 2, 22, "once") for name in names])
    by_name = dict(zip(names, told, strict=True))
    for name in names[:4]:
        for of_rank in by_name[name]:
            assert of_rank["records"] == []
            said = of_rank["said"][-1]
            if name == "uneven":
                assert "do not hold parts of the same shapes on all ranks: where rank 0 has (3, 12), rank 1 has" in said
            elif name == "flat":
                assert said == 'SamerunError: guard(also="peer"): the model is sharded with FullyShardedDataParallel.'
            else:
                assert said.startswith("StepNotRepeatableError: step 1 of rank 0 has other results each time"), said
    assert all(of_rank["records"] == [] and isinstance(of_rank["said"][-1], float) for of_rank in by_name["hook"])
    said = [line for line in by_name["collective"][0]["said"] if isinstance(line, str)]
    assert len(said) == 1 and "c10d.allreduce_.default gave the ranks two different results in step 3" in said[0]
