"""`samerun.receipt` and `samerun.mark` inside a program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import samerun
from samerun.base.errors import SamerunError
from samerun.record.receipt import receipt_file
from samerun.record.receipt.diff import diff_runs, load_run

PROGRAM = """
import os, sys
import samerun, torch

def train(extra=0):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3 + extra):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
    samerun.mark("trained", model)
    return model

samerun.mark("outside", 1)
kept = [train()]
with samerun.receipt("one.json"):
    kept.append(train())
train()
with samerun.receipt("two.json"):
    kept.append(train())
    with samerun.receipt("inner.json"):
        kept.append(train(1))
if os.fork() == 0:
    os._exit(0)
os.wait()
try:
    with samerun.receipt("failed.json"):
        train()
        raise KeyError("x")
except KeyError:
    print("raised")
if "end" in sys.argv:
    with samerun.receipt("one.json"):
        open("begun", "w").close()
        os.kill(os.getpid(), 9)
"""


def run(cwd: Path, *words: str, code: int = 0) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SAMERUN_", "RANK"))}
    done = subprocess.run([sys.executable, *words], cwd=cwd, env={**kept, "OMP_NUM_THREADS": "1"}, capture_output=True,
                          text=True)  # fmt: skip
    assert done.returncode == code, done.stderr


def steps(folder: Path, name: str) -> int:
    receipt = receipt_file.read_and_verify_digest(folder / name)
    assert receipt["ended"]["complete"], receipt["ended"]["why"]
    count: int = receipt["processes"]["main"]["steps"]["values"]["count"]
    return count


@pytest.mark.slow
@pytest.mark.parametrize("watched", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_blocks_hold_what_happens_inside_them(watched: bool, tmp_path: Path) -> None:
    """`watched`: the process is recorded from outside too, and the blocks are parts of that record."""
    (tmp_path / "program.py").write_text(PROGRAM)
    outside = ["-m", "samerun", "run", "--quiet", "--receipt", "whole.json"] if watched else []
    run(tmp_path, *outside, "program.py")
    assert [steps(tmp_path, f"{name}.json") for name in ("one", "inner", "two")] == [3, 4, 7]
    one, two = (receipt_file.read_and_verify_digest(tmp_path / f"{name}.json") for name in ("one", "two"))
    tables = [each["processes"]["main"]["steps"]["values"]["rows"] for each in (one, two)]
    assert tables[0] == tables[1][:3]
    assert [each["step"] for each in two["processes"]["main"]["marks"]] == [3, 7]
    assert one["command"] == {"form": "code", "words": ["program.py"]}
    assert len(one["processes"]["main"]["final"]) == 1 and not one["processes"]["main"]["outputs"]
    assert (one["held"] is not None) == watched
    failed = receipt_file.read_and_verify_digest(tmp_path / "failed.json")
    assert failed["ended"]["exception"] == "KeyError" and two["ended"]["exception"] is None
    if watched:
        assert steps(tmp_path, "whole.json") == 3 * 5 + 1 + 3
        whole = receipt_file.read_and_verify_digest(tmp_path / "whole.json")["processes"]["main"]
        assert not whole["outputs"], "samerun's own files are none of the program's"


BEFORE = """
import os, samerun, torch

def train(steps):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
    return model

kept = [train(1)]
open("before.txt", "w").write("x")
torch.save(kept[0].state_dict(), "before.pt")
with samerun.receipt("first.json"):
    train(2)
with samerun.receipt("second.json"):
    kept.append(train(3))
    kept[0](torch.ones(1, 4)) if WITH_FIRST else None
    open("inside.txt", "w").write("x")
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("with_first", [False, True])
def test_what_was_before_a_block_is_no_part_of_it_when_it_is_verified(with_first: bool, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(BEFORE.replace("WITH_FIRST", str(with_first)))
    run(tmp_path, "program.py")
    second = receipt_file.read_and_verify_digest(tmp_path / "second.json")["processes"]["main"]
    assert [each["path"] for each in second["outputs"]] == ["inside.txt"] and len(second["final"]) == 1 + with_first
    run(tmp_path, "-m", "samerun", "verify", "--yes", "second.json")
    if not with_first:
        changed = (tmp_path / "program.py").read_text().replace("train(3)", "train(4)")
        (tmp_path / "program.py").write_text(changed)
        run(tmp_path, "-m", "samerun", "verify", "--yes", "second.json", code=1)


@pytest.mark.slow
def test_a_killed_process_leaves_the_earlier_receipt(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    run(tmp_path, "program.py", "end", code=-9)
    assert (tmp_path / "begun").exists() and steps(tmp_path, "one.json") == 3


def test_each_rank_writes_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with samerun.receipt(tmp_path / "run.json"):
        pass
    assert [path.name for path in tmp_path.glob("*.json")] == ["run.rank1.json"]


def test_a_view_of_which_torch_tells_nothing_is_passed_over(tmp_path: Path) -> None:
    whole = torch.ones(2, requires_grad=True) * 1
    part = whole.unbind(0)[0]
    whole.add_(1)
    with pytest.raises(RuntimeError, match="modified inplace"):
        _ = part.is_leaf
    with samerun.receipt(tmp_path / "run.json"):
        torch.ones(2).add(1)
    assert (tmp_path / "run.json").exists()


def test_a_receipt_that_could_not_be_written_is_refused_before_the_block(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/nowhere/run.json"), Path("/dev/null")):
        with pytest.raises(SamerunError), samerun.receipt(path):
            pytest.fail("the block was entered")


@pytest.mark.parametrize("name", ["", "x" * 201, 3])
def test_a_mark_has_a_name(name: object) -> None:
    with pytest.raises(SamerunError, match="1 to 200"):
        samerun.mark(name)  # type: ignore[arg-type]


def test_marks_tell_values_apart(tmp_path: Path) -> None:
    import torch

    digests = []
    for value in (
        torch.ones(3),
        torch.ones(3, dtype=torch.float64),
        [torch.ones(3)],
        torch.tensor([1, 1, -0.0]),
        1,
        "a",
    ):
        with samerun.receipt(tmp_path / "run.json"):
            samerun.mark("value", value)
        receipt = json.loads((tmp_path / "run.json").read_text())
        digests.append(receipt["processes"]["main"]["marks"][0]["digest"])
    assert len(set(digests)) == len(digests)


BUILT_BEFORE = """
import sys, torch, samerun
if "seeded" in sys.argv:
    torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.BatchNorm1d(2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if "later" in sys.argv:
    torch.manual_seed(1)
with samerun.receipt(sys.argv[1]):
    for _ in range(2):
        model(torch.randn(8, 4)).pow(2).sum().backward()
        optimizer.step()
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "words, generators",
    [
        (["later"], set()),
        ([], {"rng"}),
        (["seeded"], None),
    ],
)
def test_what_was_built_before_the_block_is_the_reason(
    words: list[str], generators: set[str] | None, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(BUILT_BEFORE)
    for name in ("r1.json", "r2.json"):
        subprocess.run([sys.executable, "train.py", name, *words], cwd=tmp_path, check=True)
    record = diff_runs(load_run(tmp_path / "r1.json"), load_run(tmp_path / "r2.json"))
    assert record["verdict"] == ("same" if generators is None else "different")
    if generators is None:
        return
    reasons = {one["path"]: one for one in record["surroundings"]}
    assert list(reasons) in (["start.models", "command"], ["start.models", "start.generators", "command"])
    seeded_later = reasons.get("start.generators", {"a": {}})["a"]
    assert ("rng" in seeded_later) == bool(generators)
    first = reasons["start.models"]
    assert first["a"].startswith("Sequential ") and first["a"] != first["b"]
    assert "before the receipt began" in first["changes"]
