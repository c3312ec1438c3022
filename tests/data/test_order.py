"""Orders: permutations as functions, weights, groups of like length, and what must never change."""

from __future__ import annotations

import pickle
import tracemalloc
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samerun.base.errors import DataError, SeedError
from samerun.control.rng.isolation import isolate_rng
from samerun.control.rng.seeding import seed_everything
from samerun.data import GroupedByLength, Order, Sequential, Shuffle, Weighted

# Quantiles 0.9999 of chi-square: with fixed seeds these tests give the same numbers every time.
SIZES = [1, 2, 3, 10, 1000, 1024, 1025, 1500, 4096, 4097, 65536, 100_003]


@pytest.mark.parametrize("n", SIZES)
def test_a_shuffle_is_a_permutation(n: int) -> None:
    assert sorted(Shuffle(n, seed=1)) == list(range(n))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 2**62), st.integers(0, 2**64 - 1), st.integers(0, 1000), st.data())
def test_position_of_is_the_inverse(n: int, seed: int, epoch: int, data: st.DataObject) -> None:
    order = Shuffle(n, seed)
    order.set_epoch(epoch)
    position = data.draw(st.integers(0, n - 1))
    assert 0 <= order[position] < n
    assert order.position_of(order[position]) == position


def test_shuffles_never_change() -> None:
    assert list(Shuffle(8, seed=0)) == NEVER_CHANGES[8]
    assert list(Shuffle(3000, seed=1))[:8] == NEVER_CHANGES[3000]
    large = Shuffle(10**12, seed=1)
    large.set_epoch(3)
    assert [large[0], large[10**12 - 1]] == NEVER_CHANGES[10**12]


NEVER_CHANGES = {
    8: [7, 3, 6, 5, 4, 2, 1, 0],
    3000: [2633, 2055, 2269, 336, 562, 2122, 2142, 849],
    10**12: [729224549002, 698609814690],
}


def test_seed_epoch_and_name_each_give_another_order() -> None:
    orders = [Shuffle(2000, seed=1), Shuffle(2000, seed=2), Shuffle(2000, seed=1, name="other")]
    lists = [list(order) for order in orders]
    orders[0].set_epoch(1)
    lists.append(list(orders[0]))
    assert len({tuple(one) for one in lists}) == 4
    for one, other in pairwise(lists):
        assert sum(a == b for a, b in zip(one, other, strict=True)) < 12  # 1 is expected


@pytest.mark.parametrize("n", [40, 1200, 2**11, 3000])
def test_every_sample_is_as_likely_at_every_position(n: int) -> None:
    """Chi-square over 8 x 8 cells: eighth of the positions, eighth of the samples, 400 epochs."""
    order, epochs, cells = Shuffle(n, seed=5), 400, 8
    positions = np.arange(n, dtype=np.uint64)
    counts = np.zeros((cells, cells))
    for epoch in range(epochs):
        indices = order.at(positions, epoch=epoch, seed=5)
        np.add.at(counts, ((positions * cells // n).astype(int), (indices * cells // n).astype(int)), 1)
    expected = n * epochs / cells**2
    # rows and columns are fixed: 49 degrees of freedom, and without replacement (n - 1) / n of the variance
    assert ((counts - expected) ** 2 / expected).sum() * (n - 1) / n < 96


@pytest.mark.parametrize("n", [12, 1100, 50_000])
def test_first_positions_over_epochs_are_uniform(n: int) -> None:
    order, cells, epochs = Shuffle(n, seed=9), 10, 4000
    first = [int(order.at(np.zeros(1, np.uint64), epoch=epoch, seed=9)[0]) * cells // n for epoch in range(epochs)]
    counts = np.bincount(first, minlength=cells)
    expected = np.bincount(np.arange(n) * cells // n, minlength=cells) / n * epochs
    assert ((counts - expected) ** 2 / expected).sum() < 34


@pytest.mark.parametrize("n", [1024, 1025, 2**14, 100_000])
def test_neighbours_are_not_correlated(n: int) -> None:
    for seed in range(5):
        values = np.array(list(Shuffle(n, seed=seed)), dtype=float)
        for lag in (1, 2, 64):
            correlation = np.corrcoef(values[:-lag], values[lag:])[0, 1]
            assert abs(correlation) < 4.5 / np.sqrt(n - lag)


def test_pairs_of_neighbours_are_uniform() -> None:
    """Adjacent samples, as cells of 16 x 16."""
    n, cells = 100_000, 16
    values = np.array(list(Shuffle(n, seed=2))) * cells // n
    counts = np.zeros((cells, cells))
    np.add.at(counts, (values[:-1], values[1:]), 1)
    expected = (n - 1) / cells**2
    assert ((counts - expected) ** 2 / expected).sum() < 350


def test_a_shuffle_of_10_to_the_12_takes_no_memory() -> None:
    order = Shuffle(10**12, seed=1)
    order[0]
    tracemalloc.start()
    found = [order[position] for position in (5, 10**6, 10**12 - 1)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(set(found)) == 3 and peak < 20_000


def test_an_order_is_a_sampler_and_pickles() -> None:
    from torch.utils.data import DataLoader, Sampler

    order = Shuffle(7, seed=1)
    assert isinstance(order, Sampler) and isinstance(order, Order)
    assert [int(one) for one in DataLoader(range(7), batch_size=None, sampler=order)] == list(order)  # type: ignore[arg-type]
    assert list(pickle.loads(pickle.dumps(order))) == list(order)
    weighted = Weighted([1, 2, 3], seed=1, replacement=False)
    assert list(pickle.loads(pickle.dumps(weighted))) == list(weighted)


def test_the_seed_in_force_is_taken() -> None:
    with isolate_rng():
        seed_everything(4)
        assert list(Shuffle(50)) == list(Shuffle(50, seed=4))


def test_weights_decide_how_often_a_sample_comes() -> None:
    weights = [1.0, 0.0, 2.0, 5.0, 0.0]
    order = Weighted(weights, 80_000, seed=3)
    counts = np.bincount(list(order), minlength=5)
    assert counts[1] == counts[4] == 0
    expected = np.array([10_000, 20_000, 50_000])
    assert ((counts[[0, 2, 3]] - expected) ** 2 / expected).sum() < 18
    assert [order[position] for position in range(50)] == list(order)[:50]


def test_without_replacement_none_comes_twice_and_the_heavy_come_early() -> None:
    order = Weighted([1.0] * 50 + [0.0] * 10 + [20.0] * 50, seed=3, replacement=False)
    drawn = list(order)
    assert sorted(drawn) == [*range(50), *range(60, 110)]
    first = Counter(index >= 60 for index in drawn[:50])
    assert first[True] > 40
    order.set_epoch(1)
    assert list(order) != drawn


def test_like_lengths_come_together() -> None:
    lengths = np.random.default_rng(0).integers(1, 500, size=1000)
    order = GroupedByLength(lengths, window=200, seed=1)
    drawn = list(order)
    assert sorted(drawn) == list(range(1000))
    for begin in range(0, 1000, 200):
        inside = lengths[drawn[begin : begin + 200]]
        assert (np.diff(inside) <= 0).all()
    assert [order[position] for position in (0, 199, 200, 777, 999)] == [drawn[p] for p in (0, 199, 200, 777, 999)]
    waste = sum(max(lengths[drawn[b : b + 20]]) * 20 - sum(lengths[drawn[b : b + 20]]) for b in range(0, 1000, 20))
    assert waste < 0.15 * lengths.sum()


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Shuffle(-1), DataError, r"Shuffle\(-1\): the number of samples is from 0"),
        (lambda: Shuffle(2**62 + 1), DataError, "from 0 to"),
        (lambda: Shuffle(1.5), DataError, "not a float"),  # type: ignore[arg-type]
        (lambda: Shuffle(3, seed=-1), SeedError, r"Shuffle\(seed=-1\)"),
        (lambda: Shuffle(3, seed=1).set_epoch(-1), DataError, r"set_epoch\(-1\)"),
        (lambda: Weighted([]), DataError, "one number per sample"),
        (lambda: Weighted([1, -1]), DataError, r"weight 1 is -1\.0"),
        (lambda: Weighted([1, float("nan")]), DataError, "weight 1 is nan"),
        (lambda: Weighted([0, 0]), DataError, "all weights are 0"),
        (lambda: Weighted(["a"]), DataError, "not a list of numbers"),  # type: ignore[list-item]
        (lambda: Weighted([1, 0], 2, replacement=False), DataError, "only 1 weights are not 0"),
        (lambda: GroupedByLength([1, 2], 0), DataError, r"window=0"),
        (lambda: GroupedByLength([[1]], 1), DataError, "one number per sample"),
    ],
)
def test_bad_orders_are_refused(make: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()  # type: ignore[operator]


def test_no_seed_at_all_is_said() -> None:
    from samerun.control.rng import seeding

    with isolate_rng():
        seeding.set_seed_in_force(None)
        with pytest.raises(DataError, match="no seed is in force"):
            Shuffle(5)[0]


def test_positions_out_of_range() -> None:
    order = Shuffle(5, seed=1)
    assert order[-1] == list(order)[4]
    with pytest.raises(IndexError, match="position 5 of an order of 5"):
        order[5]
    assert list(Shuffle(0, seed=1)) == [] and list(Sequential(3)) == [0, 1, 2]
