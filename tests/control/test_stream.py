"""Named streams: independent of each other and of everything else, in this process and in others."""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fresh_process import fresh, fresh_file
from repository_paths import PROGRAMS

import samerun
from samerun.base.errors import SeedError
from samerun.control.random_source import LARGEST_SEED
from samerun.control.streams import process_seed
from samerun.control.streams import stream as stream_module


@pytest.fixture(autouse=True)
def _streams_put_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No stream of another test is here, and none is left behind."""
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(stream_module, "process_streams", {})
    monkeypatch.setattr("samerun.control.seeds.streams.process_streams", stream_module.process_streams)
    with samerun.isolate_rng():
        yield


def draws(name: str, **how: Any) -> list[float]:
    one = samerun.stream(name, **how)
    return [one.python.random(), one.numpy.random(), torch.rand(1, generator=one.torch).item()]


def test_first_draws_never_change() -> None:
    samerun.seed_everything(0)
    one = samerun.stream("augment")
    assert (one.python.random(), one.numpy.random()) == (0.6144292024267703, 0.8606388168424209)
    assert one.torch.initial_seed() == 13189649046642756194


def test_names_kinds_seeds_and_ranks_draw_differently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    samerun.seed_everything(0)
    drawn = [*draws("a"), *draws("b"), *draws("a/b"), *draws("a", seed=1), *draws("a", rank="distinct")]
    drawn += [random.random(), np.random.rand(), torch.rand(1).item()]
    assert len(set(drawn)) == len(drawn)


def test_drawing_moves_nothing_else() -> None:
    samerun.seed_everything(0)
    expected = [*draws("a"), *draws("b"), random.random(), np.random.rand(), torch.rand(1).item()]
    samerun.seed_everything(0)
    for _ in range(700):  # more than one block of MT19937
        draws("c")
    random.random(), np.random.rand(), torch.rand(1)
    assert [*draws("a"), *draws("b")] == expected[:6]
    samerun.seed_everything(0)
    draws("a"), draws("c")
    assert [random.random(), np.random.rand(), torch.rand(1).item()] == expected[6:]


def test_the_same_name_is_the_same_object() -> None:
    samerun.seed_everything(0)
    one = samerun.stream("a")
    assert samerun.stream("a") is one and samerun.stream("a").numpy is one.numpy
    assert copy.deepcopy([one])[0] is one and copy.copy(one) is one and pickle.loads(pickle.dumps(one)) is one
    assert isinstance(one.python, random.Random) and isinstance(one.numpy, np.random.Generator)
    assert isinstance(one.torch, torch.Generator) and one.torch_on("cpu") is one.torch
    assert [repr(samerun.stream("a", seed=3, rank="distinct")), repr(one)] == [
        "stream('a', seed=3, rank='distinct')",
        "stream('a')",
    ]


def test_a_second_seeding_starts_the_streams_again_in_place() -> None:
    samerun.seed_everything(0)
    first, held = draws("a"), samerun.stream("a").numpy
    samerun.seed_everything(1)
    other = draws("a")
    samerun.seed_everything(0)
    assert held is samerun.stream("a").numpy
    assert draws("a") == first != other


def test_a_seed_of_its_own_draws_as_that_seed_in_force() -> None:
    samerun.seed_everything(5)
    five = draws("a")
    samerun.seed_everything(0)
    assert draws("a", seed=5) == five
    assert draws("a", seed=LARGEST_SEED) != draws("a", seed=0)


def test_generators_can_be_pickled_and_copied_with_their_position() -> None:
    samerun.seed_everything(0)
    draws("a")
    one = samerun.stream("a")
    held = [one.python, one.numpy, one.torch]
    for copied in (pickle.loads(pickle.dumps(held)), copy.deepcopy(held)):
        python, numpy, generator = copied
        assert python is not one.python and type(python) is random.Random
        state = samerun.get_rng_state()
        expected = draws("a")
        samerun.set_rng_state(state)
        assert [python.random(), numpy.random(), torch.rand(1, generator=generator).item()] == expected
        samerun.set_rng_state(state)


# What the other verbs make of streams.


def test_states_hold_the_streams() -> None:
    samerun.seed_everything(0)
    draws("a")
    state = pickle.loads(pickle.dumps(samerun.get_rng_state()))
    after = draws("a") + draws("b")
    samerun.set_rng_state(state)
    assert draws("a") + draws("b") == after  # "b" is not in the state: it starts from its beginning


def test_isolation_isolates_streams() -> None:
    samerun.seed_everything(0)
    expected = [draws("a") for _ in range(2)] + [draws("new")]
    samerun.seed_everything(0)
    drawn = [draws("a")]
    with samerun.isolate_rng(3):
        inside = draws("a") + draws("new")
    with samerun.isolate_rng():
        assert draws("a") == expected[1]
    drawn += [draws("a"), draws("new")]
    assert drawn == expected
    samerun.seed_everything(3)
    assert draws("a") + draws("new") == inside


def test_a_stream_made_in_isolation_has_no_seed_outside_if_there_is_none() -> None:
    program = """
import json, samerun
with samerun.isolate_rng(3):
    one = samerun.stream("a")
    one.python.random()
try:
    one.python
except samerun.SeedError as error:
    print(json.dumps(error.message))
"""
    assert fresh(program) == "stream('a'): no seed is in force."


# Nothing is imported, nothing is forgotten.


def test_nothing_is_imported_before_it_is_used() -> None:
    program = """
import json, sys, samerun
samerun.seed_everything(0)
one = samerun.stream("a")
one.python.random()
samerun.load_state_dict(samerun.state_dict())
loaded = [[name in sys.modules for name in ("numpy", "torch")]]
one.numpy
loaded.append([name in sys.modules for name in ("numpy", "torch")])
print(json.dumps(loaded))
"""
    assert fresh(program) == [[False, False], [True, False]]


def test_a_state_waits_for_its_library() -> None:
    save = """
import json, samerun, sys
samerun.seed_everything(0)
one = samerun.stream("a")
one.numpy.random()
state = samerun.get_rng_state()["streams"]
print(json.dumps([state, one.numpy.random(), one.python.random()]))
"""
    state, *after = fresh(save)
    load = f"""
import json, samerun, sys
state = json.loads({json.dumps(json.dumps({"streams": state}))})
samerun.set_rng_state(state)
assert "numpy" not in sys.modules and samerun.get_rng_state()["streams"] == state["streams"]
one = samerun.stream("a")
print(json.dumps([one.numpy.random(), one.python.random()]))
"""
    assert fresh(load) == after


def test_a_damaged_state_that_waited_is_an_error_when_it_is_used() -> None:
    samerun.seed_everything(0)
    one = samerun.stream("a")
    one.python.random()
    one.pending_states["numpy"] = {"bit_generator": "MT19937"}
    with pytest.raises(SeedError, match=r"^stream\('a'\): numpy did not take its state: .*\n  The state is of"):
        _ = one.numpy


# Errors.


def test_no_seed_is_in_force() -> None:
    program = """
import json, samerun
try:
    samerun.stream("augment")
except samerun.SeedError as error:
    print(json.dumps(str(error)))
"""
    assert fresh(program) == (
        "stream('augment'): no seed is in force.\n"
        "  Call seed_everything(seed) first, or pass one: stream('augment', seed=0)."
    )


@pytest.mark.parametrize("name", ["", 3, None, b"a"])
def test_names_that_are_none(name: Any) -> None:
    with pytest.raises(SeedError, match=r"^stream\(name=.*\): a name is a string that is not empty\.\n  Pass what"):
        samerun.stream(name)


def test_seeds_ranks_and_devices_that_are_none() -> None:
    samerun.seed_everything(0)
    with pytest.raises(SeedError, match=r"^stream\(seed=-1\): a seed is a whole number from 0 to"):
        samerun.stream("a", seed=-1)
    with pytest.raises(
        SeedError, match=r"^stream\('a', rank='own'\): rank is \"same\" or \"distinct\"\.\n  \"same\": all"
    ):
        samerun.stream("a", rank="own")  # type: ignore[arg-type]
    for device in ("nonsense", "xpu:9"):
        with pytest.raises(SeedError, match=rf"torch_on\('{device}'\): torch gives no generator for this device: "):
            samerun.stream("a").torch_on(device)


def record(**damage: Any) -> dict[str, Any]:
    return {"streams": [{"name": "a", "rank": "same", "seed": None, "drawn_as": 0, "parts": {}, **damage}]}


@pytest.mark.parametrize(
    "damage",
    [
        {"seed": "0"},
        {"place": 3},
        {"streams": 3},
        {"streams": [3]},
        {"streams": [{}]},
        record(name=3),
        record(rank="own"),
        record(seed="0"),
        record(parts={"java": 1}),
        record(parts={"python": [3, [1], None]}),
        record(parts={"python": [3, list(range(625)), "a"]}),
        record(parts={"numpy": {"state": 1}}),
        record(parts={"torch/cpu": torch.zeros(9)}),
    ],
)
def test_damaged_states(damage: dict[str, Any]) -> None:
    samerun.seed_everything(0)
    state = samerun.get_rng_state()
    state["streams"] = {**state["streams"], **damage}
    with pytest.raises(SeedError, match="streams did not take its state: "):
        samerun.set_rng_state(state)


# Ranks.


def test_ranks_draw_the_same_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, list[Any]] = {"same": [], "distinct": []}
    for rank in ("", "0", "1", "2"):
        monkeypatch.setenv("RANK", rank)
        for how, seen in drawn.items():
            samerun.seed_everything(0)
            seen.append(draws("a", rank=how))
    assert all(one == drawn["same"][0] for one in drawn["same"])
    assert drawn["distinct"][0] == drawn["distinct"][1]
    assert len({str(one) for one in drawn["distinct"][1:]}) == 3


def test_a_rank_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    samerun.seed_everything(0)
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(SeedError, match=r"^RANK='first' in the environment: a rank is a whole number from 0\."):
        _ = samerun.stream("a", rank="distinct").python


def test_a_rank_that_becomes_known_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    samerun.seed_everything(0)
    one = samerun.stream("a", rank="distinct")
    monkeypatch.setenv("RANK", "2")
    one.python.random()  # nothing was drawn before: rank 2 it is
    monkeypatch.delenv("RANK")
    one.python.random()  # gone at the end of the run: still rank 2
    monkeypatch.setenv("RANK", "3")
    with pytest.raises(SeedError, match=r"drawn from when this process was rank 2, which is rank 3 now\.\n  Draw"):
        one.python.random()


def test_torch_distributed_knows_the_rank_best() -> None:
    program = """
import json, os, samerun, torch.distributed as dist
samerun.seed_everything(0)
store = dist.HashStore()
dist.init_process_group("fake", store=store, rank=3, world_size=4)
drawn = samerun.stream("a", rank="distinct").python.random()
dist.destroy_process_group()
os.environ["RANK"] = "3"
samerun.seed_everything(0)
print(json.dumps([drawn, samerun.stream("a", rank="distinct").python.random()]))
"""
    one, other = fresh("from torch.testing._internal.distributed.fake_pg import FakeStore\n" + program, RANK="1")
    assert one == other


# Other processes.


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "way",
    ["object", "name", "held"],
)
def test_no_two_workers_or_epochs_draw_the_same(way: str) -> None:
    seen = {}
    for context in ("fork", "spawn"):
        (line,) = fresh_file(PROGRAMS / "stream_in_workers.py", context, way)
        epochs = json.loads(line)
        drawn = [number for epoch in epochs for number in epoch]
        assert len(drawn) == 24 and len(set(drawn)) == 24
        seen[context] = epochs
    if way != "held":
        assert seen["fork"] == seen["spawn"]


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_children_draw_their_own_and_the_same_in_every_run(context: str) -> None:
    runs = [json.loads(fresh_file(PROGRAMS / "stream_in_children.py", context)[0]) for _ in range(2)]
    assert runs[0] == runs[1]
    first, second, seeded, parent = runs[0]
    assert len({first, second, parent}) == 3
    assert seeded == parent  # a child that seeds itself draws what its parent draws with that seed


@pytest.mark.exhaustive
def test_ranks_of_a_real_run_and_their_workers(tmp_path: Path) -> None:
    lines = fresh_file(PROGRAMS / "stream_in_ranks.py", str(tmp_path / "meet"))
    (same, own, shared, workers), (same_1, own_1, shared_1, workers_1) = map(json.loads, sorted(lines))
    assert same == same_1 and own != own_1
    assert shared == shared_1 and len(set(shared)) == 2  # two workers, each its own, the same on both ranks
    assert len({*workers, *workers_1}) == 4


def test_forks_draw_their_own() -> None:
    samerun.seed_everything(0)
    one = samerun.stream("a")
    held = one.numpy
    drawn = []
    for _ in range(2):
        reading, writing = os.pipe()
        if not (child := os.fork()):
            os.write(writing, json.dumps([held.random(), one.python.random()]).encode())
            os._exit(0)
        os.waitpid(child, 0)
        drawn += json.loads(os.read(reading, 1000))
        os.close(reading), os.close(writing)
    drawn += [held.random(), one.python.random()]
    assert len(set(drawn)) == 6
    samerun.seed_everything(0)
    assert [held.random(), one.python.random()] == drawn[4:]


def test_a_spawned_process_without_a_seed_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_seed, "_seed", None)
    monkeypatch.setattr("samerun.control.streams.process_seed.read_multiprocessing_identity", lambda: (1,))
    with pytest.raises(SeedError, match="A spawned process has no seed unless it is given a stream of its parent"):
        samerun.stream("a")


@pytest.mark.cuda
def test_on_cuda() -> None:
    samerun.seed_everything(0)
    one = samerun.stream("a")
    assert one.torch_on("cuda") is one.torch_on(f"cuda:{torch.cuda.current_device()}")
    first = torch.rand(3, device="cuda", generator=one.torch_on("cuda")).tolist()
    state = samerun.get_rng_state()
    second = torch.rand(3, device="cuda", generator=one.torch_on("cuda")).tolist()
    samerun.set_rng_state(state)
    assert torch.rand(3, device="cuda", generator=one.torch_on("cuda")).tolist() == second != first
