"""fixed_rng: the same draws every time; outside, no stream moves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import samerun
from samerun.base.errors import SeedError


@pytest.fixture(autouse=True)
def _streams_put_back() -> Iterator[None]:
    with samerun.isolate_rng(0):
        yield


def draws() -> list[float]:
    return [random.random(), np.random.rand(), torch.rand(1).item(), samerun.stream("fixed").python.random()]


def test_an_operator_that_draws_is_repeated() -> None:
    matrix = torch.rand(40, 30)
    plain = [torch.svd_lowrank(matrix)[0] for _ in range(2)]
    assert not torch.equal(*plain)  # what this is for
    fixed = []
    for _ in range(2):
        with samerun.fixed_rng():
            fixed.append(torch.svd_lowrank(matrix)[0])
    fixed.append(samerun.fixed_rng(torch.svd_lowrank)(matrix)[0])
    assert torch.equal(fixed[0], fixed[1]) and torch.equal(fixed[0], fixed[2])


@pytest.mark.parametrize("how", [samerun.fixed_rng(), samerun.fixed_rng(0), samerun.fixed_rng(seed=3)])
def test_each_time_starts_from_the_same_point(how: Any) -> None:
    samerun.seed_everything(1)
    expected = [draws() for _ in range(3)]
    samerun.seed_everything(1)
    outside, inside = [draws()], []
    with how:
        inside.append(draws())
        with how:
            inside.append(draws())
        draws()
    outside.append(draws())
    with pytest.raises(ZeroDivisionError), how:
        inside.append(draws())
        raise ZeroDivisionError
    inside.append(how(draws)())
    outside.append(draws())
    assert outside == expected
    assert all(one == inside[0] for one in inside)


def test_a_seed_in_force_does_not_matter() -> None:
    fixed = samerun.fixed_rng(draws)
    first = fixed()
    samerun.seed_everything(1)
    assert fixed() == first != samerun.fixed_rng(seed=1)(draws)()
    assert samerun.isolate_rng(seed=0)(draws)() == first


def test_a_generator_goes_on_between_its_turns_and_each_call_starts_again() -> None:
    @samerun.fixed_rng
    def numbers() -> Iterator[float]:
        while True:
            yield random.random()

    one, other = numbers(), numbers()
    drawn = [next(one), next(one), next(other), next(one), next(other)]
    assert drawn[:2] == [drawn[2], drawn[4]] and len(set(drawn)) == 3


def test_a_coroutine_starts_from_the_same_point() -> None:
    @samerun.fixed_rng(seed=3)
    async def draw() -> float:
        await asyncio.sleep(0)
        return random.random()

    async def main() -> list[float]:
        return [await draw(), await draw()]

    loop = asyncio.new_event_loop()
    try:
        one, other = loop.run_until_complete(main())
    finally:
        loop.close()
    assert one == other


@pytest.mark.parametrize("seed", [-1, "0", None, True, 1.0])
def test_seeds_that_are_none(seed: Any) -> None:
    with pytest.raises(SeedError, match=r"^fixed_rng\(seed=.*\): a seed is a whole number from 0 to"):
        samerun.fixed_rng(seed=seed)
