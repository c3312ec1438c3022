"""States of a training, kept in a file that is read without unpickling, and put back; batches with other tensors."""

from __future__ import annotations

import io
import random
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch

from samerun.control.rng.isolation import isolate_rng
from samerun.record.watching.replay import collect_batch_tensors, replace_batch_tensors
from samerun.record.watching.training_states import PARTS, NonParameterStates

GENERATORS: dict[str, Any] = {
    "python": lambda: random.Random(3),
    "pcg64": lambda: np.random.default_rng(3),
    "philox": lambda: np.random.Generator(np.random.Philox(3)),
    "legacy": lambda: np.random.RandomState(3),
    "torch": lambda: torch.Generator().manual_seed(3),
}


def drawn(generator: Any) -> list[float]:
    if isinstance(generator, torch.Generator):
        return torch.rand(3, generator=generator).tolist()
    return [generator.random() for _ in range(3)]


def through_a_file(states: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(states, file)
    file.seek(0)
    read: dict[str, Any] = torch.load(file, weights_only=True)
    return read


@pytest.mark.parametrize("name", GENERATORS)
def test_a_generator_of_the_programs_own_goes_on(name: str) -> None:
    generator = GENERATORS[name]()
    held = NonParameterStates(torch, [generator])
    drawn(generator)
    states = through_a_file(held.read_training_states_skipping_unreadable())
    expected = drawn(generator)
    other = GENERATORS[name]()
    assert NonParameterStates(torch, [other]).try_restore_and_list_restored_parts(states, ("own",)) == ["own"]
    assert drawn(other) == expected != drawn(GENERATORS[name]())


def test_the_global_generators_go_on_each_by_itself() -> None:
    with isolate_rng():
        held = NonParameterStates(torch, [])
        states = through_a_file(held.read_training_states_skipping_unreadable())

        def draw() -> list[float]:
            return [float(torch.rand(())), float(np.random.random()), random.random()]

        first = draw()
        for at, part in enumerate(("torch", "numpy", "python")):
            assert held.try_restore_and_list_restored_parts(states, (part,)) == [part]
            again = draw()
            assert [one == other for one, other in zip(again, first, strict=True)] == [n == at for n in range(3)]


def training() -> tuple[NonParameterStates, Any, Any, Any]:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4])
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
    held = NonParameterStates(torch, [])
    held.optimizers, held.schedulers, held.scalers = [optimizer], [scheduler], [scaler]
    return held, optimizer, scheduler, scaler


def steps(optimizer: Any, scheduler: Any, scaler: Any, count: int) -> list[Any]:
    for _ in range(count):
        scaler.scale(optimizer.param_groups[0]["params"][0].square().sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
    momentum = next(iter(optimizer.state.values()), {}).get("momentum_buffer")
    kept = momentum.tolist() if momentum is not None else None
    return [kept, scheduler.last_epoch, optimizer.param_groups[0]["lr"], scaler.get_scale()]


@pytest.mark.parametrize("part", ["optimizer", "scheduler", "scaler"])
def test_what_goes_on_from_step_to_step(part: str) -> None:
    held, *objects = training()
    before = steps(*objects, 3)
    states = through_a_file(held.read_training_states_skipping_unreadable())
    assert list(states) == list(PARTS)
    other, *others = training()
    fresh = steps(*others, 0)
    assert other.try_restore_and_list_restored_parts(states, (part,)) == [part]
    taken = {"optimizer": (0, 2), "scheduler": (1, 2), "scaler": (3,)}[part]  # a learning rate belongs to two
    assert steps(*others, 0) == [before[n] if n in taken else fresh[n] for n in range(4)]


def test_a_part_that_does_not_fit_is_left_out() -> None:
    held, *_ = training()
    states = held.read_training_states_skipping_unreadable()
    held.optimizers = [torch.optim.SGD([torch.nn.Parameter(torch.ones(2)) for _ in range(2)], lr=0.1)]
    assert held.try_restore_and_list_restored_parts(states, ("optimizer", "own", "scaler", "nonsense")) == ["scaler"]


def test_batches_with_other_tensors() -> None:
    pair = namedtuple("pair", "x y")
    batch = {"a": [torch.zeros(2), "name"], "b": pair(torch.ones(1), (torch.zeros(()), 3))}
    assert [t.shape for t in collect_batch_tensors(batch)] == [(2,), (1,), ()]
    made = replace_batch_tensors(batch, [torch.full((n,), 7.0) for n in (1, 2, 3)])
    assert made["a"][1] == "name" and type(made["b"]) is pair and made["b"].y[1] == 3
    assert [t.tolist() for t in collect_batch_tensors(made)] == [[7.0], [7.0, 7.0], [7.0, 7.0, 7.0]]
