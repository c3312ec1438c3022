"""`samerun.guard`. A face: brings together going back to before a step, and comparing two computations of it."""

from __future__ import annotations

import itertools
import json
import os
import platform
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from samerun.base.errors import SamerunError, StepNotRepeatableError, WrongResultError, WrongResultWarning
from samerun.base.files import write_file_atomically
from samerun.base.hooks import hide_from_recorder
from samerun.control.rng.training_snapshot import TrainingSnapshot, require_restorable
from samerun.step_computation import ComputedStep, StepDifference, compute_and_digest_step, digest_state
from samerun.step_replay import replay_step_and_exit_if_asked, take_step_beginning, write_step

if TYPE_CHECKING:
    from samerun.peer_check import PeerCheck, Suspicion

RECORD_SCHEMA = 1
MAX_SETTLING = 5
"""So often a step is computed again while it runs other operators each time, as it may at the first."""
LAST = 3
"""Number of the computation whose results the training has."""


def guard(
    *parts: Any,
    every: int,
    also: Literal["recompute", "peer"] = "recompute",
    on_mismatch: Literal["raise", "warn"] = "raise",
    folder: str | os.PathLike[str] = "samerun-guard",
    keep: bool = False,
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
    also: who computes it again: "recompute" the same rank, "peer" another one, on another machine where there are
    several. That catches a machine that computes the same wrong result each time, too. It takes two ranks or more that
    hold the same parameters (DistributedDataParallel), or parts of the same shapes (`fully_shard`, tensor parallelism);
    of three, the third decides which of two is wrong.
    on_mismatch: "raise" raises WrongResultError, "warn" warns with WrongResultWarning and goes on.
    folder: where records are written (`step-00000101-rank0.json`), made when there is one to write.
    keep: write each checked step there (`step-00000101.pt`), for `samerun verify --step 101` to compute it elsewhere:
    what it began with, and the digests of all that it computed. On one rank only, with plain arguments.

    Not noticed: without `also="peer"` a machine that computes the same wrong result each time; memory that changes
    between two steps; and inside compiled regions the operator is not named. Raises SamerunError for arguments that
    cannot be used.
    """
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise SamerunError(f"guard(every={every!r}): a whole number of steps, 1 or more.", hint="Try every=100.")
    if also not in ("recompute", "peer"):
        raise SamerunError(f'guard(also={also!r}): "recompute" or "peer".')
    if on_mismatch not in ("raise", "warn"):
        raise SamerunError(f'guard(on_mismatch={on_mismatch!r}): "raise" or "warn".')
    if not parts:
        raise SamerunError("guard(): nothing to put back.", hint="samerun.guard(model, optimizer, every=100)")
    if keep and also == "peer":
        raise SamerunError('guard(keep=True, also="peer"): steps are kept on one rank only.')
    require_restorable(parts)
    return StepGuard(parts, every, also, on_mismatch, Path(folder), keep)


class StepGuard:
    """What `samerun.guard` returns.

    `steps`: calls of `step` so far, to be set when a training is resumed. `checked`: steps computed twice.
    `records`: what was found, as written to the folder.
    """

    def __init__(
        self, parts: tuple[Any, ...], every: int, also: str, on_mismatch: str, folder: Path, keep: bool = False
    ) -> None:
        self.steps = 0
        self.checked = 0
        self.records: list[dict[str, Any]] = []
        self._parts, self._every, self._on_mismatch, self._folder = parts, every, on_mismatch, folder
        self._asks_peer = also == "peer"
        self._peers: PeerCheck | None = None
        self._keeps = keep

    def step(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function that computes one training step; compute it twice if it is one of those to be checked.

        Raises WrongResultError at a wrong result, StepNotRepeatableError where the function does something else when
        it is called again, and what the function raises.
        """
        replay_step_and_exit_if_asked(self._parts, function)
        is_checked = self.steps % self._every == 0
        self.steps += 1
        if not is_checked:
            return function(*args, **kwargs)
        self.checked += 1
        if self._asks_peer:
            return self._compute_with_peer_and_report(function, (args, kwargs))
        if self._keeps and _distributed_if_multiple_ranks():
            raise SamerunError(
                "guard(keep=True): a step of several ranks cannot be kept: a rank alone cannot compute it elsewhere.",
                hint='Leave out keep=; also="peer" has another rank compute each checked step.',
            )
        beginning = take_step_beginning(self._parts, (args, kwargs)) if self._keeps else None
        computed = self._compute_until_two_agree_or_raise(lambda: function(*args, **kwargs), (args, kwargs))
        if beginning is not None:
            write_step(self._folder / f"step-{self.steps:08}.pt", self.steps, beginning, computed)
        return computed.result

    def _compute_with_peer_and_report(self, function: Callable[..., Any], arguments: tuple[Any, Any]) -> Any:
        if self._peers is None:
            from samerun.peer_check import PeerCheck

            self._peers = PeerCheck(self._parts)
            # What a program makes once and keeps, DDP's buckets say, is made here, where all ranks call collectives.
            snapshot = TrainingSnapshot(self._parts, arguments)
            args, kwargs = arguments
            self._restore(
                snapshot,
                self._compute_until_two_agree_or_raise(
                    lambda: function(*args, **kwargs), arguments
                ).operators.generators,
            )
        computed, suspicions = self._peers.compute(function, arguments, self.steps)
        if suspicions:
            self._record_suspicions_and_raise_or_warn(suspicions, self._peers.hosts)
        if computed.error is not None:
            raise computed.error
        return computed.result

    def _compute_until_two_agree_or_raise(self, function: Callable[[], Any], arguments: Any) -> ComputedStep:
        before = digest_state(self._parts, arguments)
        snapshot = TrainingSnapshot(self._parts, arguments)
        original = first = compute_and_digest_step(function, self._parts)
        own_generators = first.operators.generators
        for _ in range(MAX_SETTLING):
            self._restore(snapshot, own_generators)
            second = compute_and_digest_step(function, self._parts)
            difference = first.find_difference(second)
            ranks = _gather_over_ranks(None if difference is None else difference.is_other_program)
            if not any(found is not None for found in ranks):
                return self._return_last_or_raise_its_error(original, second)
            if False in ranks:
                break
            # What a program makes once and keeps (a cache, a table of shapes, DDP's buckets in their second order) is
            # made in the first computations: they run other operators, and say nothing about the machine.
            first = second
        self._restore(snapshot, own_generators)
        copies = [name for name, value in digest_state(self._parts, arguments).items() if before.get(name) != value]
        if any(_gather_over_ranks(bool(copies))):
            self._record_changed_snapshot_and_raise(copies)
        third = compute_and_digest_step(function, self._parts, difference.operator if difference else None)
        if second.error is not None and third.error is not None:
            self._return_last_or_raise_its_error(original, third)
        wrong = self._find_wrong_computation_or_zero([first, second, third], difference)
        found = difference if difference is not None else second.find_difference(third)
        ranks = _gather_over_ranks((wrong, found.collectives if found is not None and wrong else None))
        if any(number for number, _ in ranks):
            self._record_wrong_result_and_raise_or_warn(wrong, found, third, ranks)
        return self._return_last_or_raise_its_error(original, third)

    def _return_last_or_raise_its_error(self, original: ComputedStep, last: ComputedStep) -> ComputedStep:
        """The last computation, or its error; StepNotRepeatableError if it fails only when it is computed again."""
        error = last.error
        if error is None:
            return last
        if original.error is not None:
            raise error
        raise StepNotRepeatableError(
            f"step {self.steps} ran once, and failed when it was computed again: {type(error).__name__}: {error}",
            hint="The function must work when it is called twice: pass it the batch, do not let it take the next.",
        ) from error

    def _restore(self, snapshot: TrainingSnapshot, state_by_own_generator: dict[Any, Any]) -> None:
        snapshot.restore()
        for generator, state in state_by_own_generator.items():
            generator.set_state(state)

    def _find_wrong_computation_or_zero(self, computed: list[ComputedStep], difference: StepDifference | None) -> int:
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

    def _record_wrong_result_and_raise_or_warn(
        self,
        wrong: int,
        difference: StepDifference | None,
        third: ComputedStep,
        wrong_and_collectives_by_rank: list[tuple[int, int | None]],
    ) -> None:
        """Write the record and raise or warn.

        `wrong_and_collectives_by_rank`: of each, its wrong computation, and the collectives before.
        """
        earliest = min(count for _, count in wrong_and_collectives_by_rank if count is not None)
        # A wrong result reaches other ranks by a collective: the rank where it shows before is the one that made it.
        suspects = [number for number, (_, count) in enumerate(wrong_and_collectives_by_rank) if count == earliest]
        is_mine = _rank() in suspects
        location = third.operators.location
        path, record = self._write_new_record_file(
            ranks=len(wrong_and_collectives_by_rank), ranks_with_wrong_results=suspects, wrong_computation=wrong,
            operator=difference.name if difference else "", location=location,
            differs_at_end=difference.at_end if difference else [],
        )  # fmt: skip
        who = f"rank {_rank()} on {platform.node()}" if is_mine else f"rank {', '.join(map(str, suspects))}"
        what = f", first at {record['operator']}{f' ({location})' if location else ''}" if is_mine else ""
        message = f"{who} computed step {self.steps} wrong in one of three computations{what}."
        hint = f"The other two agree. What is known stands in {path}."
        if self._on_mismatch == "raise" or any(number == LAST for number, _ in wrong_and_collectives_by_rank):
            raise WrongResultError(message, hint, record)
        warnings.warn(f"{message} {hint} The training goes on with their result.", WrongResultWarning, stacklevel=5)

    def _record_suspicions_and_raise_or_warn(self, suspicions: list[Suspicion], hosts: list[str]) -> None:
        """Write the record and raise or warn: the same on all ranks."""
        first = min(suspicions, key=lambda each: (len(each.wrong), not each.repeats))
        repeats = any(each.repeats for each in suspicions)
        names = [f"rank {rank} on {hosts[rank]}" for rank in first.wrong]
        path, record = self._write_new_record_file(
            ranks=len(hosts), ranks_with_wrong_results=list(first.wrong), is_certain=len(first.wrong) == 1,
            repeats=repeats, operator=first.operator, location=first.location,
            is_collective=first.is_collective, suspicions=[each._asdict() for each in suspicions],
        )  # fmt: skip
        where = f"{first.operator}{f' ({first.location})' if first.location else ''}"
        if first.is_collective and len(names) == len(hosts):
            message = (
                f"{where} gave the ranks two different results in step {self.steps}. One rank is at fault, and it is"
            )
            message += " not known which."
        elif len(names) == 1:
            message = f"{names[0]} {'computes' if repeats else 'computed'} step {self.steps} wrong"
            message += f"{' each time' if repeats else ''}, first at {where}: other ranks have another result."
        else:
            message = f"{' and '.join(names)} {'have' if repeats else 'had'} different results in step {self.steps}"
            message += f"{' each time' if repeats else ''}, first at {where}. One is wrong, and it is not known which."
        hint = f"What is known stands in {path}."
        if self._on_mismatch == "raise":
            raise WrongResultError(message, hint, record)
        going_on = "with wrong results in it: go back to the last checkpoint, without that machine" if repeats else (
            "with the results of a computation on which the ranks agree"
        )  # fmt: skip
        warnings.warn(f"{message} {hint} The training goes on {going_on}.", WrongResultWarning, stacklevel=5)

    def _record_changed_snapshot_and_raise(self, changed_names: list[str]) -> None:
        path, record = self._write_new_record_file(wrong_copies=changed_names)
        what = f": {', '.join(changed_names[:3])}" if changed_names else ", of another rank"
        raise WrongResultError(
            f"rank {_rank()} on {platform.node()}: what was kept of the state before step {self.steps} has"
            f" changed{what}.",
            f"Go back to the last checkpoint. What is known stands in {path}.",
            record,
        )

    def _write_new_record_file(self, **found: Any) -> tuple[Path, dict[str, Any]]:
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


def _rank() -> int:
    distributed = _distributed_if_multiple_ranks()
    return int(distributed.get_rank()) if distributed else 0


def _distributed_if_multiple_ranks() -> Any:
    """torch.distributed where there is more than one rank, else None."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed if distributed.get_world_size() > 1 else None


def _gather_over_ranks(value: Any) -> list[Any]:
    """The value of each rank; of one process, a list of its own."""
    distributed = _distributed_if_multiple_ranks()
    if distributed is None:
        return [value]
    values: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values
