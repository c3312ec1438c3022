"""`samerun.checkpoint.save_sharded` and `load_sharded`: on as many ranks or others, damaged and hostile files."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from repository_paths import PROGRAMS

import samerun
from samerun.base.errors import CheckpointError
from samerun.data import checkpoint_file, sharded_checkpoint, sharded_files

PROGRAM = PROGRAMS / "sharded" / "resume.py"


def run(ranks: int, folder: Path, what: str, *words: str) -> str:
    """What rank 0 says at the end."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SAMERUN_", "RANK"))}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(ranks), str(folder), what, *words],
        env={**kept, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    said = [line for line in done.stdout.splitlines() if line.startswith(("DIGEST", "REFUSED"))]
    assert len(said) == 1, done.stderr  # gloo may abort a rank afterwards, when the other one is gone already
    return said[0]


@pytest.mark.exhaustive
def test_a_resumed_training_goes_on_exactly_on_as_many_ranks_and_on_others(tmp_path: Path) -> None:
    saved = run(2, tmp_path, "save", "hook")
    assert saved.startswith("DIGEST")
    assert run(2, tmp_path, "load", "hook") == saved
    assert run(4, tmp_path, "load", "hook") == saved


@pytest.mark.exhaustive
def test_a_resumed_training_is_the_one_that_was_not_interrupted(tmp_path: Path) -> None:
    straight = {run(ranks, tmp_path / "none", "straight", "hook") for ranks in (1, 2, 4)}
    assert len(straight) == 1
    assert {run(4, tmp_path, "save", "hook", "async")} == straight
    assert {run(ranks, tmp_path, "load", "hook") for ranks in (1, 2, 4)} == straight


@pytest.mark.exhaustive
@pytest.mark.parametrize("word", ["dropout", "norm"])
def test_what_each_rank_has_for_itself_is_not_given_to_others(word: str, tmp_path: Path) -> None:
    saved = run(2, tmp_path, "save", word, "async")
    assert run(2, tmp_path, "load", word) == saved
    refused = run(4, tmp_path, "load", word)
    lacking = "state of the generator of torch" if word == "dropout" else "model.1.running_mean"
    assert refused.startswith("REFUSED") and lacking in refused
    if word == "dropout":
        drawn = [
            each[1]
            for each in json.loads(run(4, tmp_path, "load", word, "reseed").removeprefix("DIGEST ").replace("'", '"'))
        ]
        assert len(set(drawn)) == 4, "each rank has another generator"
        again = run(4, tmp_path, "load", word, "reseed")
        assert [each[1] for each in json.loads(again.removeprefix("DIGEST ").replace("'", '"'))] == drawn


@pytest.mark.exhaustive
def test_the_generators_of_a_single_rank_are_not_given_to_several(tmp_path: Path) -> None:
    assert run(1, tmp_path, "save", "dropout").startswith("DIGEST")
    refused = run(2, tmp_path, "load", "dropout")
    assert "saved on 1 rank, which had its own" in refused and "state of the generator of torch" in refused
    drawn = json.loads(run(2, tmp_path, "load", "dropout", "reseed").removeprefix("DIGEST ").replace("'", '"'))
    assert len({each[1] for each in drawn}) == 2


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    store = dist.FileStore(str(tmp_path_factory.mktemp("store") / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def make_parts() -> dict[str, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=0.1)}


def train(parts: dict[str, Any], steps: int) -> list[float]:
    said = []
    for _ in range(steps):
        parts["optimizer"].zero_grad()
        loss = parts["model"](torch.randn(5, 3)).pow(2).mean()
        loss.backward()
        parts["optimizer"].step()
        said.append(loss.item())
    return said


def test_a_checkpoint_is_gone_on_from_and_its_predecessor_stays(one_rank: None, tmp_path: Path) -> None:
    parts = make_parts()
    later = []
    for step in range(4):
        samerun.checkpoint.save_sharded(tmp_path, extra={"step": step}, **parts)
        later.append(train(parts, 2))
    assert len(list(tmp_path.glob("shards-*.pt"))) == 2, "older ones are deleted"
    for previous, step in ((False, 3), (True, 2)):
        parts = make_parts()
        assert samerun.checkpoint.load_sharded(tmp_path, previous=previous, **parts) == {"step": step}
        assert train(parts, 2) == later[step]


def test_a_checkpoint_in_the_background_holds_the_state_of_the_call(one_rank: None, tmp_path: Path) -> None:
    average = torch.nn.Linear(2, 2)  # its state is an OrderedDict of its own memory
    kept = average.weight.detach().clone()
    parts = {**make_parts(), "scaler": average}
    train(parts, 1)
    pending = samerun.checkpoint.save_sharded(tmp_path, wait=False, **parts)
    average.weight.data.zero_()
    later = train(parts, 3)
    assert pending is not None
    pending.wait()
    assert pending.is_done
    parts = {**make_parts(), "scaler": average}
    samerun.checkpoint.load_sharded(tmp_path, **parts)
    assert torch.equal(average.weight, kept)
    assert train(parts, 3) == later


def test_an_interrupted_save_leaves_the_predecessor_whole(
    one_rank: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = make_parts()
    samerun.checkpoint.save_sharded(tmp_path, extra=1, **parts)
    later = train(parts, 2)

    def fail(*unused: Any) -> None:
        raise OSError(28, "No space left on device")

    for function in ("replace_manifest", "write_archive"):
        with monkeypatch.context() as patch:
            patch.setattr(sharded_files, function, fail)
            with pytest.raises(OSError, match="No space left"):
                samerun.checkpoint.save_sharded(tmp_path, extra=2, **parts)
    parts = make_parts()
    assert samerun.checkpoint.load_sharded(tmp_path, **parts) == 1
    assert train(parts, 2) == later


SAVING = """
import sys, torch, samerun
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1] + "/store", 1), rank=0, world_size=1)
model = torch.nn.Linear(300, 300, bias=False)
for number in range(10**6):
    model.weight.data.fill_(number)
    samerun.checkpoint.save_sharded(sys.argv[1] + "/saved", model=model, extra=number, wait=number % 2 == 0)
    if number == 2:
        print("saved", flush=True)
"""


@pytest.mark.exhaustive
def test_a_save_that_is_killed_leaves_a_whole_checkpoint(one_rank: None, tmp_path: Path) -> None:
    draws, numbers = random.Random(0), []
    for _ in range(6):
        (tmp_path / "store").unlink(missing_ok=True)
        process = subprocess.Popen([sys.executable, "-c", SAVING, str(tmp_path)], stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == b"saved\n"
        time.sleep(draws.random() / 5)
        process.kill()
        process.wait()
        process.stdout.close()
        for previous in (False, True):
            model = torch.nn.Linear(300, 300, bias=False)
            number = samerun.checkpoint.load_sharded(tmp_path / "saved", model=model, previous=previous, rng=False)
            assert model.weight.eq(number).all()
            numbers.append(number)
    assert len(set(numbers)) > 2


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= 1
    path.write_bytes(bytes(data))


def test_damaged_files_are_refused_and_nothing_is_changed(one_rank: None, tmp_path: Path) -> None:
    parts = make_parts()
    train(parts, 1)
    samerun.checkpoint.save_sharded(tmp_path, extra=1, **parts)
    files = [tmp_path / sharded_files.MANIFEST, next(tmp_path.glob("shards-*.pt"))]
    whole = [path.read_bytes() for path in files]
    fresh = make_parts()
    before = [value.clone() for value in fresh["model"].state_dict().values()]
    refused = 0
    for path, content in zip(files, whole, strict=True):
        for at in range(0, len(content), max(1, len(content) // 60)):
            flip(path, at)
            try:
                samerun.checkpoint.load_sharded(tmp_path, **fresh)
                fresh = make_parts()  # a byte between the parts of the archive, which nobody reads
            except CheckpointError:
                refused += 1
                assert not fresh["optimizer"].state
                assert all(map(torch.equal, before, fresh["model"].state_dict().values()))
            path.write_bytes(content)
    assert refused > 60
    files[1].unlink()
    with pytest.raises(CheckpointError, match=r"rank00000\.pt is damaged"):
        samerun.checkpoint.load_sharded(tmp_path, **fresh)


class Bomb:
    def __reduce__(self) -> Any:
        return os.mkdir, ("exploded",)


def spoil(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """A manifest with a right digest, and something wrong in it."""

    def write(folder: Path) -> None:
        path = folder / sharded_files.MANIFEST
        body = checkpoint_file.map_untrusted_archive_into_memory(path).content["body"]
        checkpoint_file.copy_tensors_out_of_mapped_file(body)
        change(body)
        torch.save({"samerun_sharded": 1, "body": body, "digest": checkpoint_file.digest_plain_value(body)}, path)

    return write


def chunk(body: dict[str, Any]) -> list[Any]:
    found: list[Any] = body["tensors"]["model.0.weight"]["chunks"][0]
    return found


HOSTILE: dict[str, Callable[[Path], Any]] = {
    "pickle": lambda folder: torch.save({"samerun_sharded": 1, "body": Bomb()}, folder / "manifest.pt"),
    "pickled chunk": lambda folder: torch.save({"chunks": {0: Bomb()}}, next(folder.glob("shards-*"))),
    "no manifest": lambda folder: torch.save([1], folder / "manifest.pt"),
    "pipe": lambda folder: ((folder / "manifest.pt").unlink(), os.mkfifo(folder / "manifest.pt")),
    "outside": spoil(lambda body: chunk(body).__setitem__(0, [3, 0])),
    "negative": spoil(lambda body: chunk(body).__setitem__(0, [-1, 0])),
    "short": spoil(lambda body: chunk(body).__setitem__(1, [2, 3])),
    "twice": spoil(lambda body: body["tensors"]["model.0.weight"]["chunks"].append(chunk(body))),
    "rank": spoil(lambda body: chunk(body).__setitem__(2, 7)),
    "path": spoil(lambda body: body.__setitem__("generation", "../../etc")),
    "huge": spoil(lambda body: body["tensors"]["model.0.weight"].__setitem__("shape", [1 << 40, 1 << 40])),
    "no ranks": spoil(lambda body: body.__setitem__("own", [])),
    "other number": spoil(lambda body: chunk(body).__setitem__(3, 1)),
    "other type": spoil(lambda body: body["tensors"]["model.0.weight"].__setitem__("dtype", torch.float64)),
    "no tensor": spoil(lambda body: body["tensors"].pop("model.0.weight")),
    "more tensors": spoil(lambda body: body["tensors"].__setitem__("model.x", body["tensors"]["model.0.weight"])),
    "deep": spoil(lambda body: body["tensors"].__setitem__("model.0.weight", [[[[[]]]]])),
}


@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_hostile_files_are_refused(kind: str, one_rank: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parts = make_parts()
    samerun.checkpoint.save_sharded(tmp_path / "saved", **parts)
    HOSTILE[kind](tmp_path / "saved")
    before = [value.clone() for value in parts["model"].state_dict().values()]
    with pytest.raises(CheckpointError):
        samerun.checkpoint.load_sharded(tmp_path / "saved", **parts)
    assert all(map(torch.equal, before, parts["model"].state_dict().values()))
    assert not Path("exploded").exists()


def test_misuse_is_refused_in_words(one_rank: None, tmp_path: Path) -> None:
    parts = make_parts()
    with pytest.raises(CheckpointError, match=r"there is no manifest\.pt"):
        samerun.checkpoint.load_sharded(tmp_path, **parts)
    with pytest.raises(CheckpointError, match="needs model="):
        samerun.checkpoint.save_sharded(tmp_path, optimizer=parts["optimizer"])
    with pytest.raises(CheckpointError, match="extra is a"):
        samerun.checkpoint.save_sharded(tmp_path, extra=object(), **parts)
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="save_sharded"):
        samerun.checkpoint.save_sharded(tmp_path / "file", **parts)
    samerun.checkpoint.save_sharded(tmp_path, model=parts["model"])
    with pytest.raises(CheckpointError, match="it holds no optimizer"):
        samerun.checkpoint.load_sharded(tmp_path, **parts)
    with pytest.raises(CheckpointError, match=r"model\.weight"):
        samerun.checkpoint.load_sharded(tmp_path, model=torch.nn.Linear(2, 2))
    with pytest.raises(CheckpointError, match="it holds no scheduler"):
        schedule = torch.optim.lr_scheduler.StepLR(parts["optimizer"], 1)
        samerun.checkpoint.load_sharded(tmp_path, model=parts["model"], scheduler=schedule)


def test_without_a_process_group_it_says_what_to_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sharded_checkpoint.dist, "is_initialized", lambda: False)
    with pytest.raises(CheckpointError, match="not initialised"):
        samerun.checkpoint.save_sharded(tmp_path, model=torch.nn.Linear(1, 1))
