"""Seeds: every source of the table, the verbs on them, and what must never change."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import io
import json
import logging
import pickle
import random
import subprocess
import sys
import types
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import samerun
from samerun.base.errors import SamerunError, SeedError
from samerun.control.random_source import LARGEST_SEED, RandomSource, derive_seed
from samerun.control.rng.isolation import isolate_rng
from samerun.control.rng.seeding import register_rng, seed_everything, unregister_rng
from samerun.control.rng.state import get_rng_state, set_rng_state
from samerun.control.seeds import torch as torch_sources
from samerun.control.seeds.table import SOURCES
from samerun.control.seeds.torch import find_queued_seed, make_device_source

LIBRARIES_OF_TABLE = sorted({source.module for source in SOURCES} - {""})
NAMES = [source.name for source in SOURCES]


def draw_numba() -> Any:
    if "numba" not in DRAWERS:
        import numba

        DRAWERS["numba"] = numba.njit(lambda: (np.random.rand(), np.random.standard_normal(), random.random()))
    return DRAWERS["numba"]()


def draw_opencv() -> Any:
    import cv2

    return cv2.randu(np.zeros(3), 0, 1).ravel().tolist()


def draw_polars() -> Any:
    import polars

    return polars.Series(range(30)).shuffle().to_list()


def draw_tensorflow() -> Any:
    import tensorflow

    return tensorflow.random.uniform((3,)).numpy().tolist()


def draw_named() -> Any:
    return samerun.stream("test").numpy.random() if samerun.get_rng_state()["streams"]["seed"] else None


DRAWERS: dict[str, Callable[[], Any]] = {}
# An odd number of normals: the second of a pair is then kept for the next call.
DRAW: dict[str, Callable[[], Any]] = {
    "python": lambda: (random.gauss(0, 1), random.random()),
    "numpy": lambda: (np.random.standard_normal(), np.random.rand()),
    "torch": lambda: (torch.randn(1).item(), torch.rand(2).tolist()),
    "torch_cuda": lambda: torch.rand(3, device="cuda").tolist(),
    "torch_mps": lambda: torch.rand(3, device="mps").tolist(),
    "torch_xpu": lambda: torch.rand(3, device="xpu").tolist(),
    "numba": draw_numba,
    "opencv": draw_opencv,
    "polars": draw_polars,
    "tensorflow": draw_tensorflow,
    "streams": lambda: (samerun.stream("test", seed=0).python.random(), draw_named()),
}
LIBRARIES = {"numba": "numba", "opencv": "cv2", "polars": "polars", "tensorflow": "tensorflow"}


@pytest.fixture(params=SOURCES, ids=NAMES)
def source(request: pytest.FixtureRequest) -> RandomSource:
    """Each source of the table that can draw here."""
    found: RandomSource = request.param
    if found.name in LIBRARIES and importlib.util.find_spec(found.module):
        importlib.import_module(found.module)
    if found.name not in DRAW or not found.available():
        pytest.skip(f"{found.name} is not here")
    return found


@pytest.fixture(autouse=True)
def _streams_put_back() -> Iterator[None]:
    with isolate_rng():
        yield


def all_draws() -> dict[str, Any]:
    return {name: DRAW[name]() for name in ("python", "numpy", "torch")}


def plain(state: Any) -> str:
    return json.dumps(state, default=lambda tensor: tensor.tolist())


def all_states() -> str:
    """Every bit of every state."""
    return plain(get_rng_state())


def fresh(program: str, **environment: str) -> Any:
    """What `program` prints, as JSON, in a process of its own."""
    import os

    run = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(run, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# The table.


def test_every_source_of_the_folder_is_in_the_table() -> None:
    import samerun.control.seeds.table as table

    names = [path.stem for path in Path(table.__file__).parent.glob("*.py")]
    modules = [importlib.import_module(f"samerun.control.seeds.{name}") for name in names]
    defined = [value for module in modules for value in vars(module).values() if isinstance(value, RandomSource)]
    assert len(defined) == len(SOURCES) and all(source in SOURCES for source in defined)


def test_names_are_unique_and_torch_comes_before_its_devices() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert all(NAMES.index("torch") < NAMES.index(name) for name in NAMES if name.startswith("torch_"))


def test_draw_restore_draw_is_the_same(source: RandomSource) -> None:
    source.seed(5)
    first = DRAW[source.name]()
    state = source.get_state()
    if state is None:
        assert source.note
        source.seed(5)
        assert DRAW[source.name]() == first
        with pytest.raises(TypeError, match="state"):
            source.set_state(object())
        return
    state = pickle.loads(pickle.dumps(state))
    after = [DRAW[source.name]() for _ in range(3)]
    source.set_state(state)
    assert [DRAW[source.name]() for _ in range(3)] == after


def test_another_seed_draws_otherwise(source: RandomSource) -> None:
    draws = []
    for seed in (0, 1, 2**31, 2**31 + 1, LARGEST_SEED - 1):
        source.seed(seed)
        draws.append(str(DRAW[source.name]()))
    assert len(set(draws)) >= 3  # some take fewer bits than 64


def test_seeding_one_leaves_its_neighbours_alone(source: RandomSource) -> None:
    seed_everything(1)
    before = get_rng_state()
    source.seed(9)
    after = get_rng_state()
    for name in {"python", "numpy", "torch", "numba"} & set(before) - {source.name}:
        assert plain(before[name]) == plain(after[name])


def test_stateless_sources_are_announced_once(caplog: pytest.LogCaptureFixture, source: RandomSource) -> None:
    if source.get_state() is not None:
        pytest.skip("it gives its state")
    with caplog.at_level(logging.WARNING, "samerun"):
        assert source.name not in get_rng_state()
        get_rng_state()
    assert len([line for line in caplog.messages if line.startswith(source.name)]) <= 1


# Sub-seeds.


def test_sub_seeds_never_change() -> None:
    assert [derive_seed(0, "python"), derive_seed(1, "python"), derive_seed(LARGEST_SEED, "python")] == [
        9598648224730224458,
        9262879095161973718,
        14324254890594126515,
    ]
    assert derive_seed(0, "numpy") == 8154660921596729198
    assert derive_seed(0, "torch") == 9879160458303429232
    assert derive_seed(0, "torch_cuda") == 5588992240558206500


def test_first_draws_never_change() -> None:
    seed_everything(0)
    assert (random.random(), random.getrandbits(32)) == (0.8341507417208845, 1439210715)
    assert np.random.rand(2).tolist() == [0.6965987728261859, 0.9410264310259229]
    assert torch.randint(0, 2**31, (2,)).tolist() == [638301783, 563983581]


@given(st.integers(0, LARGEST_SEED), st.integers(0, LARGEST_SEED))
def test_sub_seeds_differ(one: int, other: int) -> None:
    seeds = [derive_seed(seed, name) for seed in {one, other} for name in NAMES]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed <= LARGEST_SEED for seed in seeds)


# seed_everything.


@given(st.integers(0, LARGEST_SEED))
def test_same_seed_same_draws(seed: int) -> None:
    assert seed_everything(seed) == seed
    first = all_draws()
    assert seed_everything(np.uint64(seed)) == seed  # type: ignore[arg-type]
    assert all_draws() == first


def test_sources_draw_different_numbers() -> None:
    seed_everything(3)
    assert len({random.getrandbits(32), np.random.randint(2**32), int(torch.randint(2**32, ()))}) == 3


def test_same_seed_same_draws_in_fresh_processes() -> None:
    program = (
        "from samerun.control.rng.seeding import seed_everything; import json, random, numpy, torch;"
        "seed_everything(7); drawn = [random.random(), numpy.random.rand(), torch.rand(2).tolist()];"
        "print(json.dumps(drawn))"
    )
    assert fresh(program, PYTHONHASHSEED="1") == fresh(program, PYTHONHASHSEED="2")


def test_nothing_is_imported() -> None:
    program = (
        "import samerun as s, sys, json; s.seed_everything, s.set_rng_state, s.isolate_rng;"
        "before = set(sys.modules); s.seed_everything(1);"
        "s.set_rng_state(s.get_rng_state()); s.isolate_rng(2)(lambda: 0)();"
        f"here = [name for name in {LIBRARIES_OF_TABLE} if name in sys.modules];"
        "print(json.dumps([here, sorted(set(sys.modules) - before)]))"
    )
    assert fresh(program) == [[], []]


@pytest.mark.slow
def test_a_library_imported_later_is_seeded_on_arrival() -> None:
    head = "from samerun.control.rng.seeding import seed_everything; import json, sys\n"
    tail = "\nprint(json.dumps([numpy.random.rand(), torch.rand(2).tolist()]))"
    before = fresh(head + "seed_everything(4); import numpy, torch" + tail)
    after = fresh(head + "import numpy, torch; seed_everything(4)" + tail)
    assert before == after


@pytest.mark.parametrize("order", ["hook(); seed_everything(4)", "seed_everything(4); hook()"])
def test_arrivals_get_on_with_another_hook(order: str) -> None:
    program = """
import json, sys, importlib.util
from samerun.control.rng.seeding import seed_everything
class Other:
    def find_spec(self, name, path=None, target=None):
        for finder in list(sys.meta_path) if name == "numpy" else []:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None: return spec
hook = lambda: sys.meta_path.insert(0, Other())
ORDER
assert importlib.util.find_spec("numpy").name == "numpy" and "numpy" not in sys.modules
import numpy
first = numpy.random.rand(); seed_everything(4)
print(json.dumps(first == numpy.random.rand()))
""".replace("ORDER", order)
    assert fresh(program) is True


def test_a_library_imported_in_isolation_gets_the_seed_outside() -> None:
    program = """
import json
from samerun.control.rng.isolation import isolate_rng
from samerun.control.rng.seeding import seed_everything
seed_everything(4)
with isolate_rng(9):
    import numpy
    inside = numpy.random.rand()
outside = numpy.random.rand()
seed_everything(9); nine = numpy.random.rand()
seed_everything(4); four = numpy.random.rand()
print(json.dumps([inside == nine, outside == four]))
"""
    assert fresh(program) == [True, True]


def test_none_draws_a_seed_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "samerun"):
        seed = seed_everything(None)
    first = all_draws()
    assert f"seed_everything({seed})" in caplog.text and caplog.records[0].levelname == "INFO"
    assert seed != seed_everything(None)
    seed_everything(seed)
    assert all_draws() == first


def test_the_error_for_a_negative_seed() -> None:
    with pytest.raises(SeedError) as caught:
        seed_everything(-1)
    assert str(caught.value) == (
        "seed_everything(seed=-1): a seed is a whole number from 0 to 18446744073709551615.\n"
        "  NumPy and Python seeds are derived from it by hashing, so small seeds are as good as large ones."
    )
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, SamerunError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    "seed",
    [True, 1.0, "1", b"1", -1, 2**64, pytest.param(10**5000, id="long"), np.bool_(True), np.float64(1), [1]],
)
def test_no_seed(seed: Any) -> None:
    before = all_states()
    with pytest.raises(SeedError, match=r"^seed_everything\(seed=.*a seed is a whole number from 0 to"):
        seed_everything(seed)
    with pytest.raises(SeedError, match=r"^isolate_rng\(seed="):
        isolate_rng(seed=seed)
    assert all_states() == before


def test_the_error_names_the_wrong_type() -> None:
    with pytest.raises(SeedError, match=r"\(seed='1'\).*18446744073709551615, not a str\.\n  Pass a whole number"):
        seed_everything("1")  # type: ignore[arg-type]


# States.


def test_state_survives_pickle_and_torch_save() -> None:
    seed_everything(2)
    random.gauss(0, 1), np.random.standard_normal(), torch.randn(1)
    state = get_rng_state()
    after = all_draws()
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    for copy in (pickle.loads(pickle.dumps(state)), torch.load(file, weights_only=True)):
        set_rng_state(copy)
        assert all_draws() == after


def test_taking_a_state_draws_nothing_and_shares_nothing() -> None:
    seed_everything(2)
    one = all_states()
    kept = get_rng_state()
    assert plain(kept) == one
    all_draws()
    assert plain(kept) == one != all_states()


def test_other_generators_in_numpys_place() -> None:
    before = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.Philox(1))
        seed_everything(1)
        state, first = get_rng_state(), np.random.rand()
        set_rng_state(pickle.loads(pickle.dumps(state)))
        assert np.random.rand() == first
        seed_everything(1)
        assert np.random.rand() == first
    finally:
        np.random.set_bit_generator(before)


def test_a_state_of_something_absent() -> None:
    state = {**get_rng_state(), "torch_mps": torch.zeros(1), "mine": 3}
    before = all_states()
    with pytest.raises(SeedError) as caught:
        set_rng_state(state)
    assert str(caught.value).startswith(
        "set_rng_state(): the state holds torch_mps, mine, which this process lacks (it has python, numpy,"
    )
    assert str(caught.value).endswith(
        "\n  Before it: import torch, register_rng('mine', ...). Or pass strict=False to put back the others."
    )
    assert all_states() == before
    set_rng_state(state, strict=False)


def test_a_refused_state_does_not_stop_the_others() -> None:
    seed_everything(1)
    state, after = get_rng_state(), torch.rand(2).tolist()
    state["python"] = "damaged"
    with pytest.raises(SeedError, match=r"python did not take its state: .*\n  It was saved with other devices"):
        set_rng_state(state)
    assert torch.rand(2).tolist() == after
    with pytest.raises(SeedError, match="a state is a mapping, not a list"):
        set_rng_state([])  # type: ignore[arg-type]


# isolate_rng.


def test_isolation_puts_back_everything_with_kept_normals() -> None:
    seed_everything(1)
    random.gauss(0, 1), np.random.standard_normal(), torch.randn(1)  # each keeps one normal now
    expected = all_states()
    with isolate_rng(seed=8):
        inside = all_draws()
        random.gauss(0, 1)
    assert all_states() == expected
    seed_everything(8)
    assert all_draws() == inside


def test_isolation_without_a_seed_goes_on_from_outside() -> None:
    seed_everything(1)
    with isolate_rng():
        inside = all_draws()
    assert all_draws() == inside


def test_isolation_puts_back_after_an_exception_and_when_nested() -> None:
    seed_everything(1)
    expected = all_states()
    isolation = isolate_rng(2)
    with pytest.raises(KeyError), isolation:
        one = all_draws()
        between = all_states()
        with pytest.raises(ZeroDivisionError), isolation:
            assert all_draws() == one
            seed_everything(5)
            raise ZeroDivisionError
        assert all_states() == between
        raise KeyError
    assert all_states() == expected


@pytest.mark.parametrize("decorate", [isolate_rng, isolate_rng(), isolate_rng(seed=3)])
def test_decorated_function(decorate: Any) -> None:
    @decorate
    def draw(times: int, *, more: int = 0) -> list[float]:
        """Draw."""
        return [random.random() for _ in range(times + more)] + (draw(0, more=1) if times else [])

    assert (draw.__name__, draw.__doc__) == ("draw", "Draw.")
    seed_everything(1)
    expected = all_states()
    first = draw(2, more=1)
    assert len(first) == 4 and draw(2, more=1) == first
    assert all_states() == expected


def test_decorated_generator_is_inside_only_while_it_runs() -> None:
    @isolate_rng(seed=3)
    def numbers() -> Iterator[Any]:
        sent = yield random.random()
        try:
            yield (sent, random.random())
        except KeyError:
            yield random.random()
        return "the end"

    seed_everything(3)
    inside = [random.random() for _ in range(3)]
    seed_everything(1)
    outside = [random.random() for _ in range(4)]
    seed_everything(1)
    running = numbers()
    assert [next(running), random.random()] == [inside[0], outside[0]]
    assert [running.send("hello"), random.random()] == [("hello", inside[1]), outside[1]]  # type: ignore[attr-defined]
    assert [running.throw(KeyError()), random.random()] == [inside[2], outside[2]]  # type: ignore[attr-defined]
    with pytest.raises(StopIteration, match="the end"):
        next(running)
    unfinished = numbers()
    next(unfinished)
    unfinished.close()  # type: ignore[attr-defined]
    assert random.random() == outside[3]


def test_decorated_coroutines_take_turns() -> None:
    import inspect

    @isolate_rng(seed=3)
    async def draw() -> list[float]:
        drawn = []
        for _ in range(3):
            drawn.append(random.random())
            await asyncio.sleep(0)
        return drawn

    async def main() -> tuple[list[float], ...]:
        return tuple(await asyncio.gather(draw(), draw()))

    assert inspect.iscoroutinefunction(draw)
    seed_everything(1)
    loop = asyncio.new_event_loop()
    try:
        expected = all_states()
        one, other = loop.run_until_complete(main())
    finally:
        loop.close()
    assert all_states() == expected
    seed_everything(3)
    assert one == other == [random.random() for _ in range(3)]


def test_decorated_async_generator() -> None:
    import inspect

    closed = []

    @isolate_rng(seed=3)
    async def numbers() -> AsyncIterator[float]:
        try:
            while True:
                yield random.random()
                await asyncio.sleep(0)
        finally:
            closed.append(random.random())

    async def main() -> list[float]:
        running: Any = numbers()
        drawn = [await running.__anext__(), random.random(), await running.__anext__(), random.random()]
        with pytest.raises(KeyError):
            await running.athrow(KeyError())
        other: Any = numbers()
        await other.__anext__()
        await other.aclose()
        return [*drawn, random.random()]

    assert inspect.isasyncgenfunction(numbers)
    seed_everything(3)
    inside = [random.random() for _ in range(3)]
    seed_everything(1)
    outside = [random.random() for _ in range(3)]
    seed_everything(1)
    loop = asyncio.new_event_loop()
    try:
        drawn = loop.run_until_complete(main())
    finally:
        loop.close()
    assert drawn == [inside[0], outside[0], inside[1], outside[1], outside[2]]
    assert closed == [inside[2], inside[1]]


# register_rng.


@pytest.fixture
def mine() -> Iterator[random.Random]:
    generator = random.Random(0)
    yield generator
    unregister_rng("mine")


def register(generator: random.Random) -> None:
    register_rng("mine", seed=generator.seed, get_state=generator.getstate, set_state=generator.setstate)


def test_registered_generator(mine: random.Random) -> None:
    seed_everything(6)
    register(mine)
    first = mine.random()  # seeded when registered: a seed was in force
    seed_everything(6)
    state = get_rng_state()
    assert mine.random() == first == random.Random(derive_seed(6, "mine")).random()
    set_rng_state(state)
    assert mine.random() == first
    with isolate_rng(6):
        assert mine.random() == first
    assert mine.random() != first


def test_names_that_cannot_be_registered(mine: random.Random) -> None:
    register(mine)
    with pytest.raises(SeedError, match=r"registered already\.\n  To replace it, call unregister_rng\('mine'\)"):
        register(mine)
    for name in ("numpy", "", 3):
        with pytest.raises(SeedError, match=r"^register_rng\(name="):
            register_rng(name, seed=print, get_state=list, set_state=print)  # type: ignore[arg-type]
    with pytest.raises(SeedError, match=r"no generator of this name is registered\.\n  Registered are: mine\."):
        unregister_rng("other")


# Devices that this machine lacks, played by stand-ins.


class Numbers(tuple[int, ...]):
    """What a device gives as its state."""

    def cpu(self) -> Numbers:
        return self


class Device(types.SimpleNamespace):
    """Behaves as `torch.cuda` does: lazy, a queue of seeds, one generator a device."""

    def __init__(self, count: int = 2) -> None:
        super().__init__(seeds=[0] * count, offsets=[0] * count, started=False)
        self._lazy_seed_tracker = torch._utils._LazySeedTracker()

    def _is_compiled(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    is_available = _is_compiled

    def device_count(self) -> int:
        return len(self.seeds)

    def is_initialized(self) -> bool:
        return self.started

    def init(self) -> None:
        if not self.started:
            self.started = True
            for call in self._lazy_seed_tracker.get_calls():
                if call:
                    call[0]()

    def manual_seed_all(self, seed: int) -> None:
        def cb() -> None:
            self.seeds, self.offsets = [seed] * len(self.seeds), [0] * len(self.seeds)

        if self.started:
            cb()
        else:
            self._lazy_seed_tracker.queue_seed_all(cb, [])

    manual_seed = manual_seed_all

    def draw(self) -> list[int]:
        self.init()
        self.offsets = [offset + 4 for offset in self.offsets]
        return [hash(pair) for pair in zip(self.seeds, self.offsets, strict=True)]

    def get_rng_state(self, index: int = 0) -> Numbers:
        return Numbers([self.seeds[index], self.offsets[index]])

    def set_rng_state(self, state: Numbers, index: int = 0) -> None:
        self.seeds[index], self.offsets[index] = state

    def get_rng_state_all(self) -> list[Numbers]:
        self.init()
        return [self.get_rng_state(index) for index in range(len(self.seeds))]

    def set_rng_state_all(self, states: list[Numbers]) -> None:
        for index, state in enumerate(states):
            self.set_rng_state(state, index)


def stand_in(monkeypatch: pytest.MonkeyPatch, backend: str, device: Device) -> None:
    fake = types.SimpleNamespace(manual_seed=print, **{backend: device})
    fake._C = types.SimpleNamespace(_get_privateuse1_backend_name=lambda: "toy")
    fake.backends = types.SimpleNamespace(mps=device)
    monkeypatch.setitem(sys.modules, "torch", fake)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["cuda", "xpu", "mtia"])
def test_devices_are_not_started_for_their_state(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    device, source = Device(), make_device_source(backend)
    stand_in(monkeypatch, backend, device)
    assert source.available()
    source.seed(5)
    untouched = source.get_state()
    assert untouched == {"seed": 5} and not device.started
    source.seed(6)
    source.set_state(untouched)
    first = device.draw()
    started = source.get_state()
    second = device.draw()
    source.set_state(untouched)
    assert device.draw() == first
    source.set_state(started)
    assert device.draw() == second


def test_devices_never_seeded_are_started_for_their_state(monkeypatch: pytest.MonkeyPatch) -> None:
    device, source = Device(), make_device_source("cuda")
    stand_in(monkeypatch, "cuda", device)
    assert "devices" in source.get_state() and device.started


def test_a_queued_seed_does_not_undo_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    device, source = Device(), make_device_source("cuda")
    stand_in(monkeypatch, "cuda", device)
    source.seed(5)
    source.set_state({"devices": [Numbers([7, 8]), Numbers([9, 8])]})
    assert device.seeds == [7, 9] and device.offsets == [8, 8]
    with pytest.raises(ValueError, match="it is of 1 devices, and there are 2 here"):
        source.set_state({"devices": [Numbers([7, 8])]})


def test_torch_still_keeps_queued_seeds_where_we_look() -> None:
    tracker = torch._utils._LazySeedTracker()
    stub: Any = types.SimpleNamespace(_lazy_seed_tracker=tracker)
    assert find_queued_seed(stub) is None and find_queued_seed(object()) is None
    if torch.cuda.is_initialized():
        pytest.skip("CUDA runs already: nothing is queued")
    torch.cuda.manual_seed_all(11)
    assert find_queued_seed(torch.cuda) == 11
    torch.manual_seed(12)
    assert find_queued_seed(torch.cuda) == 12
    tracker.queue_seed(print, [])  # of one device: which, is known only later
    assert find_queued_seed(stub) is None


@pytest.mark.parametrize("source", [torch_sources.MPS, torch_sources.CUSTOM], ids=["mps", "toy"])
def test_other_devices(monkeypatch: pytest.MonkeyPatch, source: RandomSource) -> None:
    device = Device(1)
    device.started = True
    stand_in(monkeypatch, "mps" if source.name == "torch_mps" else "toy", device)
    assert source.available()
    source.seed(5)
    device.draw()
    state, first = source.get_state(), device.draw()
    source.set_state(state)
    assert device.draw() == first


@pytest.mark.cuda
def test_cuda_is_isolated_and_restored() -> None:
    seed_everything(1)
    state, first = get_rng_state(), torch.rand(4, device="cuda").tolist()
    with isolate_rng(2):
        torch.rand(4, device="cuda")
    second = torch.rand(4, device="cuda").tolist()
    set_rng_state(state)
    assert [torch.rand(4, device="cuda").tolist() for _ in range(2)] == [first, second]
