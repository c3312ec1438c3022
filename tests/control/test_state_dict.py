"""state_dict and load_state_dict: all that is random goes on, or nothing changes."""

from __future__ import annotations

import copy
import io
import json
import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fresh_process import fresh, fresh_file
from repository_paths import PROGRAMS

import samerun
from samerun.base.errors import SeedError
from samerun.control.random_source import DeviceCountMismatch, RandomSource
from samerun.control.rng import seeding
from samerun.control.seeds.torch import make_device_source

PROGRAM = PROGRAMS / "resumed.py"


@pytest.fixture(autouse=True)
def _streams_put_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("RANK", raising=False)
    with samerun.isolate_rng(0):
        yield


def parts_of(name: str) -> list[float]:
    one = samerun.stream(name)
    return [one.python.gauss(0, 1), one.numpy.random(), torch.rand(1, generator=one.torch).item()]


def draws() -> list[float]:
    return [random.gauss(0, 1), np.random.standard_normal(), torch.randn(1).item(), *parts_of("a")]


def everything() -> str:
    return json.dumps([samerun.state_dict(), seeding.seed_in_force()], default=lambda tensor: tensor.tolist())


@pytest.mark.exhaustive
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint.pt")
    whole = fresh_file(PROGRAM, "whole", path)
    before = fresh_file(PROGRAM, "save", path)
    after = fresh_file(PROGRAM, "resume", path, PYTHONHASHSEED="7")
    assert len(whole) == 9 and before + after == whole


def test_all_goes_on_from_there() -> None:
    samerun.seed_everything(5)
    draws()
    state = samerun.state_dict()
    after = [draws(), draws()]
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    for one in (state, copy.deepcopy(state), torch.load(file, weights_only=True)):
        samerun.seed_everything(6)
        samerun.load_state_dict(one)
        assert [draws(), draws()] == after and seeding.seed_in_force() == 5
    assert set(state) == {"samerun_state", "seed", "rank", "rng"} and state["samerun_state"] == 1


def test_the_largest_seed_and_none_survive() -> None:
    for seed in (2**64 - 1, None):
        seeding.set_seed_in_force(seed)
        state = json.loads(json.dumps({**samerun.state_dict(), "rng": {}}))
        seeding.set_seed_in_force(1)
        samerun.load_state_dict(state, strict=False)
        assert seeding.seed_in_force() == seed


def test_libraries_that_arrive_later_get_the_saved_seed() -> None:
    program = """
import json, samerun
samerun.seed_everything(4)
state = samerun.state_dict()
samerun.seed_everything(5)
samerun.load_state_dict(state)
import numpy
first = numpy.random.rand()
samerun.seed_everything(4)
print(json.dumps(first == numpy.random.rand()))
"""
    assert fresh(program) is True


# What is not a state.


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ([], r"a state is a dict, not a list\.\n  Pass what state_dict"),
        (None, r"a state is a dict, not a NoneType\."),
        ({}, r"this dict is not from state_dict\(\); its keys: none\.\n  Pass the part of your checkpoint"),
        ({"model": 1, "epoch": 2}, r"its keys: 'epoch', 'model'\."),
        ({"samerun_state": 2}, r"the state has layout 2; known here: 1\.\n  It was saved by another version"),
        ({"samerun_state": "1"}, r"the state has layout '1'; known here: 1\."),
        ({"samerun_state": 1, "seed": 3}, r"the state lacks rank, rng\.\n  The checkpoint is damaged"),
        ({"samerun_state": 1, "seed": -3, "rank": 0, "rng": {}}, r"a seed is a whole number"),
        ({"samerun_state": 1, "seed": 3, "rank": "0", "rng": {}}, r"the state's rank is '0', no whole number"),
        ({"samerun_state": 1, "seed": 3, "rank": 0, "rng": []}, r"the state's 'rng' is list, no dict"),
        ({"samerun_state": 1, "seed": 3, "rank": 0, "rng": {3: 4}}, r"the state's 'rng' is dict, no dict of names"),
    ],
)
def test_no_state(state: Any, words: str) -> None:
    before = everything()
    for strict in (True, False):
        with pytest.raises(SeedError, match=r"^load_state_dict\(.*" + words):
            samerun.load_state_dict(state, strict=strict)
    assert everything() == before


def test_names_of_a_file_command_no_terminal(caplog: pytest.LogCaptureFixture) -> None:
    state = samerun.state_dict()
    state["rng"]["no\x1b[2J\u202esuch"] = {}
    samerun.load_state_dict(state, strict=False)
    assert "no\\x1b[2J\\u202esuch" in caplog.text and "\x1b" not in caplog.text


def cut(name: str, part: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    def damage(rng: dict[str, Any]) -> None:
        rng[name] = part(rng[name])

    return damage


def numpys(**parts: Any) -> Callable[[Any], Any]:
    return lambda state: {**state, **parts}


DAMAGES = {
    "torch_cut": cut("torch", lambda state: state[:100]),
    "torch_shape": cut("torch", lambda state: state.reshape(2, -1)),
    "torch_dtype": cut("torch", lambda state: state.float()),
    "torch_zeros": cut("torch", torch.zeros_like),
    "torch_list": cut("torch", lambda state: state.tolist()),
    "python_cut": cut("python", lambda state: (state[0], state[1][:600], state[2])),
    "python_flat": cut("python", lambda state: state[1]),
    "python_kept": cut("python", lambda state: (*state[:2], "a normal number")),
    "python_words": cut("python", lambda state: (3, (2**40, *state[1][1:]), None)),
    "numpy_cut": cut("numpy", lambda state: {**state, "state": {**state["state"], "key": state["state"]["key"][:600]}}),
    "numpy_position": cut("numpy", lambda state: {**state, "state": {**state["state"], "pos": 700}}),
    "numpy_none": cut("numpy", numpys(state=None)),
    "numpy_other": cut("numpy", numpys(bit_generator="Philox")),
    "numpy_kept": cut("numpy", numpys(has_gauss=1, gauss="a normal number")),
    "streams_seed": cut("streams", numpys(seed="0")),
    "streams_cut": cut("streams", lambda state: {"seed": 0}),
    "stream_torch": cut("streams", lambda state: damaged_part(state, "torch/cpu", torch.zeros(3, dtype=torch.uint8))),
    "stream_numpy": cut("streams", lambda state: damaged_part(state, "numpy", {"bit_generator": "PCG64"})),
    "stream_python": cut("streams", lambda state: damaged_part(state, "python", (3, (1, 2), None))),
    "stream_unknown": cut("streams", lambda state: damaged_part(state, "java", 3)),
}


def damaged_part(state: Any, part: str, value: Any) -> Any:
    """The last of the streams with another part: those before it are put back already."""
    *others, last = state["streams"]
    return {**state, "streams": [*others, {**last, "parts": {**last["parts"], part: value}}]}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", DAMAGES)
def test_nothing_is_half_loaded(name: str, strict: bool) -> None:
    samerun.seed_everything(1)
    draws(), samerun.stream("last").numpy.random()
    state = samerun.state_dict()
    state["rng"] = dict(state["rng"])
    DAMAGES[name](state["rng"])
    samerun.seed_everything(2)
    draws()
    here = samerun.get_rng_state()
    expected = [*draws(), *parts_of("last")]
    samerun.set_rng_state(here)
    source = name.partition("_")[0].replace("stream", "streams").replace("ss", "s")
    with pytest.raises(SeedError, match=rf"^load_state_dict\(\): {source} did not take its state: .*") as caught:
        samerun.load_state_dict(state, strict=strict)
    assert str(caught.value).endswith(
        "\n  It was saved with other devices or another version of the library, or it is damaged. Nothing was changed."
    )
    assert seeding.seed_in_force() == 2
    assert [*draws(), *parts_of("last")] == expected


# What is here and not there.


def test_a_source_that_is_not_here(caplog: pytest.LogCaptureFixture) -> None:
    samerun.seed_everything(1)
    state, after = samerun.state_dict(), draws()
    state["rng"] = {**state["rng"], "torch_mps": torch.zeros(1), "mine": 3}
    with pytest.raises(SeedError) as caught:
        samerun.load_state_dict(state)
    assert str(caught.value) == (
        "load_state_dict(): the state holds torch_mps, mine, which this process lacks.\n"
        "  Before it: import torch, register_rng('mine', ...). Or pass strict=False to put back what fits."
    )
    assert draws() != after
    with caplog.at_level(logging.WARNING, "samerun"):
        samerun.load_state_dict(state, strict=False)
    assert "the state holds torch_mps, mine, which this process lacks" in caplog.text
    assert draws() == after


def test_a_source_that_is_not_there(caplog: pytest.LogCaptureFixture) -> None:
    samerun.seed_everything(1)
    state, before = samerun.state_dict(), everything()
    state["rng"] = {name: one for name, one in state["rng"].items() if name not in ("numpy", "torch")}
    with pytest.raises(SeedError, match=r"this process has numpy, torch, which the state lacks\.\n  Take the state"):
        samerun.load_state_dict(state)
    assert everything() == before
    with caplog.at_level(logging.WARNING, "samerun"):
        samerun.load_state_dict(state, strict=False)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def devices(count: int) -> RandomSource:
    held = [0] * count

    def set_state(state: list[int]) -> None:
        if len(state) != count:
            raise DeviceCountMismatch(len(state), count)
        held[:] = state

    return RandomSource("toys", "", lambda: True, print, lambda: list(held), set_state)


def test_another_number_of_devices(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeding, "_registered", {"toys": devices(4)})
    samerun.seed_everything(1)
    state, after = samerun.state_dict(), draws()
    monkeypatch.setattr(seeding, "_registered", {"toys": devices(2)})
    samerun.seed_everything(2)
    before = everything()
    with pytest.raises(SeedError) as caught:
        samerun.load_state_dict(state)
    assert str(caught.value) == (
        "load_state_dict(): toys did not take its state: it is of 4 devices, and there are 2 here\n"
        "  Resume with as many devices, or pass strict=False to leave their streams as they are."
    )
    assert everything() == before
    with caplog.at_level(logging.WARNING, "samerun"):
        samerun.load_state_dict(state, strict=False)
    assert caplog.messages == [
        "load_state_dict(): toys keeps its stream: the state's is refused: it is of 4 devices, and there are 2 here"
    ]
    assert draws() == after


def test_cuda_refuses_another_number_with_the_error_that_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(DeviceCountMismatch, match="it is of 1 devices, and there are 2 here"):
        make_device_source("cuda").set_state({"devices": [torch.zeros(16, dtype=torch.uint8)]})


def test_another_rank(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    samerun.seed_everything(1)
    noise = samerun.stream("noise", rank="distinct")
    draws(), noise.python.random()
    state, after = samerun.state_dict(), draws()
    zero = noise.python.random()
    monkeypatch.setenv("RANK", "1")
    samerun.seed_everything(1)
    start = noise.python.random()
    with pytest.raises(
        SeedError, match=r"the state is of rank 0, and this is rank 1\.\n  Save the state of every rank"
    ):
        samerun.load_state_dict(state)
    with pytest.raises(SeedError, match=r"its stream 'noise' is of rank 0, and this is rank 1"):
        samerun.set_rng_state(state["rng"])
    with caplog.at_level(logging.WARNING, "samerun"):
        samerun.load_state_dict(state, strict=False)
    assert "the state is of rank 0, and this is rank 1" in caplog.text
    assert draws() == after
    assert noise.python.random() == start != zero  # from its beginning, as rank 1


@pytest.mark.cuda
def test_on_cuda() -> None:
    samerun.seed_everything(1)
    torch.rand(3, device="cuda")
    state, after = samerun.state_dict(), torch.rand(3, device="cuda").tolist()
    samerun.seed_everything(2)
    samerun.load_state_dict(state)
    assert torch.rand(3, device="cuda").tolist() == after
