"""`samerun.guard`: steps computed twice, faults that are injected, and clean steps of many kinds."""

from __future__ import annotations

import contextlib
import json
import random
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import samerun
from samerun.control.rng.training_snapshot import TrainingSnapshot
from samerun.record.watching.watched_operator import WatchedOperator


class Training:
    """A small training with all that a step may change: buffers, momentum, a schedule, draws of every kind."""

    def __init__(self, optimizer: str = "adamw") -> None:
        samerun.seed_everything(0)
        self.model = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
        kinds: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
            "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
            "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9),
            "lbfgs": lambda parameters: torch.optim.LBFGS(parameters, lr=1e-2, max_iter=2),
        }
        self.optimizer = kinds[optimizer](self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 7)
        self.own = torch.Generator().manual_seed(3)
        self.data = torch.Generator().manual_seed(4)
        self.fault: Fault | None = None

    @property
    def parts(self) -> tuple[Any, ...]:
        return self.model, self.optimizer, self.scheduler

    def batch(self) -> torch.Tensor:
        return torch.randn(8, 12, generator=self.data)

    def step(self, x: torch.Tensor) -> torch.Tensor:
        if self.fault is None:
            return self._step(x)
        self.fault.is_armed = True
        try:
            return self._step(x)
        finally:
            self.fault.is_armed = False

    def _step(self, x: torch.Tensor) -> torch.Tensor:
        x.mul_(1 + 0.1 * random.random()).add_(float(np.random.rand()))
        x = x + torch.randn(x.shape, generator=self.own)

        def closure() -> torch.Tensor:
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(x), torch.arange(8) % 3)
            loss.backward()  # type: ignore[no-untyped-call]
            if self.fault is not None:
                self.fault.after_backward(self.model)
            return loss.detach()

        if isinstance(self.optimizer, torch.optim.LBFGS):
            loss: torch.Tensor = self.optimizer.step(closure)  # type: ignore[assignment]
        else:
            loss = closure()
            self.optimizer.step()
        self.scheduler.step()
        if self.fault is not None:
            self.fault.at_end(self.optimizer)
        return loss

    def digest(self) -> str:
        return "".join(str(parameter.double().sum().item().hex()) for parameter in self.model.parameters())


def flip_bit(tensor: torch.Tensor, bit: int) -> None:
    """Flip a bit of the memory of a contiguous tensor: the last byte of a float holds sign and exponent."""
    raw = tensor.detach().as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy()
    raw[bit // 8 % len(raw)] ^= 1 << bit % 8


class Fault(TorchDispatchMode):
    """A machine that computes wrong, once: in the result of an operator, in a gradient, or in an optimizer's state.

    `at`: the number of the operator, gradient or state; `bit`: which bit flips.
    """

    def __init__(self, kind: str, at: int, bit: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kind, self.at, self.bit, self.count, self.is_armed = kind, at, bit, 0, False

    def strike(self, kind: str, tensors: Iterable[Any]) -> None:
        for tensor in tensors:
            if self.kind == kind and isinstance(tensor, torch.Tensor) and tensor.numel() and tensor.is_contiguous():
                if self.count == self.at:
                    flip_bit(tensor, self.bit)
                self.count += 1

    def after_backward(self, model: nn.Module) -> None:
        self.strike("gradient", (parameter.grad for parameter in model.parameters()))

    def at_end(self, optimizer: torch.optim.Optimizer) -> None:
        self.strike("state", (value for state in optimizer.state.values() for value in state.values()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        operator = WatchedOperator(func, None, None)
        if self.is_armed and not operator.silent and not operator.allocates:
            results = list(out) if isinstance(out, (list, tuple)) else [out]
            self.strike("result", results if out is not None else operator.flatten_written_arguments(args, kwargs))
        return out


MOST = {"result": 100, "gradient": 12, "state": 36}
"""So many operators with results, gradients and states of an optimizer there are in two computations, at least."""
STRUCK = 3
"""The step in which a fault strikes."""


def train(guard_arguments: dict[str, Any] | None, fault: Fault | None = None, steps: int = 4) -> tuple[str, Any]:
    """The digest of the model after some steps, guarded or not, and the guard."""
    training = Training()
    guard = samerun.guard(*training.parts, **guard_arguments) if guard_arguments is not None else None
    for number in range(1, steps + 1):
        training.fault = fault if number == STRUCK else None
        batch = training.batch()
        with training.fault or contextlib.nullcontext():  # outside: the guard sees what the operators give
            guard.step(training.step, batch) if guard is not None else training.step(batch)
    return training.digest(), guard


def inject_faults(count: int, seed: int, folder: Path) -> None:
    """Each fault is reported once, in its step, and the training goes on as if there had been none."""
    undisturbed, _ = train(None)
    draws = random.Random(seed)
    missed = []
    for _ in range(count):
        kind = draws.choice(list(MOST))
        fault = Fault(kind, draws.randrange(MOST[kind]), draws.choice([*range(23), *range(23, 32), 31]))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result, guard = train({"every": 2, "on_mismatch": "warn", "folder": folder}, fault)
        reports = [warning for warning in caught if issubclass(warning.category, samerun.WrongResultWarning)]
        right = len(reports) == 1 and [record["step"] for record in guard.records] == [STRUCK]
        if not right or result != undisturbed:
            missed.append((kind, fault.at, fault.bit, fault.count, len(reports), result == undisturbed))
    assert not missed


@pytest.mark.slow
def test_flipped_bits_are_caught_and_undone(tmp_path: Path) -> None:
    inject_faults(60, 0, tmp_path)


@pytest.mark.exhaustive
def test_thousands_of_flipped_bits_are_caught(tmp_path: Path) -> None:
    inject_faults(2000, 1, tmp_path)


def run_clean_steps(steps: int) -> None:
    """Every step computed twice is the same, in trainings with all kinds of draws; and nothing is another for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        digest, guard = train({"every": 1}, steps=steps)
    assert (guard.checked, guard.records) == (steps, [])
    assert digest == train(None, steps=steps)[0]


def test_clean_steps_are_the_same_twice() -> None:
    run_clean_steps(200)


@pytest.mark.exhaustive
def test_thousands_of_clean_steps_are_the_same_twice() -> None:
    run_clean_steps(10_000)


def test_an_optimizer_that_calls_the_model_itself_can_be_guarded() -> None:
    alone = Training("lbfgs")
    losses = [alone.step(alone.batch()).item() for _ in range(4)]
    training = Training("lbfgs")
    guard = samerun.guard(*training.parts, every=1)
    assert [guard.step(training.step, training.batch()).item() for _ in range(4)] == losses


def test_a_fault_ends_the_training_with_a_record(tmp_path: Path) -> None:
    with pytest.raises(samerun.WrongResultError, match=r"computed step 3 wrong.*aten\.") as raised:
        train({"every": 1, "folder": tmp_path / "records"}, Fault("result", 9, 20))
    record = json.loads((tmp_path / "records" / "step-00000003-rank0.json").read_text())
    assert record == raised.value.record
    assert (record["step"], record["rank"], record["wrong_computation"]) == (3, 0, 1)
    assert record["operator"].startswith("aten.") and f"{Path(__file__).name}:" in record["location"]


def test_a_kept_copy_that_changes_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = TrainingSnapshot.restore

    def restore_wrong(self: TrainingSnapshot) -> None:
        for tensor, content in self._contents.values():
            if tensor.is_floating_point() and tensor.requires_grad:
                flip_bit(content, 3)
                break
        monkeypatch.setattr(TrainingSnapshot, "restore", original)
        self.restore()

    monkeypatch.setattr(TrainingSnapshot, "restore", restore_wrong)
    with pytest.raises(samerun.WrongResultError, match="what was kept of the state before step 1 has changed"):
        train({"every": 4, "folder": tmp_path})


def test_what_is_made_once_and_kept_is_no_fault() -> None:
    torch.manual_seed(0)
    layer, tables = nn.Linear(4, 4), []

    def step(x: torch.Tensor) -> torch.Tensor:
        if not tables:
            tables.append(torch.arange(4.0).cos())
        return (layer(x) * tables[0]).sum()

    guard = samerun.guard(layer, every=1)
    for _ in range(3):
        guard.step(step, torch.ones(2, 4))
    assert guard.records == []


def test_memory_that_nobody_wrote_is_no_fault() -> None:
    layer = nn.Linear(4, 4)
    guard = samerun.guard(layer, every=1)

    def step() -> torch.Tensor:
        garbage = torch.ones(64)
        garbage.numpy()[:] = random.SystemRandom().random()
        del garbage
        return torch.empty(64).clone()

    for _ in range(20):
        guard.step(step)
    assert guard.records == []


@pytest.mark.parametrize("what", ["iterator", "generator"])
def test_a_step_that_cannot_be_repeated_is_refused(what: str) -> None:
    layer, batches, own = nn.Linear(4, 1), iter([torch.ones(2, 4)]), random.Random(0)

    def step() -> torch.Tensor:
        x = next(batches) if what == "iterator" else torch.full((2, 4), own.random())
        return layer(x).sum()

    match = "failed when it was computed again: StopIteration" if what == "iterator" else "three different results"
    with pytest.raises(samerun.StepNotRepeatableError, match=match):
        samerun.guard(layer, every=1).step(step)


def test_a_batch_made_in_inference_mode_is_put_back() -> None:
    layer = nn.Linear(4, 1)
    with torch.inference_mode():
        x = torch.ones(2, 4)
    guard = samerun.guard(layer, every=1)
    guard.step(lambda x: layer(x.clone()).sum(), x)
    assert guard.records == []


def test_a_function_mode_of_the_program_does_not_see_how_tensors_are_read() -> None:
    seen: list[str] = []

    class Names(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(getattr(func, "__name__", ""))
            return func(*args, **(kwargs or {}))

    layer = nn.Linear(4, 1)
    guard = samerun.guard(layer, every=1)
    with Names():
        guard.step(lambda x: layer(x).sum(), torch.ones(2, 4))
    assert "linear" in seen and not {"data_ptr", "untyped_storage", "is_contiguous"} & set(seen)


def test_wrong_arguments_are_refused() -> None:
    layer = nn.Linear(2, 2)
    for arguments, match in (
        ({"every": 0}, "every=0"),
        ({"every": 2.0}, "every=2.0"),
        ({"every": 1, "on_mismatch": "stop"}, "on_mismatch='stop'"),
    ):
        with pytest.raises(samerun.SamerunError, match=match):
            samerun.guard(layer, **arguments)  # type: ignore[arg-type]
    with pytest.raises(samerun.SamerunError, match="nothing to put back"):
        samerun.guard(every=1)
    with pytest.raises(samerun.SamerunError, match="dict cannot be put back"):
        samerun.guard(layer, {}, every=1)
