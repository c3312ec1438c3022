"""The digests of all that one computation computes, operator by operator, to compare it with its repetition.

Nothing is written to a trace and nothing of the program changes, except that fresh memory holds zeros: what a program
reads of memory that it never wrote is no wrong result of the machine.

Imports torch: only loaded once the program has.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from xxhash import xxh3_128_digest

from samerun.record.digests import digest as d
from samerun.record.digests import torch_guards
from samerun.record.watching import torch_internals
from samerun.record.watching.collective_results import CollectiveResults
from samerun.record.watching.collectives import is_process_group_name
from samerun.record.watching.interceptors import fresh_memory
from samerun.record.watching.stack_frames import find_user_line
from samerun.record.watching.watched_operator import UNORDERED, WatchedOperator, flatten_to_tensors_and_stable_values

_Tensor = torch.Tensor
_plain_call = torch._ops.OpOverload.__call__
_random_tag = torch.Tag.nondeterministic_seeded
_in_backward = torch._C._current_graph_task_id


class ExecutedOperator(NamedTuple):
    """One operator of a computation; plain values, which another process can compare with its own.

    `geometry`: shapes of its results, with their offsets in memory: where it differs, another program has run.
    `collectives`: how many collectives this process had called before. `is_concurrent`: several threads compute it.
    `inputs`: of all that its results are made of, where that is asked for.
    """

    name: str
    geometry: tuple[Any, ...]
    digest: bytes
    collectives: int
    is_concurrent: bool
    inputs: bytes = b""


Lanes: TypeAlias = "dict[int, list[ExecutedOperator]]"
"""The operators of a computation, by lane."""


class OperatorDifference(NamedTuple):
    """The first operator at which two computations differ.

    `is_other_program`: not in values, but in what was run. `is_unordered`: it may add in the order in which threads
    arrive, so that other bits are no sign of a fault. `has_other_inputs`: it computed on other values, though nothing
    before it had differed; False where inputs were not digested.
    """

    lane: int
    position: int
    operator: str
    is_other_program: bool
    is_unordered: bool
    collectives: int
    has_other_inputs: bool = False


_operators_by_id: dict[int, WatchedOperator] = {}
"""By the `id` of torch's operator, which its record keeps alive: its `__hash__` is a Python function."""


class OperatorDigests(torch_internals.KeepsProgramsCompiledMixin, TorchDispatchMode):
    """A block in which the results of every operator are digested. `native/watch` does the same for usual operators.

    The autograd engine computes the backward pass of each device in a thread of its own, so that only the order of
    one device's operators is fixed: each is a lane. `locate`: lane and position of the operator whose line is wanted.
    `collectives`: who calls the collectives, to keep or replay their results; what they are given is then digested.
    `digests_inputs`: whether the inputs of every operator are digested too. `is_for_other_process`: whether another
    process is compared with, which may have the batch at another place in its memory; so it is with `collectives`.
    """

    supports_higher_order_operators = True

    def __init__(
        self,
        locate: OperatorDifference | None = None,
        collectives: CollectiveResults | None = None,
        digests_inputs: bool = False,
        is_for_other_process: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lanes: Lanes = {}
        self.generators: dict[Any, Any] = {}
        """Generator of the program's own that an operator has drawn from -> its state before."""
        self.location = ""
        """File and line of the operator `locate`, and the node of the graph where it is of the backward pass."""
        self.uses_deterministic_operators = torch.are_deterministic_algorithms_enabled()
        self._locate = locate
        self._collective_results = collectives
        self._digests_inputs = digests_inputs
        self._is_for_other_process = is_for_other_process or collectives is not None
        self._collectives = 0
        self._threads = torch.get_num_threads()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "_schema", None) is None or torch_internals.is_on_fake_tensors():
            return func(*args, **kwargs)  # of higher order: the operators it calls are seen themselves
        if any(kind.__torch_dispatch__ is not _Tensor.__torch_dispatch__ for kind in types):
            return NotImplemented  # a subclass (DTensor) calls operators on the tensors it is made of: those are seen
        if args and isinstance(args[0], (int, float, complex)):
            args = torch_internals.wrap_numbers_as_tensor_arguments(func, args)
        operator = _operators_by_id.get(id(func))
        if operator is None:
            operator = _operators_by_id[id(func)] = WatchedOperator(func, _random_tag, _plain_call)
        if operator.random:
            self._save_state_of_given_generator(args, kwargs)
        call, inputs = func, b""
        if operator.rank_argument >= 0 and self._collective_results is not None:
            args = self._collective_results.keep_or_replace_rank(operator, args)
        if operator.asynchronous and self._collective_results is not None:
            call, inputs = self._collective_results.bind(operator), _digest_inputs(operator, args, kwargs)
        elif self._digests_inputs and not operator.silent and not operator.allocates:
            inputs = _digest_inputs(operator, args, kwargs)
        out = call(*args, **kwargs)
        if not operator.silent:
            self._record_results(operator, args, kwargs, out, inputs)
        return out

    def _record_results(self, operator: WatchedOperator, args: Any, kwargs: Any, out: Any, inputs: bytes = b"") -> None:
        """Digest the results of an operator, or fill the memory that it allocates."""
        with torch_guards.no_torch_function():
            if not operator.allocates:
                self._digest_and_append_operator(operator, args, kwargs, out, inputs)
            elif d.is_readable(out):
                with torch_guards.HiddenFromProgram():
                    fresh_memory.fill_uninitialized_if_possible(out, "zeros")

    def _save_state_of_given_generator(self, args: Any, kwargs: Any) -> None:
        generator = kwargs.get("generator")
        if generator is None:  # some operators take it by position
            generator = next((value for value in args if isinstance(value, torch.Generator)), None)
        if generator is not None and generator not in self.generators:
            self.generators[generator] = generator.get_state()

    def _digest_and_append_operator(
        self, operator: WatchedOperator, args: Any, kwargs: Any, out: Any, inputs: bytes
    ) -> None:
        written = [tensor for tensor in operator.flatten_written_arguments(args, kwargs) if isinstance(tensor, _Tensor)]
        results: list[Any] = []
        values: list[Any] = []
        flatten_to_tensors_and_stable_values((out,), _Tensor, results, values)
        done = {id(tensor) for tensor in written}
        results = written + [
            tensor for at, tensor in enumerate(results) if id(tensor) not in done and at != operator.scratch_output
        ]
        if not all(map(torch_guards.has_real_values, results)):
            return  # fake tensors, of which shapes are asked
        offsets_count = not self._is_for_other_process
        geometry = tuple(
            (
                () if tensor.is_nested else tensor.shape,
                tensor.storage_offset() if offsets_count and _is_plain(tensor) else 0,
            )
            for tensor in results
        )
        if operator.asynchronous:  # what a collective gives may not be there yet: its readers are compared
            value = b""
            self._collectives += 1
        else:
            parts = [d.digest(tensor) for tensor in results]
            value = b"".join(parts) if not values else b"".join([*parts, repr(values).encode()])
        lane = 0
        if _in_backward() != -1 and results and not results[0].is_cpu:
            lane = 1 + (results[0].device.index or 0)
        lane_operators = self.lanes.setdefault(lane, [])
        wanted = self._locate
        if wanted is not None and (wanted.lane, wanted.position) == (lane, len(lane_operators)):
            self.location = _describe_location()
        is_concurrent = self._threads > 1 or any(not tensor.is_cpu for tensor in results)
        lane_operators.append(
            ExecutedOperator(operator.name, geometry, value, self._collectives, is_concurrent, inputs)
        )


def find_first_differing_operator(first: Lanes, second: Lanes) -> OperatorDifference | None:
    """The first operator in which two computations differ: in values or, if that is earlier, in what was run."""
    if first == second:
        return None
    found = [
        difference
        for lane in sorted({*first, *second})
        if (difference := _compare_lane(lane, first.get(lane, []), second.get(lane, [])))
    ]
    return min(found, key=lambda difference: (difference.collectives, difference.lane), default=None)


def _digest_inputs(operator: WatchedOperator, args: Any, kwargs: Any) -> bytes:
    """The digest of all that an operator computes with: tensors, numbers, and the generator that it draws from."""
    with torch_guards.no_torch_function():
        tensors: list[Any] = []
        values: list[Any] = []
        flatten_to_tensors_and_stable_values((args, kwargs), _Tensor, tensors, values)
        if operator.asynchronous:
            values = ["a group" if is_process_group_name(value) else value for value in values]
        if operator.overwrites:  # what was there before does not matter
            written = {id(tensor) for tensor in operator.flatten_written_arguments(args, kwargs)}
            tensors = [tensor for tensor in tensors if id(tensor) not in written]
        parts = [d.digest(tensor) for tensor in tensors if torch_guards.has_real_values(tensor)]
        if operator.random and (generator := torch_internals.find_operator_generator(kwargs, tensors)) is not None:
            parts.append(d.digest(generator.get_state()))
        return xxh3_128_digest(b"|".join([*parts, repr(values).encode()]))


def _is_plain(tensor: Any) -> bool:
    return type(tensor) in torch_guards.PLAIN_TYPES and tensor.layout is torch.strided


def _compare_lane(
    lane: int, first: list[ExecutedOperator], second: list[ExecutedOperator]
) -> OperatorDifference | None:
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        is_other_program = one.name != other.name or one.geometry != other.geometry
        has_other_inputs = one.inputs != other.inputs
        if is_other_program or has_other_inputs or one.digest != other.digest:
            unordered = one.is_concurrent and any(name in one.name for name in UNORDERED)
            return OperatorDifference(
                lane, index, one.name, is_other_program, unordered, one.collectives, has_other_inputs
            )
    if len(first) == len(second):
        return None
    index = min(len(first), len(second))
    longer = max(first, second, key=len)[index]
    return OperatorDifference(lane, index, longer.name, True, False, longer.collectives)


def _describe_location() -> str:
    """The user's line that is running, and in the backward pass the node of the graph."""
    line = find_user_line()
    words = [f"{line.file}:{line.line}"] if line.file else []
    node: Any = torch._C._current_autograd_node() if _in_backward() != -1 else None
    if node is not None:
        words.append(f"in {node.name()}")
    return " ".join(words)
