"""Programs under a check share a busy machine: their threads sleep while they wait, and no bit changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from check_command import check

from samerun.check.execution.processes import (
    BUSY_SHARE,
    MachineLoad,
    choose_openmp_passive_wait_variables,
    read_cpu_seconds_of_self_and_children,
)

PROGRAM = """
import hashlib, os, torch
torch.manual_seed(0)
torch.set_num_threads(2)
model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.LayerNorm(300), torch.nn.Linear(300, 300))
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randn(400, 300)
for _ in range(3):
    model(x).pow(2).mean().backward()
    optimizer.step()
bits = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
print(os.environ.get("OMP_WAIT_POLICY"), hashlib.sha256(bits).hexdigest())
"""


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"])
def test_a_choice_of_the_users_stays(name: str) -> None:
    assert choose_openmp_passive_wait_variables({name: "1"}) == {}
    assert choose_openmp_passive_wait_variables({}) == {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}


@pytest.mark.exhaustive
def test_threads_sleep_while_they_wait_and_compute_the_same_bits(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    said = []
    for own in ({}, {"OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": "1000"}):
        folder = tmp_path / f"kept{len(said)}"
        code, report = check(["--vary", "rerun", "--save", str(folder), "train.py"], tmp_path, **own)
        assert code == 0, report
        said.append((folder / "control-1" / "stdout").read_text().split())
    assert [policy for policy, _ in said] == ["passive", "active"]
    assert said[0][1] == said[1][1]


def test_only_a_machine_that_others_use_is_called_busy() -> None:
    load = MachineLoad()
    begun = load.take_load_sample()
    while read_cpu_seconds_of_self_and_children() - begun[2] < 0.2:
        sum(range(10_000))
    load.add_others_cpu_time_since(begun)
    assert load.possible > 0
    assert load.others <= load.possible * 1.2
    cores = os.cpu_count() or 1
    assert MachineLoad(others=BUSY_SHARE * 10 * cores * 0.9, possible=10 * cores).busy_note == ""
    assert "took 90% of" in MachineLoad(others=9.0, possible=10.0).busy_note
