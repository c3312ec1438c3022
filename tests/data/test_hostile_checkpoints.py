"""Hostile checkpoints end in CheckpointError, in bounded time and memory, with nothing changed."""

from __future__ import annotations

import os
import time
import zipfile
from pathlib import Path
from typing import Any

import fuzz_checkpoints as fuzz
import pytest
import torch

import samerun
from samerun.base.errors import CheckpointError
from samerun.control.rng.isolation import isolate_rng
from samerun.data import checkpoint_file
from samerun.data.checkpoint_file import digest_plain_value


def seal(path: Path, extra: Any, digest: str = "0" * 32) -> None:
    """A checkpoint with some value in it, as whoever writes one by hand can."""
    held = {"extra": extra, "rng": [samerun.state_dict()]}
    digests = {"extra": digest, "rng": digest_plain_value(held["rng"])}
    torch.save({"samerun_checkpoint": 1, "parts": held, "digests": digests, "torch": "2"}, path)


BASE = torch.ones(1 << 20)


def cyclic() -> Any:
    value: list[Any] = [1]
    value.append(value)
    return value


def nested() -> Any:
    value: Any = ["x"]
    for _ in range(60):
        value = [value, value]
    return value


def deep() -> Any:
    value: Any = 1
    for _ in range(300):
        value = (value,)
    return value


def long_keys() -> Any:
    return {"k" * (1 << 20): {str(number): number for number in range(10_000)}}


@pytest.mark.parametrize(
    "make",
    [
        cyclic, nested, deep, long_keys,
        lambda: torch.ones(1).expand(10**13),
        lambda: [BASE.expand(size, 1 << 20) for size in range(3, 803)],
        lambda: torch.empty(2, device="meta"),
        lambda: 1 << 40_000,
        lambda: bytearray(b"x"),
    ],
    ids=["cyclic", "nested", "deep", "long keys", "expanded", "often", "meta", "number", "bytearray"],
)  # fmt: skip
def test_values_without_end(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    seal(path, make())
    begin = time.process_time()
    with pytest.raises(CheckpointError):
        samerun.checkpoint.load(path)
    assert time.process_time() - begin < 5
    if make in (cyclic, nested, deep):
        with pytest.raises(CheckpointError):  # nor are they written
            checkpoint_file.require_loadable_with_weights_only(make(), "extra")


def test_expanded_tensors_are_digested_by_their_memory(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    large = {"mask": torch.ones(4, dtype=torch.bool).expand(10**9, 4), "odd": torch.arange(6.0).view(2, 3).t()}
    samerun.checkpoint.save(path, extra=large)
    loaded = samerun.checkpoint.load(path)
    assert loaded["mask"].shape == (10**9, 4) and torch.equal(loaded["odd"], large["odd"])
    other = {**large, "mask": torch.zeros(4, dtype=torch.bool).expand(10**9, 4)}
    assert len({digest_plain_value(each) for each in (large, other, {**large, "mask": large["mask"][1:]})}) == 3
    # checkpoints of earlier versions hold the digest of all elements
    smaller = torch.rand(7).expand(100_000, 7)
    seal(path, smaller, digest_plain_value(smaller.contiguous()))
    assert torch.equal(samerun.checkpoint.load(path), smaller)
    cut = torch.rand(3000, 4000).t()
    assert digest_plain_value(cut) == digest_plain_value(cut.contiguous()), "in pieces as in one"


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    os.mkfifo(tmp_path / "pipe")
    os.symlink("/dev/zero", tmp_path / "zeros")
    for name in ("pipe", "zeros", "."):
        with pytest.raises(CheckpointError):
            samerun.checkpoint.load(tmp_path / name)
    samerun.checkpoint.save(path, extra=torch.zeros(1 << 20))
    with zipfile.ZipFile(path) as good, zipfile.ZipFile(tmp_path / "packed.pt", "w", zipfile.ZIP_DEFLATED) as packed:
        for entry in good.infolist():
            packed.writestr(entry.filename, good.read(entry))
    with pytest.raises(CheckpointError, match="packed"):
        samerun.checkpoint.load(tmp_path / "packed.pt")
    torch.save({"samerun_checkpoint": 1}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(CheckpointError):
        samerun.checkpoint.load(tmp_path / "old.pt")


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="names of open files")
def test_a_file_that_is_replaced_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = tmp_path / "c.pt", torch.load
    samerun.checkpoint.save(path, extra=torch.ones(5000))

    def replace_and_read(name: Any, **options: Any) -> Any:
        samerun.checkpoint.save(path, extra="another, and smaller")
        return read(name, **options)

    monkeypatch.setattr(torch, "load", replace_and_read)
    assert samerun.checkpoint.load(path, rng=False).sum() == 5000


def test_what_is_loaded_does_not_hang_on_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    shared = torch.arange(100_000.0)
    value = {"a": shared, "b": shared[10:], "sparse": torch.eye(3).to_sparse(), "p": torch.nn.Parameter(shared)}
    samerun.checkpoint.save(path, extra=value)
    loaded = samerun.checkpoint.load(path)
    with open(path, "r+b") as file:
        file.truncate(0)
    assert torch.equal(loaded["a"], shared) and torch.equal(loaded["sparse"].to_dense(), torch.eye(3))
    loaded["a"][10] = -1
    assert loaded["b"][0] == -1, "what shared memory shares it still"
    assert loaded["p"].requires_grad and loaded["p"].is_leaf


@pytest.mark.parametrize(
    ("part", "state"),
    [
        ("scheduler", {"last_epoch": "x"}), ("scheduler", []), ("scaler", {"scale": "x"}),
        ("optimizer", {"state": {}, "param_groups": 3}), ("optimizer", {"state": {0: 1}, "param_groups": []}),
        ("model", {"0.weight": 3}), ("model", 5), ("rng", []), ("rng", [{"samerun_state": 1}]), ("loader", {}),
        ("models", [{}]),
    ],
)  # fmt: skip
def test_a_part_of_another_kind_changes_nothing(part: str, state: Any, tmp_path: Path) -> None:
    with isolate_rng():
        fuzz.make_checkpoint(tmp_path)
        content = torch.load(tmp_path / "good.pt", weights_only=True)
        content["parts"][part] = state
        content["digests"][part] = digest_plain_value(state)
        torch.save(content, tmp_path / "other.pt")
        parts = fuzz.make_parts()
        # a dict of models, where the checkpoint holds one
        given = {"model": {"a": parts["model"]}} if part == "models" else parts
        before = {name: digest_plain_value(one.state_dict()) for name, one in parts.items()}
        random_before = digest_plain_value(samerun.state_dict())
        with pytest.raises(CheckpointError):
            samerun.checkpoint.load(tmp_path / "other.pt", **given)
        assert digest_plain_value(samerun.state_dict()) == random_before
        if part != "loader":  # it answers for its own state, behind the others
            assert {name: digest_plain_value(one.state_dict()) for name, one in parts.items()} == before


@pytest.mark.slow
@pytest.mark.parametrize("count", [40, pytest.param(20_000, marks=pytest.mark.exhaustive)])
def test_mutations_are_loaded_or_refused(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with isolate_rng():
        taken, refused = fuzz.run(count, 0)
    assert taken and refused
