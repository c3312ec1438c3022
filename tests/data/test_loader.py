"""The loader: batches are a function of seed, epoch and sample, and nobody's streams move."""

from __future__ import annotations

import gc
import itertools
import random
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as torch_data
from loader_datasets import (
    Batched,
    Drawing,
    DrawingFromStream,
    Failing,
    OwnGenerator,
    Stream,
    Unsharded,
    WorkerAsks,
    batches,
    drawn,
    mixing,
)

import samerun
from samerun.base.errors import DataError, OwnGeneratorWarning, SeedError
from samerun.control.rng.isolation import isolate_rng
from samerun.control.rng.seeding import seed_everything
from samerun.control.rng.state import get_rng_state
from samerun.data import DataLoader, GroupedByLength, Shuffle, Weighted, keyed_dataset, replay

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with isolate_rng():
        seed_everything(1)
        yield


def rows(dataset: Any = None, **options: Any) -> torch.Tensor:
    """The samples of an epoch, in order."""
    return torch.cat(list(DataLoader(dataset or Drawing(), **{"batch_size": 8, "shuffle": True, **options})))


WAYS = [
    {"num_workers": 0},
    {"num_workers": 1, "multiprocessing_context": "fork", "prefetch_factor": 1},
    {"num_workers": 2, "multiprocessing_context": "fork", "prefetch_factor": 5},
    {"num_workers": 4, "multiprocessing_context": "fork", "persistent_workers": True},
    {"num_workers": 2, "multiprocessing_context": "spawn", "persistent_workers": True},
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "dataset",
    [DrawingFromStream(), *(pytest.param(each, marks=pytest.mark.exhaustive) for each in (Drawing(), Batched()))],
    ids=lambda one: type(one).__name__,
)
def test_batches_do_not_depend_on_workers(dataset: Any) -> None:
    found = []
    for way in WAYS:
        loader = DataLoader(dataset, batch_size=8, shuffle=True, collate_fn=mixing, **way)
        found.append([batches(loader) for _ in range(2)])
    assert all(one == found[0] for one in found)
    assert found[0][0] != found[0][1] and len(found[0][0]) == 7


@pytest.mark.parametrize("way", [WAYS[0], WAYS[2]], ids=["0 workers", "2 workers"])
def test_samples_do_not_depend_on_the_batch_size(way: dict[str, Any]) -> None:
    whole = rows()
    assert torch.equal(rows(batch_size=13, **way), whole)
    assert torch.equal(torch.stack(list(DataLoader(Drawing(), batch_size=None, shuffle=True, **way))), whole)
    assert sorted(whole[:, 0].int().tolist()) == list(range(53))
    assert len({tuple(row) for row in whole[:, 1:].tolist()}) == 53


@pytest.mark.parametrize("way", [WAYS[0], WAYS[2], WAYS[3]], ids=["0", "2", "4 persistent"])
@pytest.mark.parametrize("sampler", [None, torch_data.RandomSampler(range(53)), "own"], ids=["ours", "torch's", "own"])
def test_iterating_moves_no_stream(way: dict[str, Any], sampler: Any) -> None:
    class Own(torch_data.Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            for index in range(53):
                drawn()
                yield index

    chosen = Own() if sampler == "own" else sampler
    shuffle = None if chosen is not None else True
    loader = DataLoader(Drawing(), batch_size=8, shuffle=shuffle, sampler=chosen, collate_fn=mixing, **way)
    random.gauss(0, 1), np.random.randn(), torch.randn(1)
    before = str(get_rng_state())
    for _ in range(2):
        for _ in loader:
            assert str(get_rng_state()) == before
    next(iter(loader))
    assert str(get_rng_state()) == before


def test_another_loader_in_between_changes_nothing() -> None:
    loader = DataLoader(Drawing(), batch_size=8, shuffle=True)
    alone = [batches(loader) for _ in range(2)]
    loader, other = DataLoader(Drawing(), batch_size=8, shuffle=True), DataLoader(Drawing(), shuffle=True, name="other")
    mixed = []
    for _ in range(2):
        mixed.append([one.numpy().tobytes() for one, _ in zip(loader, other, strict=False)])
        drawn()
    assert mixed == alone


def test_epoch_seed_and_name_decide() -> None:
    loader = DataLoader(Drawing(), batch_size=8, shuffle=True)
    epochs = [batches(loader) for _ in range(3)]
    loader.set_epoch(1)
    assert batches(loader) == epochs[1]
    assert batches(loader) == epochs[2] and loader.epoch == 3
    loader.sampler.set_epoch(2)  # as Lightning and accelerate do
    assert batches(loader) == epochs[2]
    assert batches(DataLoader(Drawing(), batch_size=8, shuffle=True, seed=1)) == epochs[0]
    others = [rows(), rows(seed=2), rows(name="other")]
    assert not torch.equal(others[0], others[1]) and not torch.equal(others[0], others[2])
    by_index = [one[one[:, 0].argsort()] for one in others]
    assert not (by_index[0][:, 1:] == by_index[1][:, 1:]).any() and not (by_index[0] == by_index[2])[:, 1:].any()


def test_where_the_seed_comes_from() -> None:
    from samerun.control.rng import seeding

    assert torch.equal(rows(seed=5), rows(generator=torch.Generator().manual_seed(5)))
    seeding.set_seed_in_force(None)
    torch.manual_seed(5)
    assert torch.equal(rows(seed=5), rows())
    generator = torch.Generator().manual_seed(5)
    state = generator.get_state()
    rows(generator=generator)
    assert torch.equal(generator.get_state(), state)


def test_fewer_kinds_give_the_same_for_those() -> None:
    dataset = [torch.zeros(1)] * 20

    class Torch(torch_data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.rand(2) + dataset[index]

    assert torch.equal(rows(Torch(), keyed="torch"), rows(Torch()))
    assert torch.equal(rows(Torch(), keyed=("torch", "python"), batch_size=1), rows(Torch()))


@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_see_the_same_global_batches(drop_last: bool) -> None:
    whole = list(DataLoader(Drawing(), 8, shuffle=True, drop_last=drop_last))
    for world in (1, 2, 4, 8):
        loaders = [
            DataLoader(Drawing(), 8 // world, shuffle=True, drop_last=drop_last, shard=(rank, world))
            for rank in range(world)
        ]
        parts = [list(loader) for loader in loaders]
        assert {len(part) for part in parts} == {len(loader) for loader in loaders} == {len(whole)}
        for step, batch in enumerate(whole):
            woven = torch.stack([row for tie in itertools.zip_longest(*(p[step] for p in parts)) for row in tie])
            assert torch.equal(woven[: len(batch)], batch)
        sizes = {tuple(len(batch) for batch in part) for part in parts}
        assert len(sizes) == 1, "every rank has batches of the same sizes"


def test_padding_is_as_with_torch_but_draws_anew() -> None:
    loaders = [DataLoader(Drawing(10), 2, shuffle=True, shard=(rank, 4)) for rank in range(4)]
    parts = [torch.cat(list(loader)) for loader in loaders]
    assert [len(part) for part in parts] == [3] * 4
    padded = torch.stack([parts[2][-1], parts[3][-1]])
    first = torch.stack([parts[0][0], parts[1][0]])
    assert torch.equal(padded[:, 0], first[:, 0]) and not (padded[:, 1:] == first[:, 1:]).any()


def test_a_sample_that_comes_again_draws_anew() -> None:
    drawn = rows(Drawing(4), sampler=Weighted([1, 1, 1, 1], 60), shuffle=None)
    assert len({tuple(row) for row in drawn[:, 1:].tolist()}) == 60
    sampler = torch_data.WeightedRandomSampler([1.0] * 4, 60)
    drawn = rows(Drawing(4), sampler=sampler, shuffle=None)
    assert len({tuple(row) for row in drawn[:, 1:].tolist()}) == 60
    assert torch.equal(rows(Drawing(4), sampler=sampler, shuffle=None, num_workers=2, batch_size=7), drawn)


def test_samplers_of_all_kinds() -> None:
    lengths = list(range(53))
    for sampler in (
        Shuffle(53, seed=9), GroupedByLength(lengths, 16), torch_data.SequentialSampler(lengths),
        torch_data.SubsetRandomSampler(lengths), torch_data.DistributedSampler(lengths, 2, 1), lengths,
    ):  # fmt: skip
        one, other = (rows(sampler=sampler, shuffle=None, num_workers=w) for w in (0, 2))
        assert torch.equal(one, other)
    sampler = torch_data.BatchSampler(torch_data.RandomSampler(lengths), 5, True)
    found = [batches(DataLoader(Drawing(), batch_sampler=sampler, num_workers=w)) for w in (0, 2)]
    assert found[0] == found[1] and len(found[0]) == 10


def test_it_is_a_loader_of_torch() -> None:
    loader = DataLoader(Drawing(), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
    assert isinstance(loader, torch_data.DataLoader) and len(loader) == 7
    assert type(loader.dataset) is Drawing and loader.batch_size == 8
    assert isinstance(iter(loader), torch_data.dataloader._BaseDataLoaderIter)
    plain = torch_data.DataLoader(range(20), batch_size=3, drop_last=True)  # type: ignore[arg-type]
    ours = DataLoader(range(20), batch_size=3, drop_last=True)
    assert [one.tolist() for one in plain] == [one.tolist() for one in ours]
    assert list(DataLoader([])) == []


def test_workers_end_with_their_loader_and_wait_for_no_garbage_collector() -> None:
    gc.disable()
    try:
        loader = DataLoader(Drawing(), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
        first, second = batches(loader), batches(loader)
        assert first != second and loader.epoch == 2
        iterator: Any = loader._iterator
        workers = iterator._workers
        assert all(one.is_alive() for one in workers)
        del loader, iterator
        assert not any(one.is_alive() for one in workers)
        iterator = iter(DataLoader(Drawing(), batch_size=8, num_workers=2))
        next(iterator)
        workers = iterator._workers
        del iterator
        assert not any(one.is_alive() for one in workers)
        lasting = {"num_workers": 1, "persistent_workers": True}
        assert len(list(DataLoader(Drawing(), batch_size=8, **lasting))) == 7  # nobody holds the loader
    finally:
        gc.enable()


def test_workers_know_their_dataset_and_run_the_users_init() -> None:
    started = []
    loader = DataLoader(WorkerAsks(8), num_workers=2, worker_init_fn=started.append)
    assert torch.cat(list(loader)).all() and not started
    assert loader.worker_init_fn is not None


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_that_raises_is_named_and_can_be_loaded_alone(workers: int) -> None:
    loader = DataLoader(Failing(), batch_size=8, shuffle=True, num_workers=workers)
    loader.set_epoch(3)
    with pytest.raises(KeyError) as caught:
        list(loader)
    said = str(caught.value) + "".join(getattr(caught.value, "__notes__", []))
    assert "raised by sample 17 in epoch 3" in said and "samerun.data.replay(loader, epoch=3, index=17)" in said
    with pytest.raises(KeyError) as again:
        replay(loader, epoch=3, index=17)
    value = str(again.value.args[0]).rpartition(" ")[2]
    assert value in said, "the same random numbers"


@pytest.mark.slow
def test_replay_gives_the_sample() -> None:
    loader = DataLoader(Drawing(), batch_size=8, shuffle=True)
    list(loader)
    second = torch.cat(list(loader))
    before = str(get_rng_state())
    for row in second[::10]:
        assert torch.equal(replay(loader, epoch=1, index=int(row[0])), row)
    assert str(get_rng_state()) == before
    weighted = DataLoader(Drawing(4), sampler=Weighted([1, 1, 1, 1], 20), batch_size=None)
    for position, row in enumerate(weighted):
        assert torch.equal(replay(weighted, 0, int(row[0]), repetition=position), row)


@pytest.mark.parametrize("workers", [0, 2])
def test_own_generators_are_named(workers: int) -> None:
    loader = DataLoader(OwnGenerator(), batch_size=8, num_workers=workers)
    with pytest.warns(OwnGeneratorWarning, match=r"dataset\.transforms\[0\]\.rng \(numpy\.random\.Generator\)") as said:
        list(loader)
    assert len(said) == max(1, workers) and not any("split" in str(one.message) for one in said)


RNG = np.random.default_rng(0)


class Drawn(torch.Tensor):
    """Draws whenever something is done with it."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        random.random()
        return super().__torch_function__(function, types, args, kwargs or {})


class DrawingTensors(torch_data.TensorDataset):
    def __getitem__(self, index: int) -> Any:
        return (*super().__getitem__(index), torch.rand(()))


TENSORS = torch_data.TensorDataset(torch.arange(20.0), torch.arange(20))


@pytest.mark.parametrize(
    ("dataset", "keyed"),
    [
        (TENSORS, False),
        (torch_data.Subset(TENSORS, range(0, 20, 2)), False),
        (torch_data.Subset(torch_data.Subset(list(range(20)), [3, 4, 5]), [2, 1]), False),  # type: ignore[arg-type]
        ([(torch.ones(2), 1, "a")] * 9, False),
        ([{"x": 1}] * 9, True),
        (DrawingTensors(torch.arange(20.0)), True),
        (torch_data.Subset(DrawingTensors(torch.arange(20.0)), [1, 2]), True),
        (torch_data.TensorDataset(torch.arange(20.0).as_subclass(Drawn)), True),
        (torch_data.StackDataset(Drawing(8)), True),
    ],
    ids=lambda one: type(one).__name__,
)
def test_only_samples_that_run_no_code_of_the_users_go_without_keys(
    dataset: Any, keyed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sections = []

    class Counted(keyed_dataset.SeededSection):
        def __enter__(self) -> Any:
            sections.append(1)
            return super().__enter__()

    monkeypatch.setattr(keyed_dataset, "SeededSection", Counted)
    found = [list(DataLoader(dataset, 4, shuffle=True)), list(DataLoader(dataset, 4, shuffle=True))]
    assert bool(sections) is keyed
    assert str(found[0]) == str(found[1])
    if not keyed:
        order = Shuffle(len(dataset), seed=1)
        plain = torch_data.DataLoader(dataset, 4, sampler=order)
        assert str(found[0]) == str(list(plain))


def test_what_the_user_hangs_into_torch_is_keyed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*args, **(kwargs or {}))

    found = keyed_dataset.try_load_without_seeding(TENSORS, torch_data.default_collate, [0])
    with Mode():
        inside = keyed_dataset.try_load_without_seeding(TENSORS, torch_data.default_collate, [0])
    assert found is not None and inside is None
    before = str(get_rng_state())

    def collated(batch: Any, **_: Any) -> torch.Tensor:
        return torch.stack(list(batch)) + random.random()

    monkeypatch.setitem(keyed_dataset.default_collate_fn_map, torch.Tensor, collated)
    one, other = (str(list(DataLoader(TENSORS, 4, num_workers=workers))) for workers in (0, 2))
    assert one == other and str(get_rng_state()) == before


def test_own_generators_are_found_in_globals_and_closures() -> None:
    hidden = random.Random(1)

    class Sneaky(Drawing):
        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.tensor([RNG.random(), hidden.random()])

    with pytest.warns(OwnGeneratorWarning) as said:
        list(DataLoader(Sneaky()))
    text = " ".join(str(one.message) for one in said)
    assert "RNG (numpy.random.Generator)" in text and "hidden (random.Random)" in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(DataLoader(DrawingFromStream()))
        list(DataLoader(Drawing(), sampler=torch_data.RandomSampler(range(53))))


@pytest.mark.parametrize("workers", [0, 2])
def test_what_keyed_leaves_out_must_not_be_drawn_from(workers: int) -> None:
    with pytest.raises(DataError, match=r"keyed=\['torch'\]\): a sample drew from numpy\.random") as caught:
        list(DataLoader(Drawing(), keyed="torch", num_workers=workers))
    assert "add 'numpy'" in str(caught.value)


class Nested(Drawing):
    """Its samples come from another loader."""

    def __init__(self) -> None:
        super().__init__(6)
        self.inner = DataLoader(DrawingFromStream(5), shuffle=True, name="inner")

    def __getitem__(self, index: int) -> torch.Tensor:
        drawn()
        self.inner.set_epoch(index)
        inner = torch.cat(list(self.inner))
        stream = samerun.stream("outer").python.random()
        return torch.cat([inner.flatten(), torch.tensor([*drawn(), stream], dtype=torch.float64)])


@pytest.mark.slow
def test_loaders_may_be_nested() -> None:
    for name in ("augment", "outer"):
        samerun.stream(name).numpy.random(), samerun.stream(name).python.random(), samerun.stream(name).torch
    before = str(get_rng_state())
    one, other = (torch.cat(list(DataLoader(Nested(), num_workers=workers))) for workers in (0, 2))
    assert torch.equal(one, other) and str(get_rng_state()) == before


def test_batches_are_the_same_while_another_thread_loads() -> None:
    alone = batches(DataLoader(Drawing(400), 8, shuffle=True))
    found: list[list[bytes]] = []
    samerun.stream("held").python.random()
    before = str(get_rng_state())

    def load() -> None:
        found.append(batches(DataLoader(Drawing(400), 8, shuffle=True)))

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone] * 3 and str(get_rng_state()) == before


def test_the_batch_sampler_can_be_iterated_by_itself() -> None:
    loader = DataLoader(Drawing(), 8, shuffle=True, seed=4)
    indices = [int(row[0]) for batch in loader for row in batch]
    assert [index for batch in loader.batch_sampler for index in batch] == indices


# Iterable datasets.


@pytest.mark.slow
@pytest.mark.parametrize("shards", [4, *(pytest.param(each, marks=pytest.mark.exhaustive) for each in (1, 8))])
def test_streams_do_not_depend_on_workers(shards: int) -> None:
    found = []
    for way in [*WAYS, {"num_workers": 3}]:
        loader = DataLoader(Stream(), batch_size=3, collate_fn=mixing, virtual_shards=shards, **way)
        found.append([batches(loader) for _ in range(2)])
    assert all(one == found[0] for one in found) and found[0][0] != found[0][1]
    samples = torch.cat(list(DataLoader(Stream(), batch_size=3, virtual_shards=shards)))
    assert sorted(samples[:, 0].int().tolist()) == list(range(50))
    assert len({tuple(row) for row in samples[:, 1:].tolist()}) == 50


def test_samples_of_a_stream_do_not_depend_on_the_batch_size() -> None:
    one, other = (torch.cat(list(DataLoader(Stream(), batch_size=size))) for size in (3, 5))
    assert torch.equal(one[one[:, 0].argsort()], other[other[:, 0].argsort()])
    alone = torch.stack(list(DataLoader(Stream(), batch_size=None, num_workers=2)))
    assert torch.equal(alone[alone[:, 0].argsort()], one[one[:, 0].argsort()])


@pytest.mark.parametrize("workers", [0, 2, pytest.param(3, marks=pytest.mark.exhaustive)])
def test_a_stream_that_does_not_shard_itself_comes_once(workers: int) -> None:
    samples = torch.cat(list(DataLoader(Unsharded(), batch_size=3, num_workers=workers)))
    assert samples[:, 0].tolist() == list(range(50))
    with pytest.raises(DataError, match=r"does not ask get_worker_info\(\)"):
        list(DataLoader(Unsharded(), num_workers=workers, shard=(0, 2)))


def test_ranks_share_the_shards_of_a_stream() -> None:
    whole = batches(DataLoader(Stream(), batch_size=3))
    parts = [batches(DataLoader(Stream(), batch_size=3, shard=(rank, 2), num_workers=2)) for rank in range(2)]
    assert [batch for tie in itertools.zip_longest(*parts) for batch in tie if batch] == whole


def test_streams_move_no_stream_of_the_program() -> None:
    before = str(get_rng_state())
    for workers in (0, 2):
        batches(DataLoader(Stream(), batch_size=3, num_workers=workers))
    assert str(get_rng_state()) == before
    assert torch_data.get_worker_info() is None


# Bad input.


class Growing(Drawing):
    def __len__(self) -> int:
        return self.n


def test_a_dataset_whose_length_changes() -> None:
    dataset = Growing(10)
    loader = DataLoader(dataset, shuffle=True)
    list(loader)
    dataset.n = 9
    with pytest.raises(DataError, match=r"\(Growing\) has 9 samples, and the loader's order is of 10"):
        list(loader)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"in_order": False}, DataError, "in_order=False"),
        ({"seed": -1}, SeedError, r"DataLoader\(seed=-1\)"),
        ({"name": ""}, DataError, "not empty"),
        ({"keyed": "jax"}, DataError, "there are numpy, python, torch"),
        ({"shard": (2, 2)}, DataError, "from 0 to the number of ranks"),
        ({"shard": 3}, DataError, "from 0 to the number of ranks"),
        ({"shard": True}, DataError, "torch.distributed is not initialised"),
        ({"shard": (0, 2), "sampler": [1, 2]}, DataError, "a list is not shared out"),
        ({"sampler": Shuffle(7), "shuffle": None}, DataError, "order is of 7"),
        ({"shuffle": True, "sampler": [1]}, ValueError, "mutually exclusive"),
        ({"num_workers": -1}, ValueError, "non-negative"),
        ({"nonsense": 1}, TypeError, "nonsense"),
    ],
)
def test_bad_loaders_are_refused(
    options: dict[str, Any], error: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(error, match=words):
        list(DataLoader(Drawing(), **options))


def test_bad_shards_are_refused() -> None:
    with pytest.raises(DataError, match=r"virtual_shards=3.*\(2\)"):
        DataLoader(Stream(), virtual_shards=3, shard=(0, 2))


def test_bad_replays_are_refused() -> None:
    with pytest.raises(DataError, match=r"the loader is a torch\.utils\.data\.dataloader\.DataLoader"):
        replay(torch_data.DataLoader(Drawing()), 0, 1)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="Stream is an iterable dataset"):
        replay(DataLoader(Stream()), 0, 1)


def test_indices_that_cannot_be_keyed() -> None:
    with pytest.raises(DataError, match="a object, as the index of a sample"):
        list(DataLoader(Drawing(), sampler=[object()]))
