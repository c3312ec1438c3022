"""`samerun.guard`. A face: brings together going back to before a step, and comparing two computations of it."""

from __future__ import annotations

import itertools
import json
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from samerun.base.errors import SamerunError, StepNotRepeatableError, WrongResultError, WrongResultWarning
from samerun.base.files import write_file_atomically
from samerun.base.hooks import hide_from_recorder
from samerun.control.rng.training_snapshot import TrainingSnapshot, name_training_values, require_restorable

if TYPE_CHECKING:
    from samerun.record.watching.operator_digests import OperatorDifference, OperatorDigests

RECORD_SCHEMA = 1
MAX_SETTLING = 5
"""So often a step is computed again while it runs other operators each time, as it may at the first."""
LAST = 3
"""Number of the computation whose results the training has."""


def guard(
    *parts: Any,
    every: int,
    on_mismatch: Literal["raise", "warn"] = "raise",
    folder: str | os.PathLike[str] = "samerun-guard",
) -> StepGuard:
    """Compute every N-th training step twice, to notice a machine that computes wrong.

        guard = samerun.guard(model, optimizer, scheduler, every=100)
        for x, y in loader:
            loss = guard.step(train_step, x, y)

    `step` calls the function and returns what it returns. In the 1st call and in every `every`-th after it, it then
    puts everything back and calls the function again: models, optimizers and the other parts, and every random
    generator. The results of all operators, forward, backward and of the optimizer, the returned tensors and the state
    at the end must have the same bits. If they have not, a third computation decides which one was wrong; the training
    has its results then. The operator is named, and a record is written to `folder`.

    parts: all that the step changes, or that is not to be counted twice: models, optimizers, and objects with
    `state_dict` and `load_state_dict`. The function must not take its batch from an iterator itself: pass it the batch.
    every: 1 checks each step. On several ranks all must take the same number, and call `step` alike.
    on_mismatch: "raise" raises WrongResultError, "warn" warns with WrongResultWarning and goes on.
    folder: where records are written (`step-00000101-rank0.json`), made when there is one to write.

    Not noticed: a machine that computes the same wrong result each time; memory that changes between two steps;
    and inside compiled regions the operator is not named. Raises SamerunError for arguments that cannot be used.
    """
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise SamerunError(f"guard(every={every!r}): a whole number of steps, 1 or more.", hint="Try every=100.")
    if on_mismatch not in ("raise", "warn"):
        raise SamerunError(f'guard(on_mismatch={on_mismatch!r}): "raise" or "warn".')
    if not parts:
        raise SamerunError("guard(): nothing to put back.", hint="samerun.guard(model, optimizer, every=100)")
    require_restorable(parts)
    return StepGuard(parts, every, on_mismatch, Path(folder))


class ComputedStep(NamedTuple):
    """One computation of a step: its operators' digests, and those of all that was there when it had ended."""

    operators: OperatorDigests
    end: dict[str, bytes]
    result: Any
    error: Exception | None

    def find_difference(self, other: ComputedStep) -> StepDifference | None:
        """Where two computations first differ; None if nowhere."""
        operator = self.operators.first_difference(other.operators)
        names = [name for name in {**self.end, **other.end} if self.end.get(name) != other.end.get(name)]
        return StepDifference(operator, names) if operator or names else None


class StepDifference(NamedTuple):
    """The first operator that differs, if one does, and the names of what differs at the end of the step."""

    operator: OperatorDifference | None
    at_end: list[str]

    @property
    def is_other_program(self) -> bool:
        """Not in what operators computed, but in which operators were called."""
        return self.operator is not None and self.operator.is_other_program

    @property
    def name(self) -> str:
        return self.operator.operator if self.operator else self.at_end[0]

    @property
    def collectives(self) -> int:
        """How many collectives had been called before it; all of the step, if it shows at the end alone."""
        return self.operator.collectives if self.operator else sys.maxsize


class StepGuard:
    """What `samerun.guard` returns.

    `steps`: calls of `step` so far, to be set when a training is resumed. `checked`: steps computed twice.
    `records`: what was found, as written to the folder.
    """

    def __init__(self, parts: tuple[Any, ...], every: int, on_mismatch: str, folder: Path) -> None:
        self.steps = 0
        self.checked = 0
        self.records: list[dict[str, Any]] = []
        self._parts, self._every, self._on_mismatch, self._folder = parts, every, on_mismatch, folder
        self._own_generators: dict[Any, Any] = {}

    def step(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function that computes one training step; compute it twice if it is one of those to be checked.

        Raises WrongResultError at a wrong result, StepNotRepeatableError where the function does something else when
        it is called again, and what the function raises.
        """
        is_checked = self.steps % self._every == 0
        self.steps += 1
        if not is_checked:
            return function(*args, **kwargs)
        self.checked += 1
        return self._compute_twice(lambda: function(*args, **kwargs), (args, kwargs))

    def _compute_twice(self, function: Callable[[], Any], arguments: Any) -> Any:
        before = self._digest_state(arguments)
        snapshot = TrainingSnapshot(self._parts, arguments)
        original = first = self._compute(function)
        own_generators = first.operators.generators
        for _ in range(MAX_SETTLING):
            self._restore(snapshot, own_generators)
            second = self._compute(function)
            difference = first.find_difference(second)
            ranks = _gather_over_ranks(None if difference is None else difference.is_other_program)
            if not any(found is not None for found in ranks):
                return self._return_or_raise(original, second)
            if False in ranks:
                break
            # What a program makes once and keeps (a cache, a table of shapes, DDP's buckets in their second order) is
            # made in the first computations: they run other operators, and say nothing about the machine.
            first = second
        self._restore(snapshot, own_generators)
        copies = [name for name, value in self._digest_state(arguments).items() if before.get(name) != value]
        if any(_gather_over_ranks(bool(copies))):
            self._report_wrong_copies(copies)
        third = self._compute(function, difference.operator if difference else None)
        if second.error is not None and third.error is not None:
            self._return_or_raise(original, third)
        wrong = self._decide([first, second, third], difference)
        found = difference if difference is not None else second.find_difference(third)
        ranks = _gather_over_ranks((wrong, found.collectives if found is not None and wrong else None))
        if any(number for number, _ in ranks):
            self._report(wrong, found, third, ranks)
        return self._return_or_raise(original, third)

    def _compute(self, function: Callable[[], Any], locate: OperatorDifference | None = None) -> ComputedStep:
        from samerun.record.watching.operator_digests import OperatorDigests

        result, failed = None, None
        with OperatorDigests(locate) as operators:
            try:
                result = function()
            except Exception as error:  # of the program; or because an index or a size was computed wrong
                failed = error
        end = {**self._digest_state(result), "exception": type(failed).__qualname__.encode()}
        return ComputedStep(operators, end, result, failed)

    def _digest_state(self, other: Any) -> dict[str, bytes]:
        """The digests of all that is put back, by name, and of the step's arguments or its result."""
        from samerun.record.digests.digest import digest

        with hide_from_recorder():
            named = [*name_training_values(self._parts), ("argument or result", other)]
            return {name: _digest_value(value, digest) for name, value in named}

    def _return_or_raise(self, original: ComputedStep, last: ComputedStep) -> Any:
        """The result of a step, or its error; StepNotRepeatableError if it fails only when it is computed again."""
        error = last.error
        if error is None:
            return last.result
        if original.error is not None:
            raise error
        raise StepNotRepeatableError(
            f"step {self.steps} ran once, and failed when it was computed again: {type(error).__name__}: {error}",
            hint="The function must work when it is called twice: pass it the batch, do not let it take the next.",
        ) from error

    def _restore(self, snapshot: TrainingSnapshot, own_generators: dict[Any, Any]) -> None:
        snapshot.restore()
        for generator, state in own_generators.items():
            generator.set_state(state)

    def _decide(self, computed: list[ComputedStep], difference: StepDifference | None) -> int:
        """The number of the computation that was wrong, from 1; 0 if none was.

        Raises StepNotRepeatableError if there are no two that agree, or if what differs is which operators ran.
        """
        first, second, third = computed
        if difference is None:
            return 0 if second.find_difference(third) is None else LAST
        if (
            difference.operator
            and difference.operator.is_unordered
            and not first.operators.uses_deterministic_operators
        ):
            raise StepNotRepeatableError(
                f"step {self.steps} cannot be compared: {difference.name} may add in another order each time.",
                hint="Call samerun.deterministic() before the training.",
            )
        if not difference.is_other_program:
            if second.find_difference(third) is None:
                return 1
            if first.find_difference(third) is None:
                return 2
        raise StepNotRepeatableError(
            f"step {self.steps} gave three different results in three computations, the first difference at"
            f" {difference.name}.",
            hint="Either the step depends on something that is not put back (an object with a state, which guard()"
            " must be given; a numpy.random.Generator or random.Random of its own; a clock), or this machine computes"
            " wrong most of the time.",
        )

    def _report(
        self, wrong: int, difference: StepDifference | None, third: ComputedStep, ranks: list[tuple[int, int | None]]
    ) -> None:
        """Write the record and raise or warn. `ranks`: of each, its wrong computation, and the collectives before."""
        earliest = min(count for _, count in ranks if count is not None)
        # A wrong result reaches other ranks by a collective: the rank where it shows before is the one that made it.
        suspects = [number for number, (_, count) in enumerate(ranks) if count == earliest]
        is_mine = _rank() in suspects
        location = third.operators.location
        path, record = self._write(
            ranks=len(ranks), ranks_with_wrong_results=suspects, wrong_computation=wrong,
            operator=difference.name if difference else "", location=location,
            differs_at_end=difference.at_end if difference else [],
        )  # fmt: skip
        who = f"rank {_rank()} on {platform.node()}" if is_mine else f"rank {', '.join(map(str, suspects))}"
        what = f", first at {record['operator']}{f' ({location})' if location else ''}" if is_mine else ""
        message = f"{who} computed step {self.steps} wrong in one of three computations{what}."
        hint = f"The other two agree. What is known stands in {path}."
        if self._on_mismatch == "raise" or any(number == LAST for number, _ in ranks):
            raise WrongResultError(message, hint, record)
        warnings.warn(f"{message} {hint} The training goes on with their result.", WrongResultWarning, stacklevel=5)

    def _report_wrong_copies(self, copies: list[str]) -> None:
        path, record = self._write(wrong_copies=copies)
        what = f": {', '.join(copies[:3])}" if copies else ", of another rank"
        raise WrongResultError(
            f"rank {_rank()} on {platform.node()}: what was kept of the state before step {self.steps} has"
            f" changed{what}.",
            f"Go back to the last checkpoint. What is known stands in {path}.",
            record,
        )

    def _write(self, **found: Any) -> tuple[Path, dict[str, Any]]:
        """Write a record to the folder, beside those that are there. Returns its path and what it says."""
        record = {"schema": RECORD_SCHEMA, "step": self.steps, "rank": _rank(), "host": platform.node(), **found}
        self.records.append(record)
        with hide_from_recorder():
            self._folder.mkdir(parents=True, exist_ok=True)
            name = f"step-{self.steps:08}-rank{_rank()}"
            names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
            path = next(path for each in names if not (path := self._folder / f"{each}.json").exists())
            write_file_atomically(path, json.dumps(record, indent=1).encode())
        return path, record


def _digest_value(value: Any, digest: Callable[[Any], bytes]) -> bytes:
    """The digest of tensors, numbers and texts, through dicts, lists and tuples; other objects count by their type."""
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        return digest(value)
    if isinstance(value, dict):
        return _digest_values([item for pair in value.items() for item in pair], digest)
    if isinstance(value, (list, tuple)):
        is_plain = all(type(item) is int for item in value)  # Python's generator has 625 numbers
        return repr(value).encode() if is_plain else _digest_values(value, digest)
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value).encode()
    return type(value).__qualname__.encode()


def _digest_values(values: Iterable[Any], digest: Callable[[Any], bytes]) -> bytes:
    from xxhash import xxh3_128_digest

    return xxh3_128_digest(b"|".join(_digest_value(value, digest) for value in values))


def _rank() -> int:
    distributed = _distributed()
    return int(distributed.get_rank()) if distributed else 0


def _distributed() -> Any:
    """torch.distributed where there is more than one rank, else None."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed if distributed.get_world_size() > 1 else None


def _gather_over_ranks(value: Any) -> list[Any]:
    """The value of each rank; of one process, a list of its own."""
    distributed = _distributed()
    if distributed is None:
        return [value]
    values: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values
