"""`samerun verify --step`: a step that guard kept, computed again by another Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import samerun
from samerun.base.errors import SamerunError
from samerun.data.checkpoint_file import digest_plain_value
from samerun.step_replay import read_step

PROGRAM = """
import os, sys, torch, samerun
torch.set_num_threads(1)
samerun.seed_everything(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
own = torch.Generator().manual_seed(1)
guard = samerun.guard(model, optimizer, scheduler, every=2, keep=True)

def step(batch, scale):
    optimizer.zero_grad()
    batch["x"].mul_(2)
    hidden = model[0](batch["x"]) + torch.rand(8, generator=own)
    hidden = hidden + float(os.environ.get("WRONG", 0))  # WRONG
    loss = model[1:](hidden).pow(2).mean() * scale
    loss.backward()
    optimizer.step()
    scheduler.step()
    return loss

for number in range(6):
    guard.step(step, {"x": torch.randn(12, 6)[3:, 1:5]}, 0.5)
print("trained")
"""


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SAMERUN_")}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env={**kept, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    (folder / "train.py").write_text(PROGRAM)
    done = run(folder, "train.py")
    assert done.stdout == "trained\n", done.stderr
    assert sorted(path.name for path in (folder / "samerun-guard").iterdir()) == [
        f"step-0000000{number}.pt" for number in (1, 3, 5)
    ]
    return folder


def verify(folder: Path, *options: str, **environment: str) -> tuple[int, dict[str, Any], str]:
    done = run(folder, "-m", "samerun", "verify", "--json", "-", *options, **environment)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize("step", [pytest.param("1", marks=pytest.mark.exhaustive), "5"])
def test_a_step_is_the_same_in_another_process(trained: Path, step: str) -> None:
    code, record, said = verify(trained, "--step", step, "--on", f"env -u NOTHING {sys.executable}", "train.py")
    assert (code, record.get("verdict"), record.get("step")) == (0, "same", int(step)), said
    assert record["operators"] > 20


@pytest.mark.exhaustive
def test_a_machine_that_computes_something_else_is_found(trained: Path) -> None:
    wrong = [
        "--step",
        "samerun-guard/step-00000005.pt",
        "--on",
        f"env ATEN_CPU_CAPABILITY=default WRONG=1e-3 {sys.executable}",
    ]
    code, record, said = verify(trained, *wrong, "train.py")
    line = next(number for number, text in enumerate(PROGRAM.splitlines(), 1) if text.endswith("# WRONG"))
    assert (code, record.get("verdict")) == (1, "different"), said
    assert (record["operator"], record["location"]) == ("aten.add.Tensor", f"train.py:{line}")
    assert not record["is_other_program"]
    people = run(trained, "-m", "samerun", "verify", *wrong, "train.py")
    assert people.returncode == 1 and "Step 5 differs on env" in people.stdout, people.stdout


@pytest.mark.exhaustive
def test_trouble_is_trouble(trained: Path, tmp_path: Path) -> None:
    for options, said in (
        (["--step", "2", "train.py"], "step-00000002.pt holds no step"),
        (["--step", "5"], "none is named"),
        (["--step", "5", "--", "torchrun", "train.py"], "a program on one rank"),
        (["--on", sys.executable, "train.py"], "--on OTHER says where"),
        (["--step", "5", "--on", "/no/python", "train.py"], "/no/python"),
        (["--step", "5", "--on", "false", "train.py"], "before it computed a guarded step"),
    ):
        code, record, errors = verify(trained, *options)
        assert code == 2 and record == {} and said in errors, (options, errors)
    (tmp_path / "other.py").write_text(PROGRAM.replace("Linear(8, 1)", "Linear(8, 2)"))
    code, _, errors = verify(trained, "--step", "5", str(tmp_path / "other.py"))
    assert code == 2 and "does not hold what it held before step 5" in errors


class Bomb:
    def __reduce__(self) -> Any:
        return os.mkdir, ("exploded",)


@pytest.mark.slow
def test_a_hostile_step_is_refused(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    content = (trained / "samerun-guard" / "step-00000005.pt").read_bytes()
    path = tmp_path / "step.pt"
    refused = 0
    for at in range(0, len(content), len(content) // 50):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        try:
            read_step(path)
        except SamerunError:
            refused += 1
    assert refused > 30
    for body in (Bomb(), [1], {"step": Bomb()}):
        torch.save({"samerun_step": 1, "body": body, "digest": "0" * 32}, path)
        with pytest.raises(SamerunError, match="holds no step"):
            read_step(path)
    assert not Path("exploded").exists()
    torch.save({"samerun_step": 1, "body": [1], "digest": digest_plain_value([1])}, path)
    assert run(trained, "-m", "samerun", "verify", "--step", str(path), "train.py").returncode == 2


def test_what_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    layer = torch.nn.Linear(2, 2)
    guard = samerun.guard(layer, every=1, keep=True, folder=tmp_path)
    with pytest.raises(SamerunError, match=r"guard\(keep=True\)"):
        guard.step(lambda path: layer(torch.ones(2)), tmp_path)
    with pytest.raises(SamerunError, match="on one rank only"):
        samerun.guard(layer, every=1, keep=True, also="peer")
    with pytest.raises(SamerunError, match="there is one rank alone"):
        samerun.guard(layer, every=1, also="peer").step(lambda: layer(torch.ones(2)))
    with pytest.raises(SamerunError, match="also='both'"):
        samerun.guard(layer, every=1, also="both")  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_step_of_several_ranks_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch, torch.distributed as dist, samerun\n"
        "from torch.testing._internal.distributed.fake_pg import FakeStore\n"
        "dist.init_process_group('fake', store=FakeStore(), rank=0, world_size=2)\n"
        "guard = samerun.guard(torch.nn.Linear(2, 2), every=1, keep=True)\n"
        "guard.step(lambda: None)\n"
    )
    done = run(tmp_path, "train.py")
    assert done.returncode == 1 and "a step of several ranks cannot be kept" in done.stderr, done.stderr
