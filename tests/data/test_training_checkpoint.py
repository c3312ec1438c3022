"""samerun.checkpoint.save and load: everything, atomically, and errors that offer the way out."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loader_datasets import Drawing
from repository_paths import PROGRAMS

import samerun
from samerun.base.errors import CheckpointError, DataError
from samerun.control.rng.isolation import isolate_rng
from samerun.control.rng.seeding import seed_everything
from samerun.control.streams.stream import stream
from samerun.data import DataLoader, training_checkpoint
from samerun.data.checkpoint_file import digest_plain_value


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with isolate_rng():
        seed_everything(1)
        yield


class Training:
    """Everything that a training has, after some steps."""

    def __init__(self, steps: int = 0) -> None:
        seed_everything(1)
        self.model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        self.loader = DataLoader(Drawing(), 8, shuffle=True)
        self.parts: dict[str, Any] = {
            "model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler, "scaler": self.scaler,
            "loader": self.loader,
        }  # fmt: skip
        self.batches = iter(self.loader)
        self.run(steps)

    def run(self, steps: int) -> str:
        for _, batch in zip(range(steps), self.batches, strict=False):
            noise = random.random() + np.random.rand() + float(stream("noise").numpy.random())
            self.optimizer.zero_grad()
            loss = self.scaler.scale(self.model(batch.float() + noise).pow(2).sum())
            loss.backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.scheduler.step()
        held = {name: part.state_dict() for name, part in self.parts.items()}
        return digest_plain_value({**held, "rng": samerun.state_dict()})


def test_going_on_gives_the_same_bits(tmp_path: Path) -> None:
    training = Training(3)
    samerun.checkpoint.save(tmp_path / "c.pt", **training.parts, extra={"step": 3, "best": (0.5, None)})
    whole = training.run(3)
    other = Training(1)
    extra = samerun.checkpoint.load(str(tmp_path / "c.pt"), **other.parts)
    other.batches = iter(other.loader)
    assert extra == {"step": 3, "best": (0.5, None)}
    assert other.run(3) == whole


@pytest.mark.parametrize("missing", ["model", "optimizer", "scheduler", "scaler", "loader", "rng"])
def test_every_part_is_needed(tmp_path: Path, missing: str) -> None:
    """Left out on loading, the bits differ: the test before would notice if a part were not saved."""
    training = Training(3)
    samerun.checkpoint.save(tmp_path / "c.pt", **training.parts)
    whole = training.run(3)
    other = Training(1)
    given = {name: part for name, part in other.parts.items() if name != missing}
    samerun.checkpoint.load(tmp_path / "c.pt", **given, rng=missing != "rng")
    other.batches = iter(other.loader)
    assert other.run(3) != whole


def test_torch_reads_it_with_weights_only(tmp_path: Path) -> None:
    training = Training(2)
    samerun.checkpoint.save(tmp_path / "c.pt", **training.parts)
    content = torch.load(tmp_path / "c.pt", weights_only=True)
    assert torch.equal(content["parts"]["model"]["0.weight"], training.model.state_dict()["0.weight"])


@pytest.mark.parametrize("call", ["save", "load"])
def test_other_names_of_parts_are_refused(call: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=rf"checkpoint\.{call}\(\) has no argument 'modle'; parts are model, optimizer"):
        getattr(samerun.checkpoint, call)(tmp_path / "c", modle=torch.nn.Linear(1, 1))
    assert not list(tmp_path.iterdir())


def test_several_models_in_one(tmp_path: Path) -> None:
    models = {"g": torch.nn.Linear(2, 2), "d": torch.nn.Linear(2, 3)}
    optimizers = [torch.optim.SGD(one.parameters(), 0.1, momentum=0.9) for one in models.values()]
    samerun.checkpoint.save(tmp_path / "c.pt", model=models, optimizer=optimizers)
    before = {name: digest_plain_value(one.state_dict()) for name, one in models.items()}
    for one in models.values():
        torch.nn.init.zeros_(one.weight)
    samerun.checkpoint.load(tmp_path / "c.pt", model=models, optimizer=optimizers)
    assert before == {name: digest_plain_value(one.state_dict()) for name, one in models.items()}
    with pytest.raises(CheckpointError, match=r"model has \['g'\], and the checkpoint has \['g', 'd'\]"):
        samerun.checkpoint.load(tmp_path / "c.pt", model={"g": models["g"]})


def test_called_it_checkpoints_activations() -> None:
    x = torch.ones(3, requires_grad=True)
    samerun.checkpoint(torch.sin, x, use_reentrant=False).sum().backward()
    assert x.grad is not None and torch.equal(x.grad, torch.cos(torch.ones(3)))
    assert samerun.checkpoint.__name__ == "checkpoint" and "recomput" in (
        type(samerun.checkpoint).__call__.__doc__ or ""
    )


# Whole at every moment.


def test_the_previous_one_is_kept(tmp_path: Path) -> None:
    for step in range(3):
        samerun.checkpoint.save(tmp_path / "c.pt", extra=step)
    assert samerun.checkpoint.load(tmp_path / "c.pt") == 2
    assert samerun.checkpoint.load(tmp_path / "c.pt.previous") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.pt", "c.pt.previous"]


KILLED = """
import os, signal, sys
import samerun, torch
samerun.seed_everything(1)
path, where = sys.argv[1], sys.argv[2]
samerun.checkpoint.save(path, extra=1)
samerun.checkpoint.save(path, extra=2)
def die(*args): os.kill(os.getpid(), signal.SIGKILL)
places = {"fsync": (os, "fsync"), "link": (os, "link"), "replace": (os, "replace"), "save": (torch, "save")}
module, name = places[where]
setattr(module, name, die)
samerun.checkpoint.save(path, extra=3)
"""


OTHER_CALLS = ("save", "fsync", "link")
"""Calls in which a process that saves is killed with the exhaustive tests."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "where", ["replace", *(pytest.param(call, marks=pytest.mark.exhaustive) for call in OTHER_CALLS)]
)
def test_killed_while_saving_there_is_a_whole_one(tmp_path: Path, where: str) -> None:
    path = tmp_path / "c.pt"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), where], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert samerun.checkpoint.load(path) == 2
    samerun.checkpoint.save(path, extra=4)
    assert samerun.checkpoint.load(path) == 4
    assert sorted(one.name for one in tmp_path.iterdir()) == ["c.pt", "c.pt.previous"]


def test_a_failed_write_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.pt"
    samerun.checkpoint.save(path, extra=1)

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"c\.pt'\): No space left on device"):
        samerun.checkpoint.save(path, extra=2)
    assert samerun.checkpoint.load(path) == 1 and [one.name for one in tmp_path.iterdir()] == ["c.pt"]


@pytest.mark.parametrize("swallowed", [True, False])
def test_a_write_that_is_interrupted_changes_nothing(
    swallowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where torch goes on after it: then the bytes that were to be written are missing."""
    path = tmp_path / "c.pt"
    samerun.checkpoint.save(path, extra=1)

    class Interrupted:
        def write(self, data: Any) -> int:
            raise KeyboardInterrupt

    def save(content: Any, file: Any) -> None:
        file.file = Interrupted()
        try:
            file.write(b"x")
        except KeyboardInterrupt:
            if not swallowed:
                raise

    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(KeyboardInterrupt):
        samerun.checkpoint.save(path, extra=2)
    assert samerun.checkpoint.load(path) == 1 and [one.name for one in tmp_path.iterdir()] == ["c.pt"]


def test_a_signal_that_comes_while_torch_writes_is_handled_when_it_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's writer may lose what a handler raises in a callback from it; a program that only notes it is not hurt."""
    path, heard, torch_save, files = tmp_path / "c.pt", [], torch.save, []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))

    def save(content: Any, file: Any) -> None:
        files.append(file)
        signal.raise_signal(sent)
        assert not heard
        torch_save(content, file)

    monkeypatch.setattr(torch, "save", save)
    try:
        sent = signal.SIGUSR1
        samerun.checkpoint.save(path, extra=1)
        assert heard == [signal.SIGUSR1] and samerun.checkpoint.load(path) == 1
        heard.clear()
        sent = signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            samerun.checkpoint.save(path, extra=2)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert samerun.checkpoint.load(path) == 1 and [one.name for one in tmp_path.iterdir()] == ["c.pt"]
    # A writer that is deleted later writes an end: an error there would end the process.
    assert [file.write(b"end") for file in files] == [3, 3]


# Damage, and what does not fit.


def saved_twice(path: Path) -> bytes:
    torch.manual_seed(3)
    samerun.checkpoint.save(path, model=torch.nn.Linear(50, 50), extra=1)
    samerun.checkpoint.save(path, model=torch.nn.Linear(50, 50), extra=2)
    return path.read_bytes()


@pytest.mark.parametrize("cut", [0.0, 0.1, 0.5, 0.999])
def test_a_cut_file_is_noticed_and_the_previous_one_offered(tmp_path: Path, cut: float) -> None:
    path = tmp_path / "c.pt"
    whole = saved_twice(path)
    path.write_bytes(whole[: int(len(whole) * cut)])
    with pytest.raises(CheckpointError, match="damaged") as caught:
        samerun.checkpoint.load(path)
    assert f"The previous one is intact: samerun.checkpoint.load({str(path) + '.previous'!r}" in str(caught.value)
    assert samerun.checkpoint.load(tmp_path / "c.pt.previous") == 1


def test_a_changed_bit_of_a_weight_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    saved_twice(path)
    content = torch.load(path, weights_only=True)
    content["parts"]["model"]["weight"].view(torch.int32)[7, 7] ^= 1
    torch.save(content, path)  # a container that is whole
    model = torch.nn.Linear(50, 50)
    before = digest_plain_value(model.state_dict())
    with pytest.raises(CheckpointError, match="the digest of model does not match"):
        samerun.checkpoint.load(path, model=model)
    assert digest_plain_value(model.state_dict()) == before
    (tmp_path / "c.pt.previous").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="is damaged too"):
        samerun.checkpoint.load(path)


def test_what_is_not_there_or_not_samerun_s(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no such file"):
        samerun.checkpoint.load(tmp_path / "none.pt")
    torch.save({"model": 1}, tmp_path / "own.pt")
    with pytest.raises(CheckpointError, match=r"was not written by samerun\.checkpoint\.save"):
        samerun.checkpoint.load(tmp_path / "own.pt")
    torch.save({"samerun_checkpoint": 9}, tmp_path / "new.pt")
    with pytest.raises(CheckpointError, match="has layout 9, and this samerun knows 1"):
        samerun.checkpoint.load(tmp_path / "new.pt")


def test_parts_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    samerun.checkpoint.save(path, model=torch.nn.Linear(2, 2), loader=DataLoader(Drawing(), shuffle=True))
    with pytest.raises(CheckpointError, match=r"holds no optimizer; it holds model, loader") as caught:
        samerun.checkpoint.load(path, optimizer=torch.optim.SGD([torch.zeros(1)], 0.1))
    assert "optimizer=optimizer" in str(caught.value)
    with pytest.raises(CheckpointError, match=r"model \(Linear\) did not take its state"):
        samerun.checkpoint.load(path, model=torch.nn.Linear(3, 2))
    with pytest.raises(DataError, match="another number of samples"):
        samerun.checkpoint.load(path, loader=DataLoader(Drawing(7), shuffle=True))


def test_a_part_that_does_not_fit_leaves_the_others_as_they_were(tmp_path: Path) -> None:
    def make(width: int = 2, groups: int = 1, samples: int = 4, bias: bool = True) -> dict[str, Any]:
        model = torch.nn.Sequential(torch.nn.Linear(2, width, bias=bias), torch.nn.BatchNorm1d(width))
        parameters = list(model.parameters())
        split = [{"params": parameters[at::groups]} for at in range(groups)]
        return {"model": model, "optimizer": torch.optim.SGD(split, 0.1, momentum=0.9),
                "loader": DataLoader(Drawing(samples), shuffle=True)}  # fmt: skip

    path = tmp_path / "c.pt"
    samerun.checkpoint.save(path, **make())
    for other in (make(width=3), make(groups=2), make(samples=7), make(bias=False)):
        before = {name: digest_plain_value(part.state_dict()) for name, part in other.items()}
        with pytest.raises(CheckpointError, match="did not take its state"):
            samerun.checkpoint.load(path, **other)
        assert {name: digest_plain_value(part.state_dict()) for name, part in other.items()} == before


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"extra": {"loss": [np.float64(1)]}}, r"extra\['loss'\]\[0\] is a numpy\.float64"),
        ({"extra": {"at": Path("x")}}, r"extra\['at'\] is a pathlib\.\w*PosixPath"),
        ({"model": 3}, r"model is a int, which has no state_dict"),
        ({"loader": [Drawing()]}, r"loader\[0\] is a Drawing"),
    ],
)
def test_what_cannot_be_saved_is_named(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        samerun.checkpoint.save(tmp_path / "c.pt", **given)
    assert not list(tmp_path.iterdir())


def test_all_plain_values_come_back(tmp_path: Path) -> None:
    from collections import OrderedDict

    value = {
        "all": [None, True, -3, 2**70, 1.5, 1j, "é", b"\0", (1, (2,)), {3, 4}, OrderedDict(a=1), torch.float16],
        5: torch.tensor([1, 2]),
        "views": torch.arange(6).view(2, 3).t(),
        "odd": torch.tensor([float("nan"), -0.0], dtype=torch.bfloat16),
        "empty": torch.empty(0, 3),
    }
    samerun.checkpoint.save(tmp_path / "c.pt", extra=value)
    loaded = samerun.checkpoint.load(tmp_path / "c.pt")
    assert digest_plain_value(loaded) == digest_plain_value(value) and str(loaded) == str(value)


def test_digests_see_every_change() -> None:
    values = [
        {"a": 1}, {"a": 1.0}, {"a": True}, {"b": 1}, {"a": [1]}, {"a": (1,)}, {"a": "1"}, {"a": b"1"}, {"a": None},
        {"a": torch.tensor(1)}, {"a": torch.tensor([1])}, {"a": torch.tensor(1, dtype=torch.int32)}, {},
        {"a": [[], 1]}, {"a": [[1]]}, {"a": {1}}, {"a": 0.0}, {"a": -0.0},
    ]  # fmt: skip
    assert len({digest_plain_value(value) for value in values}) == len(values)


def save_as_ranks(path: Path, monkeypatch: pytest.MonkeyPatch, seeds: list[int]) -> None:
    """A checkpoint of as many ranks as there are seeds, each with its own."""
    states = []
    for rank, seed in enumerate(seeds):
        monkeypatch.setenv("RANK", str(rank))
        seed_everything(seed)
        states.append(samerun.state_dict())
    monkeypatch.setattr(training_checkpoint, "_gather_from_ranks", lambda state: states)
    samerun.checkpoint.save(path)


def draw_as_rank(rank: int, path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[float]:
    monkeypatch.setenv("RANK", str(rank))
    seed_everything(99)
    samerun.checkpoint.load(path, **options)
    return [torch.rand(1).item(), random.random(), np.random.rand()]


@pytest.mark.parametrize("seeds", [[3], [3, 4]])
def test_no_rank_gets_the_generators_of_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: list[int]
) -> None:
    path = tmp_path / "c.pt"
    save_as_ranks(path, monkeypatch, seeds)
    new = len(seeds)
    monkeypatch.setenv("RANK", str(new))
    before = samerun.state_dict()["rng"]
    with pytest.raises(CheckpointError, match="would draw alike") as caught:
        samerun.checkpoint.load(path)
    assert 'rng="reseed"' in str(caught.value.hint)
    assert digest_plain_value(samerun.state_dict()["rng"]) == digest_plain_value(before), "nothing was changed"
    ranks = [draw_as_rank(rank, path, monkeypatch, rng="reseed") for rank in range(new + 2)]
    for rank, seed in enumerate(seeds):
        seed_everything(seed)
        assert ranks[rank] == [torch.rand(1).item(), random.random(), np.random.rand()], "its own goes on"
    assert len({number for drawn in ranks for number in drawn}) == 3 * (new + 2)
    assert draw_as_rank(new, path, monkeypatch, rng="reseed") == ranks[new], "the same each time"
    assert samerun.checkpoint.load(path, rng=False) is None


def test_what_all_ranks_had_alike_goes_on_on_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_as_ranks(tmp_path / "c.pt", monkeypatch, [3, 3])
    assert draw_as_rank(2, tmp_path / "c.pt", monkeypatch) == draw_as_rank(0, tmp_path / "c.pt", monkeypatch)


@pytest.mark.exhaustive
def test_ranks_of_gloo_that_are_more_than_were_saved(tmp_path: Path) -> None:
    def run(ranks: int, *words: str) -> list[str]:
        program = [str(PROGRAMS / "sharded" / "plain_resume.py"), str(ranks), str(tmp_path / "c.pt"), *words]
        done = subprocess.run([sys.executable, *program], capture_output=True, text=True, timeout=300, check=True)
        return done.stdout.splitlines()

    saved = run(2, "save")
    refused = run(3, "load")
    assert len(refused) == 3 and all(line.startswith("REFUSED") for line in refused), "all ranks say so"
    drawn = run(3, "load", "reseed")
    assert drawn[:2] == saved
    (of_torch, of_stream), others = drawn[2].split(), [line.split() for line in saved]
    assert of_torch not in [other[0] for other in others] and of_stream == others[0][1], "a stream that all have alike"
