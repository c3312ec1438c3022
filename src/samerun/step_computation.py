"""One computation of a training step, and what differs between two. A face, of `samerun.guard` alone."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from samerun.base.hooks import hide_from_recorder
from samerun.control.rng.training_snapshot import iterate_named_training_state

if TYPE_CHECKING:
    from samerun.record.watching.collective_results import CollectiveResults
    from samerun.record.watching.operator_digests import Lanes, OperatorDifference, OperatorDigests


class StepDigests(NamedTuple):
    """The digests of a step's operators, and of all that was there when it had ended; other processes can have them."""

    lanes: Lanes
    end: dict[str, bytes]

    def find_difference(self, other: StepDigests) -> StepDifference | None:
        """Where two computations first differ; None if nowhere."""
        from samerun.record.watching.operator_digests import find_first_differing_operator

        operator = find_first_differing_operator(self.lanes, other.lanes)
        names = [name for name in {**self.end, **other.end} if self.end.get(name) != other.end.get(name)]
        return StepDifference(operator, names) if operator or names else None

    def only_generators_of(self, other: StepDigests) -> StepDigests:
        """Without the state of a library's generator that the other process has not imported."""
        is_there = {name: name in other.end or not name.startswith("random generator") for name in self.end}
        return self._replace(end={name: value for name, value in self.end.items() if is_there[name]})

    def get_own_digests_where_others_differ(self, difference: StepDifference) -> Any:
        """What this computation had where two others differ."""
        if difference.operator is None:
            return [self.end.get(name) for name in difference.at_end]
        lane = self.lanes.get(difference.operator.lane, [])
        at = difference.operator.position
        if at >= len(lane):
            return None
        return lane[at].name, lane[at].geometry, lane[at].digest or lane[at].inputs  # of a collective: its inputs


class ComputedStep(NamedTuple):
    """One computation of a step: what it digested, what it returned, or the exception with which it ended."""

    operators: OperatorDigests
    digests: StepDigests
    result: Any
    error: Exception | None

    def find_difference(self, other: ComputedStep) -> StepDifference | None:
        """Where two computations first differ; None if nowhere."""
        return self.digests.find_difference(other.digests)


class StepDifference(NamedTuple):
    """The first operator that differs, if one does, and the names of what differs at the end of the step."""

    operator: OperatorDifference | None
    at_end: list[str]

    @property
    def is_other_program(self) -> bool:
        """Not in what operators computed, but in which operators were called."""
        return self.operator is not None and self.operator.is_other_program

    @property
    def has_operator_differing_on_same_inputs(self) -> bool:
        """An operator that computed something else from the same inputs. Only known where those were digested."""
        return self.operator is not None and not self.operator.is_other_program and not self.operator.has_other_inputs

    @property
    def name(self) -> str:
        return self.operator.operator if self.operator else self.at_end[0]

    @property
    def collectives(self) -> int:
        """How many collectives had been called before it; all of the step, if it shows at the end alone."""
        return self.operator.collectives if self.operator else sys.maxsize


def compute_and_digest_step(
    function: Callable[[], Any],
    parts: tuple[Any, ...],
    operator_to_locate: OperatorDifference | None = None,
    collectives: CollectiveResults | None = None,
    digests_inputs: bool = False,
    is_other_process: bool = False,
) -> ComputedStep:
    """Call the function and digest what it computes. See `OperatorDigests` for the other arguments."""
    from samerun.record.watching.quick_operator_digests import make_operator_digests

    result, failed = None, None
    with make_operator_digests(operator_to_locate, collectives, digests_inputs, is_other_process) as operators:
        try:
            result = function()
        except Exception as error:  # of the program; or because an index or a size was computed wrong
            failed = error
    end = {**digest_state(parts, result), "exception": type(failed).__qualname__.encode()}
    return ComputedStep(operators, StepDigests(operators.lanes, end), result, failed)


def digest_state(parts: tuple[Any, ...], arguments_or_result: Any) -> dict[str, bytes]:
    """The digests of all that is put back, by name, and of the step's arguments or its result."""
    with hide_from_recorder():
        named = [*iterate_named_training_state(parts), ("argument or result", arguments_or_result)]
        return {name: digest_value(value) for name, value in named}


def digest_value(value: Any) -> bytes:
    """The digest of tensors, numbers and texts, through dicts, lists and tuples; other objects count by their type."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value).encode()
    if isinstance(value, dict):
        return _digest_values(item for pair in value.items() for item in pair)
    if isinstance(value, (list, tuple)):
        if not set(map(type, value)) <= {int}:
            return _digest_values(value)
        is_short = type(value) in (list, tuple) and len(value) < 1000
        return _repr_of_numbers(type(value), tuple(value)) if is_short else repr(value).encode()
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        from samerun.record.digests.torch_guards import no_torch_function
        from samerun.record.watching.quick_mode import choose_digest_function

        with no_torch_function():  # the library reads attributes, which a function mode of the program would see
            return choose_digest_function()(value)
    return value.tobytes() if isinstance(value, np.ndarray) else type(value).__qualname__.encode()


@functools.lru_cache(maxsize=8)
def _repr_of_numbers(kind: type, numbers: tuple[int, ...]) -> bytes:
    """Kept, because a generator of 625 numbers is mostly the same before and after a step: comparing them takes a tenth
    of the time that their repr takes."""
    return repr(kind(numbers)).encode()


def _digest_values(values: Iterable[Any]) -> bytes:
    from xxhash import xxh3_128_digest

    return xxh3_128_digest(b"|".join(digest_value(value) for value in values))
