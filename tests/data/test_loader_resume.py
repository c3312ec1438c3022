"""A loader's state: small, immediate, exact, for other workers, ranks and batch sizes; and what does not fit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.data as torch_data
from loader_datasets import (
    Drawing,
    DrawingFromStream,
    Failing,
    Keeping,
    KeepingIterator,
    Stream,
    Unsharded,
    batches,
    mixing,
)
from repository_paths import PROGRAMS, SUPPORT

from samerun.base.errors import DataError
from samerun.control.rng.isolation import isolate_rng
from samerun.control.rng.seeding import seed_everything
from samerun.data import DataLoader, GroupedByLength, Shuffle, Weighted, keyed_dataset

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with isolate_rng():
        seed_everything(1)
        yield


def loader_of(dataset: Any = None, **options: Any) -> DataLoader[Any]:
    given = {"batch_size": 8, "shuffle": None if "sampler" in options else True, **options}
    return DataLoader(dataset or Drawing(), **given)


def stopped(loader: DataLoader[Any], step: int) -> tuple[list[bytes], dict[str, Any]]:
    """The first batches of the second epoch, and the state behind them, through JSON."""
    list(loader)
    found = [batch.numpy().tobytes() for _, batch in zip(range(step), loader, strict=False)] if step else []
    if not step:
        iter(loader)
    return found, json.loads(json.dumps(loader.state_dict()))


@pytest.mark.parametrize("step", [0, 1, 4, 6, 7])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"num_workers": 0}, {"num_workers": 0}),
        ({"num_workers": 2, "prefetch_factor": 4}, {"num_workers": 0}),
        ({"num_workers": 0}, {"num_workers": 2, "persistent_workers": True}),
    ],
    ids=["0-0", "2-0", "0-2"],
)
def test_going_on_gives_what_the_whole_run_gives(step: int, before: dict[str, Any], after: dict[str, Any]) -> None:
    whole = loader_of(collate_fn=mixing)
    epochs = [batches(whole) for _ in range(3)]
    seen, state = stopped(loader_of(collate_fn=mixing, **before), step)
    assert seen == epochs[1][:step]
    resumed = loader_of(collate_fn=mixing, **after)
    resumed.load_state_dict(state)
    assert resumed.epoch == 1 and resumed.state_dict() == state
    assert batches(resumed) == epochs[1][step:]
    assert resumed.epoch == 2
    assert batches(resumed) == epochs[2]


def test_another_batch_size_goes_on_at_the_same_sample() -> None:
    whole = loader_of(DrawingFromStream())
    list(whole)
    samples = torch.cat(list(whole))
    _, state = stopped(loader_of(DrawingFromStream()), 3)
    for size in (1, 5, 24, 100, None):
        resumed = loader_of(DrawingFromStream(), batch_size=size)
        resumed.load_state_dict(state)
        rest = list(resumed)
        assert torch.equal(torch.cat(rest) if size else torch.stack(rest), samples[24:])


@pytest.mark.parametrize("before", [1, 2, 4])
@pytest.mark.parametrize("after", [1, 2, 4])
def test_another_number_of_ranks_goes_on_with_the_same_global_batches(before: int, after: int) -> None:
    whole = [batch.numpy().tobytes() for batch in loader_of(Drawing(56))]
    states = []
    for rank in range(before):
        loader = loader_of(Drawing(56), batch_size=8 // before, shard=(rank, before))
        for _ in zip(range(3), loader, strict=False):
            pass
        states.append(loader.state_dict())
    assert all(state == states[0] for state in states)
    parts = []
    for rank in range(after):
        loader = loader_of(Drawing(56), batch_size=8 // after, shard=(rank, after))
        loader.load_state_dict(states[0])
        parts.append(list(loader))
    for step, batch in enumerate(whole[3:]):
        rows = [row for tie in zip_longest(*(part[step] for part in parts)) for row in tie]
        assert torch.stack(rows).numpy().tobytes() == batch


SAMPLERS: dict[str, Any] = {
    "torch random": lambda: torch_data.RandomSampler(range(53)),
    "torch weighted": lambda: torch_data.WeightedRandomSampler([1.0] * 53, 53),
    "torch distributed": lambda: torch_data.DistributedSampler(range(53), 1, 0),  # type: ignore[arg-type]
    "weighted": lambda: Weighted([1.0] * 53),
    "grouped": lambda: GroupedByLength(range(53), 20),
    "list": lambda: list(range(53)),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_are_taken_up_again(name: str) -> None:
    def make(workers: int) -> DataLoader[Any]:
        return loader_of(sampler=SAMPLERS[name](), num_workers=workers)

    whole = make(0)
    epochs = [batches(whole) for _ in range(3)]
    _, state = stopped(make(2), 3)
    resumed = make(0)
    resumed.load_state_dict(state)
    assert [batches(resumed), batches(resumed)] == [epochs[1][3:], epochs[2]]


def test_batch_samplers_are_taken_up_again() -> None:
    def make() -> DataLoader[Any]:
        sampler = torch_data.BatchSampler(torch_data.RandomSampler(range(53)), 5, False)
        return DataLoader(Drawing(), batch_sampler=sampler)

    whole = make()
    epochs = [batches(whole) for _ in range(2)]
    _, state = stopped(make(), 4)
    resumed = make()
    resumed.load_state_dict(state)
    assert batches(resumed) == epochs[1][4:]


@pytest.mark.parametrize(
    "step", [0, pytest.param(1, marks=pytest.mark.slow), 5, pytest.param(9, marks=pytest.mark.slow), 100]
)
@pytest.mark.parametrize(
    ("dataset", "workers"),
    [(Stream(), (0, 2)), (Stream(), (2, 0)), (Stream(), (3, 1)), (Keeping(), (0, 2)), (Keeping(), (2, 0)),
     (KeepingIterator(), (0, 0)), (Unsharded(), (2, 0))],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__ if isinstance(one, Stream) else str(one),
)  # fmt: skip
def test_streams_are_taken_up_again(step: int, dataset: Stream, workers: tuple[int, int]) -> None:
    def make(number: int) -> DataLoader[Any]:
        return DataLoader(dataset, 3, num_workers=number, collate_fn=mixing, virtual_shards=4)

    whole = make(0)
    epochs = [batches(whole) for _ in range(3)]
    seen, state = stopped(make(workers[0]), step)
    resumed = make(workers[1])
    resumed.load_state_dict(state)
    if step == 100:
        assert state["epoch"] == 2 and batches(resumed) == epochs[2]
    else:
        assert seen + batches(resumed) == epochs[1] and batches(resumed) == epochs[2]


@pytest.mark.parametrize(
    ("dataset", "shards"),
    [(Keeping(), 4), (Keeping(), 1), (KeepingIterator(), 4)],
    ids=["dataset-4", "dataset-1", "iterator-4"],
)
def test_a_stream_that_says_where_it_stands_is_not_read_again(dataset: Stream, shards: int) -> None:
    whole = torch.cat(list(DataLoader(dataset, 3, virtual_shards=shards)))
    Keeping.read.clear()
    loader = DataLoader(dataset, 3, virtual_shards=shards)
    first = torch.cat([batch for _, batch in zip(range(6), loader, strict=False)])
    assert len(Keeping.read) < 18 + 2 * shards
    state = json.loads(json.dumps(loader.state_dict()))
    Keeping.read.clear()
    resumed = DataLoader(dataset, 3, virtual_shards=shards)
    resumed.load_state_dict(state)
    rest = torch.cat(list(resumed))
    assert len(Keeping.read) == 50 - 18
    assert torch.equal(torch.cat([first, rest]), whole)
    assert torch.cat(list(DataLoader(dataset, 3, virtual_shards=shards)))[:, 0].tolist() == whole[:, 0].tolist()


def test_reading_again_is_said_and_a_stream_that_became_shorter_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loader = DataLoader(Stream(1000), 100, virtual_shards=2)
    for _ in zip(range(6), loader, strict=False):
        pass
    state = loader.state_dict()
    list(resumed := DataLoader(Stream(1000), 100, virtual_shards=2))
    resumed.load_state_dict(state)
    assert len(list(resumed)) == 4 and not capsys.readouterr().err
    monkeypatch.setattr(keyed_dataset, "FIRST_REPORT_SECONDS", 0.0)
    monkeypatch.setattr(keyed_dataset, "REPORT_INTERVAL_SECONDS", 0.0)
    resumed.load_state_dict(state)
    assert len(list(resumed)) == 4
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "samerun: reading part 1 of 2 of Stream again to resume: 256 of 300 samples"
    assert said[1].startswith("samerun: reading part 1 of 2 of Stream again to resume: 300 of 300 samples, ")
    assert len(said) == 4
    short = DataLoader(Stream(500), 100, virtual_shards=2)
    short.load_state_dict(state)
    with pytest.raises(DataError, match="behind 300 samples of part 1 of 2, and Stream gives 250"):
        list(short)


class Uncopied(Keeping):
    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("it holds an open file")


def test_a_stream_that_keeps_its_place_and_cannot_be_copied() -> None:
    assert len(list(DataLoader(Uncopied(), 5, virtual_shards=1))) == 10
    with pytest.raises(DataError, match=r"Uncopied has state_dict\(\) and is read in 8 parts.*open file"):
        list(DataLoader(Uncopied(), 5))


def test_set_epoch_and_a_state_get_on() -> None:
    whole = loader_of()
    epochs = [batches(whole) for _ in range(3)]
    _, state = stopped(loader_of(), 2)
    for epoch, expected in ((1, epochs[1][2:]), (2, epochs[2])):
        resumed = loader_of()
        resumed.load_state_dict(state)
        resumed.set_epoch(epoch)
        assert resumed.state_dict()["epoch"] == epoch
        assert batches(resumed) == expected


def test_after_an_error_it_goes_on_behind_the_batch() -> None:
    loader = loader_of(Failing(), shuffle=False, num_workers=2)
    iterator = iter(loader)
    found = [next(iterator) for _ in range(2)]
    with pytest.raises(KeyError):
        next(iterator)
    assert loader.state_dict()["seen"] == 24
    found += list(iterator)
    assert torch.cat(found)[:, 0].tolist() == [*range(16), *range(24, 53)]


class Large(torch_data.Dataset[int]):
    def __len__(self) -> int:
        return 10**12

    def __getitem__(self, index: int) -> int:
        return index


def test_resume_after_10_to_the_8_samples_is_immediate() -> None:
    whole = loader_of(Large())
    state = whole.state_dict()
    state.update(seen=10**8, batches=10**8 // 8)
    assert len(json.dumps(state)) < 1024
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        resumed = loader_of(Large())
        resumed.load_state_dict(state)
        first = next(iter(resumed))
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.05
    order = Shuffle(10**12, seed=1)
    assert first.tolist() == [order[position] for position in range(10**8, 10**8 + 8)]


def test_states_are_small() -> None:
    _, state = stopped(DataLoader(Stream(), 3, virtual_shards=32), 5)
    assert len(json.dumps(state)) < 1024
    _, state = stopped(loader_of(), 5)
    assert len(json.dumps(state)) < 256


def test_a_seed_that_nobody_set_is_taken_over() -> None:
    from samerun.control.rng import seeding

    seeding.set_seed_in_force(None)
    torch.manual_seed(11)
    whole = batches(loader_of())
    loader = loader_of()
    next(iter(loader))
    state = loader.state_dict()
    torch.manual_seed(12)
    resumed = loader_of()
    resumed.load_state_dict(state)
    assert batches(resumed) == whole[1:]


# What does not fit.


class Other(Drawing):
    pass


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"samerun_loader": 2}, "has layout 2; known here: 1"),
        ({"seed": None}, "holds None as seed"),
        ({"seen": -1}, "holds -1 as seen"),
        ({"seen": 54}, "has seen 54 samples, and an epoch has 53"),
        ({"seed": 2}, "is of seed 2, and this loader has seed 1"),
        ({"samples": 60}, "another number of samples: 60, and this loader has 53"),
        ({"dataset": "train.Images"}, "another dataset: 'train.Images', and this loader has 'loader_datasets.Drawing'"),
        ({"order": "Sequential(53)"}, "another order: 'Sequential.53.', and this loader has 'Shuffle.53.'"),
        ({"name": "valid"}, "another name: 'valid'"),
    ],
)
def test_states_that_do_not_fit_are_refused(change: dict[str, Any], words: str) -> None:
    loader = loader_of()
    before = loader.state_dict()
    with pytest.raises(DataError, match=words) as caught:
        loader.load_state_dict({**before, **change})
    assert caught.value.hint
    assert loader.state_dict() == before


@pytest.mark.parametrize("state", [None, {}, {"model": 1}, [1], {"samerun_loader": 1, "seed": 3}])
def test_what_is_no_state_is_refused(state: Any) -> None:
    with pytest.raises(DataError, match=r"load_state_dict\(\): (this is not the state|the state lacks)"):
        loader_of().load_state_dict(state)


def test_a_sampler_that_gives_less_than_before_is_noticed() -> None:
    loader = loader_of(sampler=list(range(53)))
    state = {**loader.state_dict(), "seen": 40, "batches": 5}
    short = DataLoader(Drawing(), 8, sampler=list(range(30)))
    short.load_state_dict(state)
    with pytest.raises(DataError, match="behind 40 samples, and the sampler gives 30"):
        list(short)


# Whole trainings, in processes of their own.


def train(workers: int, persistent: bool, checkpoint: Path, stop: int = 0) -> str:
    """What the training prints; "" if it was killed."""
    command = [sys.executable, str(PROGRAMS / "digits_resume.py"), str(workers), str(int(persistent)), str(checkpoint)]
    done = subprocess.run([*command, str(stop)], capture_output=True, text=True, timeout=300)
    assert done.returncode == (-9 if stop else 0), done.stderr
    return done.stdout


@pytest.mark.exhaustive
def test_a_training_that_is_killed_and_taken_up_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole = train(0, False, tmp_path / "none")
    assert train(2, False, tmp_path / "c", stop=13) == ""
    assert train(1, True, tmp_path / "c") == whole


WORKERS = [(0, False), (1, False), (1, True), (2, False), (2, True), (4, False), (4, True)]
"""(how many, whether persistent)."""


@pytest.mark.exhaustive
def test_a_training_ends_with_the_same_bits_whatever_its_workers(tmp_path: Path) -> None:
    assert len({train(*workers, tmp_path / "none") for workers in WORKERS}) == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("stop", [1, 4, 9, 10, 11, 15, 20])
def test_a_training_ends_with_the_same_bits_wherever_it_is_killed(stop: int, tmp_path: Path) -> None:
    """Killed with each number of workers, and taken up with another one."""
    ends = {train(0, False, tmp_path / "none")}
    for number, workers in enumerate(WORKERS):
        checkpoint = tmp_path / f"c{number}"
        assert train(*workers, checkpoint, stop) == ""
        ends.add(train(*WORKERS[(number + stop) % len(WORKERS)], checkpoint))
    assert len(ends) == 1


@pytest.mark.exhaustive
def test_gloo_ranks_see_the_same_global_batches(tmp_path: Path) -> None:
    found = []
    for world in (1, 2, 4):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        environment["PYTHONPATH"] = os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [*command, str(PROGRAMS / "gloo_batches.py"), str(tmp_path / f"c{world}")],
            capture_output=True, text=True, env=environment, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        ranks = json.loads(done.stdout.splitlines()[-1])
        assert len(ranks) == world
        found.append([[row for tie in zip(*step, strict=True) for row in tie] for step in zip(*ranks, strict=True)])
    assert found[0] == found[1] == found[2] and len(found[0]) == 5
