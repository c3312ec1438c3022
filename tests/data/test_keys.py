"""Keys of samples: what must never change, and that no two samples share a stream."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from samerun.base.errors import DataError
from samerun.control.rng.isolation import isolate_rng
from samerun.control.rng.seeding import register_rng, seed_everything, unregister_rng
from samerun.control.rng.state import get_rng_state
from samerun.control.streams.stream import stream
from samerun.data import generator_seeding, keys, seeded_section
from samerun.data.keys import KeyContext, index_to_key_number
from samerun.data.seeded_section import GENERATOR_KINDS, NumpySnapshot, SeededSection

CONTEXT = KeyContext(1, "data", 0)


@pytest.fixture(autouse=True)
def _streams_put_back() -> Iterator[None]:
    with isolate_rng():
        yield


def test_keys_never_change() -> None:
    assert CONTEXT.derive_keys([0, 1, 2**40], [0, 0, 1], GENERATOR_KINDS) == NEVER_CHANGES


NEVER_CHANGES = (
    [3293548048474695216, 4132819107220495398, 13797269468907190329],
    [3588077748, 699812454, 803041588],
    [2374824898, 1048207186, 1952498467],
)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=30), st.integers(0, 2**64 - 1), st.integers(0, 10**9))
def test_one_by_one_is_the_same_as_all_at_once(numbers: list[int], seed: int, epoch: int) -> None:
    context = KeyContext(seed, "a", epoch)
    for repetitions in (None, [number % 5 for number in numbers]):
        several = numbers * keys.VECTORISED_FROM
        again = None if repetitions is None else repetitions * keys.VECTORISED_FROM
        whole = context.derive_keys(several, again, GENERATOR_KINDS)
        for at, number in enumerate(numbers):
            one = context.derive_keys([number], None if repetitions is None else [repetitions[at]], GENERATOR_KINDS)
            assert [column[0] for column in one if column] == [column[at] for column in whole if column]


def test_no_two_samples_of_an_epoch_share_a_stream() -> None:
    numbers = list(range(200_000))
    for column in CONTEXT.derive_keys(numbers, None, GENERATOR_KINDS):
        assert column is not None and len(set(column)) == len(numbers)


def test_everything_that_a_key_is_made_of_counts() -> None:
    others = [(2, "data", 0), (1, "other", 0), (1, "data", 1), (1, "data", 0, "batch")]
    contexts = [CONTEXT, *(KeyContext(*fields) for fields in others)]
    found = [context.derive_keys([7], again, GENERATOR_KINDS) for context in contexts for again in (None, [1], [2])]
    found.append(CONTEXT.derive_keys([8], None, GENERATOR_KINDS))
    for column in zip(*found, strict=True):
        assert len({one[0] for one in column if one}) == len(found)
    one = found[0]
    assert len({one.python and one.python[0], one.numpy and one.numpy[0], one.torch and one.torch[0]}) == 3


def test_bits_of_keys_are_even() -> None:
    for column in CONTEXT.derive_keys(list(range(20_000)), None, GENERATOR_KINDS):
        bits = np.unpackbits(np.array(column, dtype=np.uint64).astype(np.uint32).view(np.uint8)).reshape(-1, 32)
        assert abs(bits.mean(axis=0) - 0.5).max() < 0.02


def test_indices_that_are_no_whole_numbers() -> None:
    assert index_to_key_number(np.int64(5)) == index_to_key_number(torch.tensor(5)) == 5
    assert index_to_key_number(True) == 1
    found = {index_to_key_number(index) for index in ("a", "b", ("a", 1), ("a", 2), b"a", -1, 3)}
    assert len(found) == 7 and all(0 <= one < 2**63 for one in found)
    with pytest.raises(DataError, match=r"a object, as the index"):
        index_to_key_number(object())


def draws() -> tuple[object, ...]:
    return random.random(), random.gauss(0, 1), np.random.randn(), np.random.rand(), torch.randn(1).item()


@pytest.mark.parametrize("kept", [False, True])
def test_a_section_moves_no_stream(kept: bool) -> None:
    seed_everything(3)
    if kept:  # a normal number of each, for the next call
        random.gauss(0, 1), np.random.randn(), torch.randn(1)
    before = get_rng_state()
    expected = draws()
    for _ in range(3):
        seed_everything(3)
        if kept:
            random.gauss(0, 1), np.random.randn(), torch.randn(1)
        for number in range(3):
            with SeededSection(1, GENERATOR_KINDS, restore=True) as section:
                section.seed_for_batch_or_shard(CONTEXT, number)
                draws()
        assert str(get_rng_state()) == str(before)
        assert draws() == expected


def test_a_section_starts_generators_as_their_libraries_do() -> None:
    found = CONTEXT.derive_keys([4], None, GENERATOR_KINDS)
    with SeededSection(1, GENERATOR_KINDS, restore=True) as section:
        section.seed_for_batch_or_shard(CONTEXT, 4)
        drawn = draws()
    assert found.python and found.numpy and found.torch
    random.seed(found.python[0])
    np.random.seed(found.numpy[0])
    torch.manual_seed(found.torch[0])
    assert drawn == draws()


def states_of_samples(numbers: list[int], kinds: frozenset[str] = GENERATOR_KINDS) -> list[tuple[object, ...]]:
    """The whole states that samples start with, and what they draw: odd numbers of normals, so that one is kept."""
    found: list[tuple[object, ...]] = []

    def get(number: int) -> None:
        states = random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()
        found.append((*states, torch.initial_seed(), *draws()))

    with isolate_rng(), SeededSection(1, kinds, restore=True) as section:
        seed_everything(1)  # for the kinds that are left out
        section.load_samples(CONTEXT, numbers, None, get, numbers, [])
    return found


def test_states_written_in_c_are_those_of_seeding(monkeypatch: pytest.MonkeyPatch) -> None:
    if generator_seeding._load_states_library() is None:
        pytest.skip("the C library was not built")
    can_write = generator_seeding.can_seed_by_writing_states(GENERATOR_KINDS)
    assert can_write, "the states of this Python, NumPy or torch are not as expected"
    numbers = [*range(2 * generator_seeding.BLOCK_ROWS + 5), 2**32, 2**63 - 1]
    some = [GENERATOR_KINDS, *(frozenset({kind}) for kind in GENERATOR_KINDS), GENERATOR_KINDS - {"torch"}]
    written = [states_of_samples(numbers, kinds) + states_of_samples([7], kinds) for kinds in some]
    monkeypatch.setattr(generator_seeding, "can_seed_by_writing_states", lambda kinds: False)
    assert written == [states_of_samples(numbers, kinds) + states_of_samples([7], kinds) for kinds in some]


def test_a_layout_that_is_not_as_expected_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = states_of_samples([1, 2])
    random.gauss(0, 1), np.random.standard_normal()
    before = str(get_rng_state())
    for module in (generator_seeding, seeded_section):
        monkeypatch.setattr(module, "view_python_generator_memory", lambda: None)
        monkeypatch.setattr(module, "view_numpy_words_and_gauss_memory", lambda: None)
    assert not generator_seeding.can_seed_by_writing_states(GENERATOR_KINDS) and states_of_samples([1, 2]) == expected
    assert str(get_rng_state()) == before


def test_another_bit_generator_is_keyed_and_put_back() -> None:
    random_of_numpy = np.random  # its stubs lack the functions on bit generators
    before = random_of_numpy.get_bit_generator()  # type: ignore[attr-defined]
    try:
        random_of_numpy.set_bit_generator(np.random.PCG64(1))  # type: ignore[attr-defined]
        expected = np.random.rand()
        random_of_numpy.set_bit_generator(np.random.PCG64(1))  # type: ignore[attr-defined]
        drawn = []
        for _ in range(2):
            with SeededSection(1, GENERATOR_KINDS, restore=True) as section:
                section.seed_for_batch_or_shard(CONTEXT, 4)
                drawn.append(np.random.rand())
        assert drawn[0] == drawn[1] and np.random.rand() == expected
    finally:
        random_of_numpy.set_bit_generator(before)  # type: ignore[attr-defined]


@given(st.lists(st.sampled_from(["normal", "uniform", "hold", "seed"]), max_size=12))
def test_numpy_is_held_whatever_was_drawn(steps: list[str]) -> None:
    np.random.seed(1)
    for step in steps:
        if step == "hold":
            before = str(np.random.get_state())
            snapshot = NumpySnapshot()
            np.random.seed(9)
            np.random.standard_normal(3)
            snapshot.restore()
            assert str(np.random.get_state()) == before
        elif step == "seed":
            np.random.seed(1)
        else:
            np.random.standard_normal() if step == "normal" else np.random.rand()


def test_registered_generators_and_streams_are_keyed() -> None:
    own = random.Random(0)
    register_rng("own", seed=own.seed, get_state=own.getstate, set_state=own.setstate)
    try:
        seed_everything(1)
        held = stream("augment").numpy
        expected = own.random(), held.random()
        seed_everything(1)
        drawn = []
        for _ in range(2):
            with SeededSection(1, GENERATOR_KINDS, restore=True) as section:
                for number in (4, 5):
                    section.seed_for_batch_or_shard(CONTEXT, number)
                    drawn.append((own.random(), held.random(), stream("new").python.random()))
        assert drawn[:2] == drawn[2:] and drawn[0] != drawn[1]
        assert (own.random(), held.random()) == expected
    finally:
        unregister_rng("own")
